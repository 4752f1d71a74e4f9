import math

import pytest
import torch

from metaprior.solar.maps import baselines
from metaprior.solar.scores.lead_scores import LeadTimeScores


def test_persistence_holds_the_last_frame() -> None:
    inputs = torch.arange(2 * 3 * 4).double().reshape(2, 3, 2, 2)
    forecast = baselines.persistence(inputs, 5)
    assert forecast.shape == (2, 5, 2, 2)
    assert all(torch.equal(forecast[:, lead], inputs[:, -1]) for lead in range(5))


def test_persistence_has_no_skill_over_itself() -> None:
    frames = torch.rand(1, 8, 32, 32, generator=torch.Generator().manual_seed(0))
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


def test_windows_that_cannot_be_forecast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(windows, frames, rows, columns\), got shape \(3, 4, 4\)"):
        baselines.persistence(torch.zeros(3, 4, 4), 1)
    with pytest.raises(ValueError, match="target_len must be an integer of at least 1, got 0"):
        baselines.persistence(torch.zeros(1, 3, 4, 4), 0)
    with pytest.raises(ValueError, match="the last input frames has 1 NaN"):
        baselines.persistence(torch.tensor(torch.nan).reshape(1, 1, 1, 1), 1)


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
