"""Every benchmark runs on a small scale and reports what it promises; no timing is asserted."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import mnist, uci
from benchmarks.jobs import run_all
from benchmarks.result import BenchResult, text_table


def test_one_uci_fit_beats_a_constant(uci_data: Path) -> None:
    fit = uci.fit_split(uci.Job(uci_data, "yacht", 0, uci.Settings(steps=300)))
    assert fit.rmse < 5  # the targets' standard deviation is 15
    assert math.isfinite(fit.nll)


def test_uci_headline_names_every_set(uci_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uci, "run_all", lambda function, jobs, **_: [uci.Fit(1.0, 2.0, 0.9, 0.1) for _ in jobs])
    result = uci.run(uci_data, quick=True)
    sets = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
    assert set(result.headline) == {f"{score}_{name}" for score in ("nll", "rmse") for name in sets}


def test_one_mnist_fit_learns(mnist_data: Path) -> None:
    tiny = mnist.Settings(epochs=3, train_images=2000, test_samples=2)
    whole, *pruned = mnist.fit_network(mnist.Job(mnist_data, 50, 0.1, tiny))
    assert whole["error_percent"] < 50
    assert [row["what"] for row in pruned] == ["metaprior, 75% pruned", "metaprior, 95% pruned"]


def test_jobs_come_back_in_order_and_an_error_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_all(math.sqrt, [4.0, 9.0, 16.0], workers=2, label="roots") == [2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        run_all(math.sqrt, [4.0, -1.0], workers=1, label="roots")
    assert "roots" in capsys.readouterr().err


def test_result_is_written_as_json_with_unknown_numbers_as_null(tmp_path: Path) -> None:
    result = BenchResult({"nll": 1.5}, [{"set": "a", "se": math.nan}], {"quick": True})
    result.write(tmp_path / "deep" / "result.json")
    content = json.loads((tmp_path / "deep" / "result.json").read_text())
    assert content["headline"] == {"nll": 1.5}
    assert content["rows"] == [{"set": "a", "se": None}]
    assert {"python", "torch", "metaprior"} <= set(content["versions"])


def test_table_aligns_and_marks_what_is_absent() -> None:
    table = text_table([{"set": "a", "nll": 1.23456}, {"set": "long name", "error": 2}]).splitlines()
    assert table[0].split() == ["set", "nll", "error"]
    assert table[2].split() == ["a", "1.235", "-"]
    assert table[3].endswith("2")
