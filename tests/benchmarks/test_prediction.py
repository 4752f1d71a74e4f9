import pytest
import torch

from benchmarks import prediction
from benchmarks.prediction import Mixture, bisected, hard_mixtures, hard_row


def test_the_frozen_reference_is_the_quantile_of_a_normal() -> None:
    parts = Mixture(torch.tensor([[1.0], [1.0]]), torch.tensor([[2.0], [2.0]]))
    assert float(bisected(parts, 0.975)) == pytest.approx(1 + 2 * 1.959963985, abs=1e-8)


def test_a_wrong_quantile_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = hard_mixtures(20)["like a forecast"]
    right = prediction.mixture.quantiles
    assert hard_row("", parts)["either"] < 1e-6
    monkeypatch.setattr(prediction.mixture, "quantiles", lambda *given: right(*given) + 1e-3)
    assert hard_row("", parts)["difference"] > 5e-4
    assert hard_row("", parts)["either"] > 1e-4


def test_parts_of_the_table_are_named() -> None:
    rows = prediction.speed_rows(prediction.Settings(rows=50, samples=4, repeats=1))
    assert [row["what"] for row in rows][:2] == ["interval(0.9)", "quantile(0.9)"]
    assert rows[0]["speedup"] == pytest.approx(rows[0]["bisection"] / rows[0]["seconds"])  # type: ignore[operator]
