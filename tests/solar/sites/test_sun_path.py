from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites import sun_path
from metaprior.solar.sites.clock import nearest_offset, suggest_offset, zone_name
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.sun_path import SunPath, estimate_sun_path, plant_sun_path
from metaprior.solar.sites.sun_position import Floats, Times, declination_and_equation_of_time, hours_of_day
from tests.conftest import folder_with
from tests.solar.sites.clear_plants import cloudy_plants


def places(seed: int, count: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    latitude = np.where(rng.random(count) < 0.8, rng.normal(38, 10, count), rng.normal(-28, 9, count))
    return latitude.clip(-58, 60), rng.uniform(-12, 12, count)


def wrapped(hours: Floats) -> Floats:
    return (hours + 12.0) % 24.0 - 12.0


def plant(power: Floats, times: Times, step: int = 3600, **known: float | bool) -> Plant:
    doubt = np.zeros(power.shape, np.uint8)
    return Plant("roof", times[0], step, power, doubt, unit="share", capacity=1.0, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("days", "step", "minutes", "degrees"),
    [(1, 3600, 20, 10), (7, 3600, 15, 7), (30, 3600, 12, 5), (7, 900, 10, 6), (365, 3600, 10, 3)],
)
def test_the_place_of_simulated_plants_lies_within_what_is_claimed(
    days: int, step: int, minutes: float, degrees: float
) -> None:
    count = 20 if days == 365 else 120
    latitude, offset = places(days, count)
    found = estimate_sun_path(*cloudy_plants(step, latitude, offset, days=days, step=step), step)
    off_noon, off_latitude = wrapped(found.solar_offset - offset), found.latitude - latitude
    assert 60.0 * np.median(np.abs(off_noon)) < minutes
    assert np.median(np.abs(off_latitude)) < degrees
    assert (np.abs(off_noon) < 1.645 * found.solar_offset_sd).mean() > 0.84
    assert (np.abs(off_latitude) < 1.645 * found.latitude_sd).mean() > 0.84


def test_the_likelihood_is_that_of_every_interval() -> None:
    power, times = cloudy_plants(3, np.array([40.0]), np.array([1.0]), days=2, start="2021-05-03")
    found = estimate_sun_path(power[0], times[0], 3600)
    lit, known, _ = sun_path._lit(power, times)
    noon_slots, probability = brute_force(lit[0], known[0], times[0], float(found.lit_days))
    latitude = probability.sum(0) @ sun_path.LATITUDES
    noon = probability.sum(1) @ noon_slots * sun_path.SLOT / 3600.0
    assert latitude == pytest.approx(float(found.latitude), abs=1e-3)
    assert wrapped(12.0 - noon - found.solar_offset) == pytest.approx(0.0, abs=1e-4)


def brute_force(lit: Floats, known: Floats, times: Times, days: float) -> tuple[Floats, Floats]:
    """Return noons in slots and the posterior (noons, latitudes), one interval at a time on the grids of the module."""
    declination, equation = declination_and_equation_of_time(times)
    nearest = np.abs(np.degrees(declination)[:, None] - sun_path.DECLINATIONS).argmin(1)
    declination = np.radians(sun_path.DECLINATIONS[nearest])
    clock = (hours_of_day(times) + equation) * 6.0
    low = np.floor(clock)
    between = [(i, low[i] + j, 1.0 - abs(clock[i] - low[i] - j)) for i in np.flatnonzero(known) for j in (0, 1)]
    noons = np.arange(4 * 6, 18 * 6)
    log = np.zeros((len(noons), sun_path.LATITUDES.size))
    phi = np.radians(sun_path.LATITUDES)[:, None]
    for row, noon in enumerate(noons / 6.0):
        sides = np.zeros((2, sun_path.LATITUDES.size, sun_path.STARTS.size))
        for i, slot, weight in between:
            begin = (slot / 6.0 - noon + 12.0) % 24.0 - 12.0
            omega = np.radians(15.0 * min(max(0.0, begin), begin + 1.0))
            sine = np.sin(phi) * np.sin(declination[i]) + np.cos(phi) * np.cos(declination[i]) * np.cos(omega)
            up = 1.0 / (1.0 + np.exp((sun_path.STARTS - np.degrees(np.arcsin(sine))) / sun_path.WIDTH))
            chance = sun_path.LIT_AT_NIGHT + (1.0 - sun_path.LIT_AT_NIGHT - sun_path.DARK_BY_DAY) * up
            sides[int(begin >= 0)] += weight * np.log(chance if lit[i] else 1.0 - chance)
        sides = sides / (1.0 + days / sun_path.SHARED_DAYS) + sun_path._start_log_prior(3600)
        log[row] = np.logaddexp.reduce(sides, axis=-1).sum(0) + sun_path._latitude_log_prior()
    probability = np.exp(log - log.max())
    return noons, probability / probability.sum()


def test_a_batch_is_its_plants_one_by_one_and_units_do_not_matter() -> None:
    latitude, offset = places(5, 40)
    power, times = cloudy_plants(5, latitude, offset, days=3)
    together = estimate_sun_path(power, times, 3600)
    for i in (0, 35):
        alone = estimate_sun_path(4321.0 * power[i], times[i], 3600)
        for name, value in vars(alone).items():
            np.testing.assert_allclose(getattr(together, name)[i], value, rtol=1e-4)


def test_one_minute_values_are_read_as_quarters_of_an_hour() -> None:
    power, times = cloudy_plants(8, np.array([35.0]), np.array([2.0]), days=2, step=900)
    fine = times[0, 0] + np.arange(power.size * 15) * np.timedelta64(60, "s")
    assert str(estimate_sun_path(power[0].repeat(15), fine, 60)) == str(estimate_sun_path(power[0], times[0], 900))


def test_at_the_equinox_the_latitude_is_called_undecided() -> None:
    power, times = cloudy_plants(2, np.array([40.0]), np.array([0.0]), days=2, start="2021-03-19")
    found = estimate_sun_path(power[0], times[0], 3600)
    assert found.latitude_sd > 15
    assert "the hemisphere is undecided" in str(found)
    power, times = cloudy_plants(2, np.array([40.0]), np.array([0.0]), days=7, start="2021-06-10")
    found = estimate_sun_path(power[0], times[0], 3600)
    assert found.latitude_sd < 8
    assert found.south < 0.01
    assert "solar noon at 1" in str(found)
    assert "undecided" not in str(found)


def test_night_alone_leaves_the_prior() -> None:
    times = np.datetime64("2021-06-10", "s") + np.arange(48) * np.timedelta64(3600, "s")
    for power in (np.zeros(48), np.full(48, np.nan)):
        found = estimate_sun_path(power, times, 3600)
        assert found.lit_days == 0
        assert found.solar_offset_sd > 6
        assert str(found) == "the power has no light: the sun's path is not known"


def test_what_is_known_of_the_place_is_not_estimated() -> None:
    power, times = cloudy_plants(4, np.array([-30.0]), np.array([10.0]), days=7)
    estimated = plant_sun_path(plant(power[0], times[0]))
    known = plant_sun_path(plant(power[0], times[0], latitude=-31.0, longitude=151.0))
    assert (known.latitude, known.latitude_sd, known.south) == (-31.0, 0.0, 1.0)
    assert (known.solar_offset, known.solar_offset_sd) == (151.0 / 15.0, 0.0)
    assert "(given)" in str(known)
    naive = plant_sun_path(plant(power[0], times[0], longitude=151.0, zone_known=False))
    assert naive.solar_offset == estimated.solar_offset


def test_the_zone_of_a_naive_clock_follows_from_the_longitude() -> None:
    local = 51.0 / 15.0 - 4.5  # solar time minus the clock of UTC+04:30 at 51 degrees east
    power, times = cloudy_plants(6, np.array([35.0]), np.array([local]), days=30, step=900)
    naive = plant(power[0], times[0], 900, zone_known=False)
    with_longitude = suggest_offset(replace(naive, longitude=51.0))
    assert with_longitude.hours in (4.0, 4.5, 5.0)
    assert zone_name(with_longitude.hours) in with_longitude.reason
    without = suggest_offset(naive)
    assert without.hours is None
    assert "a local clock" in without.reason
    power, times = cloudy_plants(6, np.array([35.0]), np.array([-8.0]), days=30, step=900)
    utc = suggest_offset(plant(power[0], times[0], 900, zone_known=False))
    assert utc.hours == 0.0
    assert "west" in utc.reason
    assert suggest_offset(plant(np.zeros(48), times[0, :48], 900, zone_known=False)).hours is None


def test_offsets_that_are_not_full_hours_need_evidence() -> None:
    assert nearest_offset(5.5, 0.05) == 5.5
    assert nearest_offset(5.6, 0.3) == 6.0
    assert nearest_offset(-12.0, 0.1) == 12.0
    assert zone_name(-3.5) == "UTC-03:30"


def test_hong_kong_is_found() -> None:
    folder = folder_with("pv_sites/pv_power.csv.gz")
    table = pd.read_csv(folder / "pv_sites" / "pv_power.csv.gz", parse_dates=["time"])
    for name in ("hk_sq8", "hk_sq19"):
        series = table[table["site"] == name].set_index("time")["power"].asfreq("h")
        begins = series.index.to_numpy().astype("datetime64[s]") - np.timedelta64(3600, "s")  # stamps are ends
        power = series.where(series >= 0).to_numpy()
        found = estimate_sun_path(power, begins, 3600)
        assert found.latitude == pytest.approx(22.34, abs=5)
        assert isinstance(found, SunPath)
        there = Plant(name, begins[0], 3600, power, np.zeros(len(power), np.uint8), longitude=114.26, zone_known=False)
        assert suggest_offset(there).hours == 8.0
