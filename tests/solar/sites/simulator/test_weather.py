"""Clouds, temperature, rain and snow."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.sites.simulator.climates import CLIMATES, Climate, climates_at, draw_climate
from metaprior.solar.sites.simulator.weather import Weather, clock_of, weather_of

STEP = 900
PLANTS = 40


def climate(**changes: float) -> Climate:
    drawn, _ = draw_climate("continental", np.random.default_rng(0))
    calm = {"fog": 0.0, "season": 0.0, "convection": 0.0, "fronts": 0.8, "front_hours": 48.0}
    return replace(drawn, **(calm | {"regime_hours": 2.5, "regime_spread": 0.6} | changes))


def weather(*climates: Climate, latitude: float = 45.0, start: str = "2023-06-01", days: int = 40) -> Weather:
    starts = np.full(len(climates), np.datetime64(start, "s"))
    place = np.full(len(climates), latitude)
    clock = clock_of(starts, np.zeros(len(climates)), place, STEP, days * 96)
    return weather_of(list(climates), place, clock, seed=0, plants=range(len(climates)))


def index_by_hour(one: Climate, **where: object) -> np.ndarray:
    values = weather(*[one] * PLANTS, **where).clear_sky_index  # type: ignore[arg-type]
    return np.asarray(values.reshape(PLANTS, -1, 24, 4).mean(axis=(0, 1, 3)))


def test_solar_time_follows_place_and_season() -> None:
    starts = np.array(["2023-06-21T00:00", "2023-06-21T00:00"], "datetime64[s]")
    clock = clock_of(starts, np.array([90.0, -90.0]), np.array([50.0, -50.0]), 3600, 48)
    np.testing.assert_allclose(clock.hour[:, 0], [6.5, 18.5])
    assert clock.day[0, 17] == 0
    assert clock.day[0, 18] == 1
    assert clock.day[1, 6] == 1
    np.testing.assert_allclose(np.abs(clock.season[:, 0]) % 1, [0, 0.5], atol=0.01)


def test_a_cloudier_climate_is_darker() -> None:
    means = [weather(*[climate(cloudiness=level)] * PLANTS).clear_sky_index.mean() for level in (-2.0, -0.5, 0.5, 1.5)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.85
    assert means[-1] < 0.55


def test_fog_lies_in_the_morning_and_convection_in_the_afternoon() -> None:
    foggy = index_by_hour(climate(cloudiness=-2.0, fog=0.8, fog_season=0.0, burn_off=10.0, burn_off_spread=0.5))
    assert foggy[7] < 0.65
    assert foggy[14] > 0.9
    stormy = index_by_hour(climate(cloudiness=-1.5, convection=2.0, convection_hour=15.0))
    assert stormy[15] < stormy[9] - 0.1


def test_seasons_are_those_of_the_hemisphere() -> None:
    monsoon = climate(cloudiness=0.0, season=1.5, cloudy_season=0.0, sharpness=2.0)
    north, south = (index_by_hour(monsoon, latitude=latitude).mean() for latitude in (20.0, -20.0))
    assert north < south - 0.2


def test_slow_fronts_make_days_alike() -> None:
    def day_to_day(hours: float) -> float:
        index = weather(*[climate(front_hours=hours, fronts=1.2)] * PLANTS).clear_sky_index
        days = index.reshape(PLANTS, -1, 96)[:, :, 36:60].mean(axis=2)
        return float(np.corrcoef(days[:, :-1].ravel(), days[:, 1:].ravel())[0, 1])

    assert day_to_day(90) > day_to_day(8) + 0.2


def test_edges_of_clouds_brighten() -> None:
    assert weather(climate(enhancement=0.2, cloudiness=0.0, thin=0.0)).clear_sky_index.max() > 1.05


def test_it_snows_when_it_is_cold_and_rains_otherwise() -> None:
    wet = climate(cloudiness=1.5)
    summer = weather(*[wet] * 5)
    assert summer.rain.mean() > 0.2
    assert not summer.snow.any()
    winter = weather(*[replace(wet, warmth=-15.0)] * 5, start="2023-01-01", latitude=60.0)
    assert winter.snow.mean() > 0.2
    assert winter.temperature.mean() < -10


def test_every_climate_states_known_fields_within_order() -> None:
    for ranges in CLIMATES.values():
        assert all(low <= high for low, high in ranges.values())
        assert set(ranges) <= {"latitude", *Climate.__dataclass_fields__}


@pytest.mark.parametrize(
    ("latitude", "member"), [(0, "tropical"), (-35, "mediterranean"), (64, "subpolar"), (80, "anywhere")]
)
def test_latitudes_have_climates(latitude: float, member: str) -> None:
    assert member in climates_at(latitude)
