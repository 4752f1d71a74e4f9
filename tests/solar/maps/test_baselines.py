import builtins
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.solar.maps import baselines
from metaprior.solar.scores.lead_scores import LeadTimeScores


def drifting(velocity: tuple[float, float], *, size: int = 32, frames: int = 8) -> Tensor:
    """A smooth field that moves by velocity (down, right) pixels a frame: (1, frames, size, size)."""
    down, right = velocity
    y, x = torch.meshgrid(torch.arange(size).double(), torch.arange(size).double(), indexing="ij")
    return torch.stack(
        [
            torch.sin(2 * math.pi * (x - right * t) / 16 + 0.3) + torch.cos(2 * math.pi * (y - down * t) / 14)
            for t in range(frames)
        ]
    )[None]


def test_persistence_holds_the_last_frame() -> None:
    inputs = torch.arange(2 * 3 * 4).double().reshape(2, 3, 2, 2)
    forecast = baselines.persistence(inputs, 5)
    assert forecast.shape == (2, 5, 2, 2)
    assert all(torch.equal(forecast[:, lead], inputs[:, -1]) for lead in range(5))


def test_persistence_has_no_skill_over_itself() -> None:
    frames = drifting((0.0, 1.0))
    forecast = baselines.persistence(frames[:, :4], 4)
    scores = LeadTimeScores([30, 60, 90, 120], value_range=4.0)
    scores.add(forecast, frames[:, 4:], task="t", references={"persistence": forecast})
    assert [row["skill_persistence"] for row in scores.rows()] == [0] * 5


def test_smart_persistence_follows_the_sun_under_a_constant_sky() -> None:
    """With an index of 0.6 that does not change, it is right at every lead time."""
    now, then = torch.full((2, 3, 3), 500.0), torch.tensor([600.0, 300.0, 5.0])[None, :, None, None].expand(2, 3, 3, 3)
    inputs = torch.stack([torch.zeros_like(now), 0.6 * now], 1)
    torch.testing.assert_close(baselines.smart_persistence(inputs, now, then), 0.6 * then)


def test_smart_persistence_where_the_sun_is_low() -> None:
    """The pixel in the dark takes the index of the two in the light: (100 + 500) / (200 + 800)."""
    now = torch.tensor([[[200.0, 800.0, 1e-9]]])
    then = torch.full((1, 1, 1, 3), 100.0)
    inputs = torch.tensor([100.0, 500.0, 3.0]).reshape(1, 1, 1, 3)
    forecast = baselines.smart_persistence(inputs, now, then)
    torch.testing.assert_close(forecast.flatten(), torch.tensor([50.0, 62.5, 60.0]))


def test_smart_persistence_before_sunrise_holds_the_last_value() -> None:
    now = torch.tensor([[[0.0, 19.9]], [[0.0, 20.0]]])
    then = torch.full((2, 2, 1, 2), 300.0)
    inputs = torch.tensor([[0.0, 7.0], [0.0, 10.0]]).reshape(2, 1, 1, 2)
    dark, one_pixel = baselines.smart_persistence(inputs, now, then)
    torch.testing.assert_close(dark, torch.tensor([0.0, 7.0]).expand(2, 1, 2))
    torch.testing.assert_close(one_pixel, torch.full((2, 1, 2), 150.0))


def test_smart_persistence_does_not_believe_an_index_beyond_two() -> None:
    now, then = torch.full((1, 1, 2), 25.0), torch.full((1, 1, 1, 2), 100.0)
    inputs = torch.tensor([1000.0, -3.0]).reshape(1, 1, 1, 2)
    assert baselines.smart_persistence(inputs, now, then).flatten().tolist() == [200.0, 0.0]


def test_clear_sky_that_does_not_fit_is_refused() -> None:
    inputs, now, then = torch.ones(1, 2, 3, 3), torch.ones(1, 3, 3), torch.ones(1, 4, 3, 3)
    with pytest.raises(ValueError, match=r"clear_sky_now must have shape \(1, 3, 3\) .*, got \(3, 3\)"):
        baselines.smart_persistence(inputs, now[0], then)
    with pytest.raises(ValueError, match=r"clear_sky_then must have shape \(1, 4, 3, 3\) .*, got \(1, 4, 3\)"):
        baselines.smart_persistence(inputs, now, then[..., 0])
    with pytest.raises(ValueError, match="clear_sky_then must be irradiance in W/m2 of 0 or more, got -1"):
        baselines.smart_persistence(inputs, now, -then)


