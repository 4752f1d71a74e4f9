"""Intervals: coverage that is known exactly, cases by hand, groups, missing targets and wrong inputs."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior import conformal
from metaprior.conformal.scores import INTERVAL_SCORES
from metaprior.errors import NotFinite
from metaprior.forecasts.numpy_forecast import NumpyForecast
from tests.conformal.made_up import bits, classes, drawn, normal

REPEATS = 4000


def spread(x: Tensor) -> Tensor:
    return 0.2 + x.abs()


def wrong_forecast(x: Tensor) -> Any:
    """Biased and too narrow."""
    return normal(x + 0.3, 0.4 * spread(x))


@pytest.mark.parametrize("score", INTERVAL_SCORES)
@pytest.mark.parametrize(("count", "level"), [(9, 0.9), (15, 0.9), (19, 0.5), (40, 0.8)])
def test_the_coverage_is_the_exact_one(score: str, count: int, level: float) -> None:
    """Every column is a calibration of its own, and one new observation."""
    x = drawn(count + 1, REPEATS, seed=1)
    y = x + spread(x) * drawn(count + 1, REPEATS, seed=2)
    held_out = conformal.intervals(wrong_forecast(x[:-1]), y[:-1], level, score=score)
    low, high = held_out.interval(wrong_forecast(x[-1:]))
    inside = ((low <= y[-1:]) & (y[-1:] <= high)).double().mean()
    expected = math.ceil(round((count + 1) * level, 9)) / (count + 1)
    assert level <= expected <= level + 1 / (count + 1)
    assert float(inside) == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / REPEATS))
    assert held_out.coverage(wrong_forecast(x[-1:]), y[-1:]) == pytest.approx(float(inside), abs=1e-12)


def test_quantile_by_hand() -> None:
    forecast = normal(torch.zeros(9, dtype=torch.float64), 2.0)
    z = 2 * 0.6744897501960817  # the quartile of the forecast
    y = torch.tensor([0, 1, -1, 2, -2, 3, -3, 4, 5], dtype=torch.float64)
    found = conformal.intervals(forecast, y, 0.5)
    assert float(found.threshold) == pytest.approx(2 - z)  # 5th smallest of |y| - z: 0 1 1 2 [2] 3 3 4 5
    low, high = found.interval(normal(torch.tensor([10.0]), 1.0))
    assert low.dtype == torch.float32
    assert (float(low), float(high)) == pytest.approx((10 - z / 2 - (2 - z), 10 + z / 2 + (2 - z)))


def test_std_by_hand() -> None:
    std = torch.arange(1, 10, dtype=torch.float64)
    found = conformal.intervals(normal(torch.zeros(9, dtype=torch.float64), std), 3 * torch.ones(9), 0.9, score="std")
    assert float(found.threshold) == 3
    low, high = found.interval(normal(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0])))
    torch.testing.assert_close(low, torch.tensor([-0.5, -4.0]))
    torch.testing.assert_close(high, torch.tensor([2.5, 8.0]))


def test_a_forecast_that_is_far_too_wide_gets_narrower_and_never_crosses() -> None:
    y = drawn(500)
    found = conformal.intervals(normal(torch.zeros_like(y), 10.0), y)
    assert found.threshold < 0
    low, high = found.interval(normal(torch.zeros(2), torch.tensor([10.0, 0.1])))
    assert (float(low[0]), float(high[0])) == pytest.approx((-1.64, 1.64), abs=0.25)
    assert float(low[1]) == float(high[1]) == 0


@pytest.mark.parametrize("score", INTERVAL_SCORES)
def test_a_target_at_the_threshold_is_inside(score: str) -> None:
    """Ties: counts, and a forecast that is the same for all. Rounding must not leave out what has the threshold."""
    y = torch.randint(0, 4, (199, 1), generator=torch.Generator().manual_seed(0)).double().expand(199, 300)
    forecast = normal((10 * drawn(300)).expand(199, 300), 0.3 + drawn(300, seed=1).abs())
    found = conformal.intervals(forecast, y, 0.6, score=score)
    low, high = found.interval(forecast)
    inside = ((low <= y) & (y <= high)).double()
    assert float(inside.mean(0).min()) >= 0.6
    assert found.coverage(forecast, y) == pytest.approx(float(inside.mean()), abs=1e-12)


def test_arrays_give_arrays_of_the_same_numbers() -> None:
    x, y = drawn(50), drawn(50, seed=1)
    found = conformal.intervals(normal(x), y)
    of_arrays = conformal.intervals(NumpyForecast(normal(x)), y.numpy())
    assert torch.equal(found.threshold, of_arrays.threshold)
    for tensor, array in zip(found.interval(normal(x)), of_arrays.interval(NumpyForecast(normal(x))), strict=True):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_targets_with_and_without_a_channel_axis_are_the_same() -> None:
    x, y = drawn(50, 1), drawn(50, seed=1)
    assert torch.equal(
        conformal.intervals(normal(x), y).threshold, conformal.intervals(normal(x), y[:, None]).threshold
    )


def test_each_output_has_a_threshold_and_missing_targets_are_counted() -> None:
    x, y = drawn(60, 2, 3), drawn(60, 2, 3, seed=1) * torch.tensor([1.0, 2.0, 4.0])
    y[:40, 1, 2] = math.nan
    y[5] = math.nan
    found = conformal.intervals(normal(x), y)
    assert found.threshold.shape == (2, 3)
    assert (found.observations, found.missing) == (59, 45)
    alone = conformal.intervals(normal(x[40:, 1, 2]), y[40:, 1, 2])
    assert float(found.threshold[1, 2]) == float(alone.threshold)
    assert "45 missing targets left out" in repr(found)
    assert "for 6 targets" in repr(found)
    covered = y.clone()
    covered[~y.isnan()] = x[~y.isnan()]
    assert found.coverage(normal(x), covered) == 1


def test_too_few_observations_give_infinite_intervals_and_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"1 of 1 thresholds are infinite.*at least 9 observations .*got 8") as warned:
        found = conformal.intervals(normal(torch.zeros(8)), torch.zeros(8))
    assert warned[0].filename == __file__
    low, high = found.interval(normal(torch.zeros(2)))
    assert (low.tolist(), high.tolist()) == ([-math.inf] * 2, [math.inf] * 2)
    assert "threshold inf" in repr(found)


def test_groups_have_thresholds_of_their_own() -> None:
    groups = np.array(["calm", "windy"] * 200)
    scale = torch.tensor([1.0, 5.0], dtype=torch.float64).repeat(200)
    y = scale * drawn(400)
    forecast = normal(torch.zeros(400, dtype=torch.float64))
    found = conformal.intervals(forecast, y, groups=groups)
    for i, name in enumerate(("calm", "windy")):
        alone = conformal.intervals(normal(torch.zeros(200, dtype=torch.float64)), y[i::2])
        assert float(found.groups[name]) == pytest.approx(float(alone.threshold))
    low, high = found.interval(normal(torch.zeros(3)), ["windy", "calm", "windy"])
    width = (high - low).tolist()
    assert width[0] == width[2] > 3 * width[1]
    new = scale * drawn(400, seed=1)
    assert found.coverage(forecast, new, groups) == pytest.approx(0.9, abs=0.05)
    assert found.coverage(normal(torch.zeros(200)), new[::2], ["calm"] * 200) == pytest.approx(0.9, abs=0.06)
    assert conformal.intervals(forecast, y).coverage(normal(torch.zeros(200)), new[::2]) == 1  # calm ones, pooled
    assert "'calm': " in repr(found)


def test_new_groups_raise_or_take_the_threshold_of_a_new_task() -> None:
    sizes = [5, 6, 7] * 4
    groups = [k for k, size in enumerate(sizes) for _ in range(size)]
    y = torch.cat([drawn(size, seed=k) + 3 * drawn(1, seed=100 + k) for k, size in enumerate(sizes)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = conformal.intervals(normal(torch.zeros_like(y)), y, groups=torch.tensor(groups))
    with pytest.raises(
        ValueError, match=r"groups must be among the calibrated ones \(0, 1, 2, 3, 4, ... \(12\)\), got 99"
    ):
        found.interval(normal(torch.zeros(2)), [0, 99])
    _, high = found.interval(normal(torch.zeros(2)), [0, 99], new_groups=True)
    assert math.isinf(high[0])  # five observations are too few
    assert float(high[1]) == pytest.approx(1.6448536 + float(found.threshold))
    assert math.isfinite(found.threshold)


@pytest.mark.parametrize("level", [0, 1, -0.1, 90, math.nan])
def test_levels_outside_of_0_and_1_raise(level: float) -> None:
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        conformal.intervals(normal(drawn(20)), drawn(20), level)


def test_wrong_inputs_raise() -> None:
    forecast, y = normal(drawn(20)), drawn(20)
    with pytest.raises(ValueError, match="score must be one of 'quantile', 'std', got 'aps'"):
        conformal.intervals(forecast, y, score="aps")
    with pytest.raises(TypeError, match=r"forecast must be what predict\(x\) returns, got Tensor"):
        conformal.intervals(y, y)  # type: ignore[arg-type]
    for labels in (classes(torch.full((20, 2), 0.5)), bits(torch.full((20,), 0.5))):
        with pytest.raises(TypeError, match=r"forecast of real-valued targets, got a \w+. Try conformal.sets"):
            conformal.intervals(labels, torch.zeros(20))
    with pytest.raises(ValueError, match=r"shape \(19,\), but the predictions have \(20,\)"):
        conformal.intervals(forecast, y[:19])
    with pytest.raises(ValueError, match="targets to calibrate on, got 20 that are all missing"):
        conformal.intervals(forecast, y * math.nan)
    with pytest.raises(NotFinite, match="y has 20 infinite values"):
        conformal.intervals(forecast, y / 0.0)
    with pytest.raises(NotFinite, match="of the forecast has 1 NaN or infinite value"):
        conformal.intervals(normal(torch.where(torch.arange(20) == 3, math.inf, 0.0)), y)
    with pytest.raises(ValueError, match="std of the forecast must be positive"):
        conformal.intervals(normal(drawn(20), 0.0), y, score="std")


def test_wrong_predictions_raise() -> None:
    found = conformal.intervals(normal(drawn(20)), drawn(20))
    with pytest.raises(ValueError, match=r"must have the shape \(\) that was calibrated, got \(3,\)"):
        found.interval(normal(drawn(5, 3)))
    with pytest.raises(ValueError, match=r"groups must be given .* had no groups"):
        found.interval(normal(drawn(2)), [1, 2])
    grouped = conformal.intervals(normal(drawn(20)), drawn(20), groups=[True] * 20)
    with pytest.raises(ValueError, match=r"groups must be given .* had 1 groups"):
        grouped.interval(normal(drawn(2)))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 19, "groups must be 20 labels, one for each observation, got 19"),
        ("a" * 20, "groups must be 20 labels"),
        ([math.nan] * 20, "groups must be text or numbers, got nan"),
        ([None] * 20, "groups must be text or numbers, got None"),
    ],
)
def test_wrong_groups_raise(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conformal.intervals(normal(drawn(20)), drawn(20), groups=groups)


def test_a_fitted_method_and_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    x, noise = torch.linspace(-1, 1, 80)[:, None], 0.1 * drawn(80).float()
    method = mp.BayesByBackprop(mp.MLP(1, [4], 1), mp.Gaussian()).fit(x[::2], x[::2, 0] + noise[::2], epochs=2)
    frame = pandas.DataFrame({"y": (x[1::2, 0] + noise[1::2]).numpy(), "group": ["a", "b"] * 20})
    found = conformal.intervals(method.predict(x[1::2].numpy()), frame["y"], 0.8, groups=frame["group"])
    low, high = found.interval(method.predict(x[1::2].numpy()), frame["group"])
    assert 0.8 <= float(((low <= frame["y"]) & (frame["y"] <= high)).mean()) < 0.95
