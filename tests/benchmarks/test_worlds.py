"""The benchmark of nowcasts: its baselines, its ratios, and what it says of costs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common.benchmark import Context
from benchmarks.worlds import comparison, costs, products
from benchmarks.worlds.flows import PLAIN, TREND, flows
from benchmarks.worlds.settings import Settings
from benchmarks.worlds.worth import WITHOUT, worth_of_inputs
from metaprior.solar.maps.nowcast.backtest import FLOW, Sums
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, Known
from tests.solar.maps.nowcast.small import nowcaster

SMALL = Settings(size=32, worlds=2)


def brightening() -> Batch:
    """Return a window whose pattern stays and whose brightness rises by 2 a step."""
    pattern = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 50
    frames = pattern + 100 + 2 * torch.arange(INPUTS + LEADS)[:, None, None]
    inputs = frames[:, :INPUTS].contiguous()
    return Batch(inputs, frames[:, INPUTS:], Known.nothing(inputs), torch.tensor([15.0]))


def test_the_trend_of_brightness_goes_on() -> None:
    window = brightening()
    found = flows(window)
    assert set(found) == {*PLAIN, *TREND}
    added = found["flow (Proesmans), trend added"] - found["flow (Proesmans)"]
    torch.testing.assert_close(added.mean((0, 2, 3)), 2.0 * torch.arange(1, LEADS + 1), atol=1e-3, rtol=1e-3)
    ratio = float(window.frames[0, -1].mean() / window.frames[0, -2].mean())
    multiplied = found["flow (Proesmans), trend multiplied"] / found["flow (Proesmans)"]
    torch.testing.assert_close(multiplied[0, :, 5, 5], ratio ** torch.arange(1, LEADS + 1), rtol=1e-4, atol=0.0)


def made_up(scores: dict[str, float], coverage: float = 0.9) -> comparison.Scored:
    """Return scores of two moments: the given RMSE and half of it as CRPS at every lead time."""

    def sums(rmse: float) -> Sums:
        each = np.full(LEADS, rmse)
        return Sums(each**2, each, each / 2, np.full(LEADS, coverage))

    return comparison.Scored({name: [sums(rmse)] * 2 for name, rmse in scores.items()}, [1.0, 1.0], [True, False])


def test_ratios_are_to_the_best_flow_and_the_headline_has_the_worst() -> None:
    ours = {comparison.WIDE: 3.0, comparison.TRAINED: 3.0, FLOW: 6.6}
    peers = dict(zip(PLAIN, (6.0, 8.0), strict=True)) | dict.fromkeys(TREND, 4.0)
    rows = comparison._rows("one", made_up(ours | peers, 0.88))
    rows += comparison._rows("other", made_up(ours | {comparison.WIDE: 4.5} | peers, 0.93))
    assert rows[0]["rmse_ratio_flow"] == pytest.approx(0.5)
    assert rows[0]["crps_ratio_flow_trend"] == pytest.approx(0.75)
    assert rows[0]["own_flow"] == pytest.approx(1.1)
    assert (rows[0]["first_light"], rows[0]["coverage_later"]) == (1, pytest.approx(0.88))
    learned = [{"gain": 9.0, "days": "several"}, {"gain": -1.0, "days": "few"}]
    assert comparison._headline(rows, learned) == {
        "rmse_ratio_flow": pytest.approx(0.75),
        "crps_ratio_flow": pytest.approx(0.75),
        "crps_ratio_flow_trend": pytest.approx(1.125),
        "coverage_low": pytest.approx(0.88),
        "coverage_high": pytest.approx(0.93),
        "adapt_gain": 9.0,
        "adapt_worst": -1.0,
    }


def test_scores_of_archives_count_in_their_units() -> None:
    scored = comparison.Scored({"a": made_up({"a": 2.0}).sums["a"]}, [1.0, 2.0], [])
    np.testing.assert_allclose(scored.rmse("a"), np.sqrt((4 + 1) / 2))
    np.testing.assert_allclose(scored.mean("a", "crps"), (1 + 0.5) / 2)


def test_forecasts_of_worlds_are_issued_on_the_last_day() -> None:
    for archive in products.simulated(SMALL, 15):
        times = archive.moments.times
        assert (times[archive.issues] >= times[-1].astype("datetime64[D]") - np.timedelta64(1, "D")).all()
        assert len(archive.issues) == 1
    for archive in products.afternoons(Settings(size=32, afternoons=1, afternoon_frames=20), 5):
        assert len(archive.issues) == 2
        assert archive.issues.min() >= 12


def test_costs_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowcaster().save(tmp_path / "prior")
    monkeypatch.setattr(costs, "COMMAND_SIZE", 32)
    monkeypatch.setattr(costs, "FLOW_SIZE", 32)
    found = costs.costs(Context(Settings(prior=str(tmp_path / "prior")), tmp_path))
    assert set(found) >= {"command_cpu_s", "prior_mb", "flow_ms_own", "flow_ms_proesmans", "flow_ms_lucas_kanade"}
    assert all(float(value) > 0 for name, value in found.items() if name != "part")


def test_the_worth_of_inputs_is_that_of_leaving_them_out() -> None:
    archives = products.simulated(SMALL, 30)
    row = worth_of_inputs(nowcaster(), "worlds", archives)
    assert set(row) == {"part", "product", *(f"without_{what}" for what in WITHOUT)}
    position = int(archives[0].issues[0])
    window = archives[0].moments.batch(position)
    whole, still = nowcaster().predict(window), WITHOUT["motion"](nowcaster(), window)
    assert not torch.equal(whole.mean, still.mean)
    assert torch.equal(nowcaster().predict(window).mean, whole.mean)  # motion is back