@pytest.mark.parametrize("velocity", [(1.0, 0.0), (0.0, -1.0), (-0.5, 1.5)])
def test_optical_flow_carries_on_a_translation(velocity: tuple[float, float]) -> None:
    """Exact but for interpolation, away from the borders (the motion there, and what comes in, have not been seen)."""
    frames = drifting(velocity)
    forecast, without_motion = baselines.optical_flow(frames[:, :4], 4)
    inner = slice(8, -8)
    error = (forecast - frames[:, 4:])[..., inner, inner].abs()
    still = (frames[:, 3:4] - frames[:, 4:])[..., inner, inner].abs()
    assert without_motion == 0
    assert float(error.max()) < 0.15  # of values between -2 and 2
    assert float(error.mean()) < 0.06 * float(still.mean())


def test_optical_flow_holds_the_last_value_where_something_unseen_comes_in() -> None:
    frames = drifting((0.0, 2.0))  # to the right: after 3 steps the first 4 columns have certainly not been seen
    forecast = baselines.optical_flow(frames[:, :4], 4).frames
    torch.testing.assert_close(forecast[0, 3, :, :4], frames[0, 3, :, :4])


def test_windows_without_structure_are_held_and_counted() -> None:
    frames = torch.cat([drifting((0.0, 1.0))[:, :4], torch.full((2, 4, 32, 32), 0.3)]).float()
    forecast, without_motion = baselines.optical_flow(frames, 2)
    assert without_motion == 2
    assert forecast.dtype == torch.float32
    torch.testing.assert_close(forecast[1:], torch.full((2, 2, 32, 32), 0.3))


def test_optical_flow_does_not_depend_on_the_other_windows() -> None:
    frames = torch.cat([drifting((0.0, 1.0)), drifting((1.0, 0.0))])[:, :4]
    both = baselines.optical_flow(frames, 2).frames
    torch.testing.assert_close(baselines.optical_flow(frames[1:], 2).frames, both[1:], rtol=0, atol=0)


def test_optical_flow_prints_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pysteps"]:
        monkeypatch.delitem(sys.modules, name)  # it prints when it is imported
    baselines.optical_flow(drifting((0.0, 1.0))[:, :2], 1)
    assert capfd.readouterr() == ("", "")


def test_without_pysteps_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pysteps"):
            raise ModuleNotFoundError("No module named 'pysteps'", name="pysteps")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'metaprior\[flow\]'"):
        baselines.optical_flow(torch.zeros(1, 2, 8, 8), 1)


def test_windows_that_cannot_be_forecast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(windows, frames, rows, columns\), got shape \(3, 4, 4\)"):
        baselines.persistence(torch.zeros(3, 4, 4), 1)
    with pytest.raises(ValueError, match="target_len must be an integer of at least 1, got 0"):
        baselines.persistence(torch.zeros(1, 3, 4, 4), 0)
    with pytest.raises(ValueError, match="the last input frames has 1 NaN"):
        baselines.persistence(torch.tensor(torch.nan).reshape(1, 1, 1, 1), 1)
    for shape in ((1, 1, 32, 32), (1, 4, 7, 32)):
        with pytest.raises(ValueError, match="at least 2 frames of at least 8 pixels a side"):
            baselines.optical_flow(torch.zeros(shape), 1)


def test_error_scale_is_the_root_mean_squared_error_of_each_lead_time() -> None:
    points = torch.zeros(2, 2, 1, 2, dtype=torch.float64)
    targets = torch.tensor([[[3.0, 4.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, torch.nan]]]).double()[:, :, None]
    daylight = ~targets.isnan()
    daylight[1, 0] = False
    found = baselines.error_scale(points, targets, daylight=daylight)
    torch.testing.assert_close(found, torch.tensor([math.sqrt(12.5), 1.0], dtype=torch.float64))


def test_errors_that_give_no_scale_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be positive and finite, got \[0\.0\]"):
        baselines.error_scale(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match="none of them NaN"):
        baselines.error_scale(torch.zeros(1, 1, 1, 1), torch.tensor(torch.nan).reshape(1, 1, 1, 1))


def test_noise_of_the_right_scale_is_calibrated_at_every_lead_time() -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.tensor([0.1, 0.5])
    points = torch.zeros(8, 2, 32, 32)
    past, future = (true[:, None, None] * torch.randn(points.shape, generator=generator) for _ in range(2))
    forecast = baselines.with_noise(points, baselines.error_scale(points, past))
    assert torch.equal(forecast.mean, points)
    scores = LeadTimeScores([30, 60], value_range=1.0)
    scores.add(forecast, future, task="t")
    for row, scale in zip(scores.rows(), true.tolist(), strict=False):
        assert row["spread"] == pytest.approx(scale, rel=0.03)
        assert row["coverage_90"] == pytest.approx(0.9, abs=0.015)


def test_scales_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one value for each lead time, got shapes \(1, 2, 3, 3\) and \(3,\)"):
        baselines.with_noise(torch.zeros(1, 2, 3, 3), torch.ones(3))
    with pytest.raises(ValueError, match=r"every scale must be positive, got \[1\.0, 0\.0\]"):
        baselines.with_noise(torch.zeros(1, 2, 3, 3), torch.tensor([1.0, 0.0]))
