"""Fleets of simulated plants."""

import numpy as np
import pytest

from metaprior.solar.sites.simulator import CLIMATES, Fleet, plants_under, simulate_fleet

ARRAYS = ("power", "ghi", "clear_ghi", "temperature", "elevation")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return simulate_fleet(60, 10, seed=3, clear_power=True)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_plant_is_a_function_of_seed_and_number(fleet: Fleet, name: str) -> None:
    part = simulate_fleet(3, 10, seed=3, first=21)
    np.testing.assert_array_equal(getattr(part, name), getattr(fleet, name)[21:24])
    assert part.parameters == fleet.parameters[21:24]


@pytest.mark.parametrize("name", ARRAYS)
def test_a_longer_record_begins_with_the_shorter_one(fleet: Fleet, name: str) -> None:
    shorter = simulate_fleet(2, 4, seed=3)
    np.testing.assert_array_equal(getattr(shorter, name), getattr(fleet, name)[:2, :96])


def test_plants_produce_by_day_and_within_their_limit(fleet: Fleet) -> None:
    night = fleet.elevation < -18  # beyond the hour by which clocks can be wrong
    assert (fleet.power[night] <= 0).all()
    for row, truth in enumerate(fleet.parameters):
        limit = truth.export_limit * truth.kilowatts / truth.nameplate
        assert fleet.power[row].max() <= limit * (1 + 6 * truth.meter_noise) + truth.meter_resolution * 2 + 1e-6
    assert np.median(fleet.power.max(axis=1)) > 0.4
    assert np.isfinite(fleet.power).all()


def test_irradiance_is_mostly_below_that_of_a_clear_sky(fleet: Fleet) -> None:
    day = fleet.clear_ghi > 50
    share = fleet.ghi[day] / fleet.clear_ghi[day]
    assert share.min() > 0
    assert share.max() < 1.5
    assert np.median(share) < 1


def test_clear_power_bounds_power_but_for_cloud_edges(fleet: Fleet) -> None:
    day = fleet.clear_power > 0.05
    assert np.quantile(fleet.power[day] / fleet.clear_power[day], 0.9) < 1.2


def test_plants_are_in_kilowatts_and_know_their_place(fleet: Fleet) -> None:
    plant, truth = fleet.plants[7], fleet.parameters[7]
    assert plant.capacity == truth.nameplate
    np.testing.assert_allclose(plant.share().power, fleet.power[7], rtol=1e-6)
    assert (plant.latitude, plant.longitude) == (truth.latitude, truth.longitude)


@pytest.mark.parametrize("climate", CLIMATES)
def test_every_climate_can_be_had_alone(climate: str) -> None:
    fleet = simulate_fleet(2, 3, climates=[climate])
    assert {truth.climate.name for truth in fleet.parameters} == {climate}
    assert fleet.ghi.max() > 0


def test_finer_steps_average_to_hours() -> None:
    hourly, quarters = (simulate_fleet(2, 5, step=step, start="2024-06-01") for step in (3600, 900))
    np.testing.assert_allclose(quarters.ghi.reshape(2, -1, 4).mean(2), hourly.ghi, rtol=1e-4, atol=1e-3)
    assert hourly.start[0] == np.datetime64("2024-06-01T00:00:00")


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="step must be 60 to 3600 seconds and divide 3600, got 7000"):
        simulate_fleet(1, 1, step=7000)
    with pytest.raises(ValueError, match=r"climate must be one of arid, .* got 'martian'"):
        simulate_fleet(1, 1, climates=["martian"])


def test_plants_stand_under_measured_irradiance() -> None:
    times = np.arange("2021-06-01", "2021-06-06", np.timedelta64(900, "s"), dtype="datetime64[s]")
    clear = simulate_fleet(1, 5, start="2021-06-01", step=900)
    latitude, longitude = clear.parameters[0].latitude, 10.0
    sun = plants_under(np.zeros(len(times)), times, latitude, longitude, count=1).elevation[0]
    ghi = np.repeat(np.maximum(900 * np.sin(np.radians(sun)), 0), 4)
    ghi[40:44] = np.nan  # 10 to 11 o'clock of the first day
    fleet = plants_under(ghi, times, latitude, longitude, count=3, seed=1)
    assert fleet.power.shape == (3, 120)
    assert np.isnan(fleet.power[:, 10]).all() == (sun[10] > 6)
    day = np.isfinite(fleet.power[0]) & (sun > 20)
    np.testing.assert_allclose(fleet.ghi[0][day], ghi.reshape(-1, 4).mean(1)[day], rtol=1e-4)
    assert (fleet.power[:, day].max(axis=1) > 0.1).all()
    left_out = ~np.isnan(ghi) & (np.repeat(sun, 4) > 0)
    nights = plants_under(ghi[left_out], times[left_out], latitude, longitude, count=3, seed=1)
    np.testing.assert_allclose(nights.power[:, day], fleet.power[:, : nights.power.shape[1]][:, day], rtol=1e-5)


def test_irradiance_in_an_unknown_rhythm_raises() -> None:
    times = np.array(["2021-06-01T00:00", "2021-06-01T00:07", "2021-06-01T00:14"], "datetime64[s]")
    with pytest.raises(ValueError, match=r"step must be a multiple of the intervals of ghi \(420 s\)"):
        plants_under(np.zeros(3), times, 0, 0, count=1)
    with pytest.raises(ValueError, match="times must be ascending"):
        plants_under(np.zeros(3), times[::-1], 0, 0, count=1)
