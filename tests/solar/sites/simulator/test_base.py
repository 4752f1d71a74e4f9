"""Base forecasts with errors of known size."""

import numpy as np
import pytest

from metaprior.solar.sites.simulator import BaseQuality, Fleet, base_forecast, base_of, simulate_fleet

PERFECT = BaseQuality(skill=1.0, smoothing_hours=0)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return simulate_fleet(30, 60, seed=1, climates=["maritime", "continental"], clear_power=True)


def test_a_perfect_forecast_is_the_truth(fleet: Fleet) -> None:
    forecast = base_forecast(fleet.ghi, fleet.clear_ghi, PERFECT)
    high = (fleet.clear_ghi > 200) & (fleet.ghi < 1.1 * fleet.clear_ghi)
    np.testing.assert_allclose(forecast[high], fleet.ghi[high], rtol=1e-4)


@pytest.mark.parametrize("skill", [0.0, 0.5, 0.9])
def test_the_skill_is_the_correlation_with_the_truth(fleet: Fleet, skill: float) -> None:
    quality = BaseQuality(skill=skill, smoothing_hours=0, error_hours=4)
    forecast = base_forecast(fleet.ghi, fleet.clear_ghi, quality, seed=2)
    found = []
    for true, guess, clear in zip(fleet.ghi, forecast, fleet.clear_ghi, strict=True):
        high = clear > 0.2 * clear.max()
        found.append(np.corrcoef(true[high] / clear[high], guess[high] / clear[high])[0, 1])
    assert abs(np.mean(found) - skill) < 0.05


def test_errors_grow_as_skill_falls(fleet: Fleet) -> None:
    errors = [
        np.mean((base_forecast(fleet.ghi, fleet.clear_ghi, BaseQuality(skill=skill)) - fleet.ghi) ** 2)
        for skill in (0.95, 0.8, 0.5, 0.0)
    ]
    assert errors == sorted(errors)


def test_factor_delay_and_missing_days(fleet: Fleet) -> None:
    plain = base_forecast(fleet.ghi, fleet.clear_ghi, PERFECT)
    double = base_forecast(fleet.ghi, fleet.clear_ghi, BaseQuality(skill=1.0, smoothing_hours=0, factor=2.0))
    np.testing.assert_allclose(double, 2 * plain, rtol=1e-6)
    gaps = base_forecast(fleet.ghi, fleet.clear_ghi, BaseQuality(missing=0.4), seed=3)
    by_day = np.isnan(gaps).reshape(30, -1, 24)
    assert (by_day.all(axis=2) == by_day.any(axis=2)).all()
    assert 0.3 < by_day.mean() < 0.5


def test_forecasts_of_a_fleet_are_those_of_its_plants_alone(fleet: Fleet) -> None:
    forecasts, qualities = base_of(fleet, seed=4)
    assert forecasts.shape == fleet.power.shape
    assert {quality.irradiance for quality in qualities} == {True, False}
    part = simulate_fleet(2, 60, seed=1, climates=["maritime", "continental"], clear_power=True, first=11)
    alone, same = base_of(part, seed=4)
    np.testing.assert_array_equal(alone, forecasts[11:13])
    assert same == qualities[11:13]


def test_forecasts_of_a_fleet_need_its_clear_power() -> None:
    with pytest.raises(ValueError, match="clear_power=True"):
        base_of(simulate_fleet(1, 2))
