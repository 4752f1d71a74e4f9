"""Each defect is found where it is, told, and nothing else is masked."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.sites import DEFECTS, DOUBTS, Plant, check, count_doubts, read_power
from metaprior.solar.sites.checks.record import Record
from tests.solar.sites.tables import START, long_frame, sunny_power

DAY = 96


def plant_of(power, step=900, **known):
    power = np.asarray(power, float)
    return Plant("roof", START, step, power, np.zeros(len(power), np.uint8), **{"capacity": 90.0, **known})


def cells(day, first_hour, last_hour, per_hour=4):
    """Return the intervals of a day from one hour to another."""
    return np.arange(round((24 * day + first_hour) * per_hour), round((24 * day + last_hour) * per_hour))


def damaged(kind, power):
    """Return power with a defect, and where it is."""
    power = power.copy()
    if kind == "negative":
        where = np.array([1000, 1400, 1401])
        power[where] = [-30, -500, -3]
    elif kind == "spike":
        where = np.array([700, 1010])
        power[where] = [1e5, 150]
    elif kind == "night":
        where = np.array([cells(12, 1, 2)[0], cells(20, 23, 24)[1]])
        power[where] = [20, 55]
    elif kind == "stuck":
        where = cells(10, 8, 10.5)
        power[where] = 22.1234
    elif kind == "copied":
        where = cells(15, 9, 15)
        power[where] = power[where - DAY]
    elif kind == "outage":
        where = cells(9, 11, 14)
        power[where] = 0
    elif kind == "dead day":
        where = cells(17, 0, 24)
        power[where] = 0
    elif kind == "curtailment":
        where = cells(11, 9.5, 14.5)
        power[where] = 20 + 0.01 * np.sin(np.arange(len(where)))
    else:
        raise AssertionError(kind)
    return power, where


SUDDEN = ("negative", "spike", "night", "stuck", "copied", "outage", "dead day", "curtailment")


@pytest.mark.parametrize("kind", SUDDEN)
@pytest.mark.parametrize("capacity", [90.0, None])
def test_a_defect_is_found_where_it_is_and_nowhere_else(kind, capacity):
    power, where = damaged(kind, sunny_power())
    found = np.flatnonzero(check(plant_of(power, capacity=capacity)).doubt == 1 + DOUBTS.index(kind))
    assert set(found) <= set(where)
    by_day = where[sunny_power()[where] > 5] if kind not in ("night", "negative", "dead day") else where
    assert set(by_day) <= set(found)
    assert (check(plant_of(power, capacity=capacity)).doubt > 0).sum() <= len(where)


@pytest.mark.parametrize("kind", SUDDEN)
def test_a_user_is_told_about_a_defect_with_its_rows(kind):
    power, where = damaged(kind, sunny_power())
    table = read_power(long_frame(power, capacity_kw=90))
    (finding,) = table.findings.of(kind)
    (defect,) = [defect for defect in DEFECTS if defect.name == kind]
    assert f"h) {defect.told}, first on 2025-05-" in finding.message
    assert finding.message.endswith("; masked")
    assert finding.count == len(finding.rows) <= len(where)
    assert set(finding.rows) <= set(where)
    np.testing.assert_array_equal(table["roof"].power, power)  # masked, not changed


@pytest.mark.parametrize("step", [60, 300, 900, 3600])
@pytest.mark.parametrize("seed", [1, 2])
def test_clean_power_is_left_alone(step, seed):
    days = 20 if step == 60 else 60
    plant = plant_of(sunny_power(days=days, step=step, seed=seed), step)
    assert (check(plant).doubt > 0).mean() < 0.001


@pytest.mark.parametrize("days", [1, 2, 3, 7])
def test_a_few_days_are_left_alone(days):
    assert not check(plant_of(sunny_power(days=days))).doubt.any()


def test_power_that_is_always_zero_or_missing_is_no_error():
    assert not check(plant_of(np.full(500, np.nan))).doubt.any()
    assert len(check(plant_of(np.zeros(500)))) == 500
    assert len(check(plant_of(np.zeros(0)))) == 0


def winter_power(days=365, seed=0):
    """Return a year whose days at the ends have a third of the power, and a snowed-on day in winter."""
    power = sunny_power(days=days, seed=seed).reshape(days, DAY)
    season = 0.65 - 0.35 * np.cos(2 * np.pi * np.arange(days) / 365)
    return power * season[:, None]


@pytest.mark.parametrize(("day", "reason"), [(20, "snow"), (180, None)])
def test_a_day_with_hardly_any_power_is_snow_in_winter_and_weather_in_summer(day, reason):
    power = winter_power()
    power[day] *= 0.03
    doubt = check(plant_of(power.reshape(-1))).doubt.reshape(365, DAY)
    assert (doubt[day] == (0 if reason is None else 1 + DOUBTS.index(reason))).all()
    assert not np.delete(doubt, day, axis=0).any()


def test_months_without_power_are_dead_days():
    power = sunny_power(days=120).reshape(120, DAY)
    power[30:100] = 0
    doubt = check(plant_of(power.reshape(-1))).doubt.reshape(120, DAY)
    assert (doubt[30:100] == 1 + DOUBTS.index("dead day")).all()
    assert not doubt[:30].any()
    assert not doubt[100:].any()


@pytest.mark.parametrize("step", [900, 3600])
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_set_is_found_and_the_days_before_are_masked(step, hours):
    power = np.concatenate([sunny_power(days=40, step=step), sunny_power(40, step, seed=1, noon=12.0 + hours)])
    doubt = check(plant_of(power, step)).doubt.reshape(80, -1) == 1 + DOUBTS.index("clock")
    assert doubt[:37].all()
    assert not doubt[43:].any()
    table = read_power(long_frame(power, step=step, capacity_kw=90))
    assert "the profile of the day moves, as with daylight-saving time. Try zone=" in str(table.findings)


def test_a_clock_that_was_set_and_set_back_masks_the_days_between():
    parts = [sunny_power(days=30, seed=seed, noon=noon) for seed, noon in ((0, 12.0), (1, 13.0), (2, 12.0))]
    doubt = check(plant_of(np.concatenate(parts))).doubt.reshape(90, -1) == 1 + DOUBTS.index("clock")
    assert not doubt[:27].any()
    assert doubt[33:57].all()
    assert not doubt[63:].any()


def test_clipping_is_told_and_not_masked():
    power = np.minimum(sunny_power(days=60, peak=120), 60.0)
    table = read_power(long_frame(power, capacity_kw=90))
    (finding,) = table.findings.of("clipping")
    assert finding.message.startswith("power is clipped at 60 kW in ")
    assert not count_doubts(table["roof"])


def test_a_coarse_meter_is_not_stuck():
    power = np.round(sunny_power(days=60) / 4) * 4
    assert not count_doubts(check(plant_of(power)))


def test_consumption_at_night_is_told_and_not_masked():
    power = sunny_power()
    power[power == 0] = -0.3
    table = read_power(long_frame(power, capacity_kw=90))
    assert not table["roof"].doubt.any()
    assert "intervals are negative by less than 2% of the capacity" in table.findings.of("standby")[0].message


def test_a_wrong_capacity_masks_nothing():
    for capacity in (30.0, 900.0):
        assert not check(plant_of(sunny_power(), capacity=capacity)).doubt.any()


def test_gaps_are_told_and_stay_missing():
    power = sunny_power()
    power[1000:1100] = np.nan
    table = read_power(long_frame(power))
    assert not table["roof"].doubt.any()
    message = table.findings.of("gap")[0].message
    assert message.startswith("100 of 2,880 intervals have no power")
    assert message.endswith("the longest gap has 25 h")


def test_earlier_reasons_take_precedence_and_stay():
    power = sunny_power()
    power[cells(9, 11, 14)] = 0
    before = plant_of(power)
    before = replace(before, doubt=before.doubt.copy())
    before.doubt[cells(9, 11, 12)] = 1
    counts = count_doubts(check(before))
    assert counts == {"conflict": 4, "outage": 8}


def test_days_begin_in_the_dark_in_every_zone():
    for noon in (0.0, 3.0, 12.0, 22.0):
        hours = (np.arange(24 * 20) + 0.5 - noon) % 24
        record = Record(plant_of(np.clip(np.cos(2 * np.pi * hours / 24), 0, None) * 80, 3600))
        brightest = np.nanargmax(np.nan_to_num(record.power[1:-1]), axis=1)
        assert (np.abs(brightest - 11.5) <= 1).all()


def test_every_defect_has_a_name_a_meaning_and_words_of_its_own():
    assert len(set(DOUBTS)) == len(DEFECTS)
    assert len({defect.color for defect in DEFECTS}) == len(DEFECTS)
    assert all(defect.meaning and defect.told for defect in DEFECTS)


def test_nights_of_standby_are_not_outages_because_the_meter_was_stuck_one_night() -> None:
    """Two nights of a stuck meter made hours of the night look bright where all other nights were below zero."""
    day = np.maximum(np.sin(np.linspace(-np.pi / 2, 1.5 * np.pi, 96)), 0.0)
    power = np.tile(np.where(day > 0, day, -0.01), 40) * 100.0
    for night in (10, 11, 12):
        power[96 * night : 96 * night + 8] = 90.0 + night
    plant = Plant("a", np.datetime64("2024-06-01"), 900, power, np.zeros(len(power), np.uint8), capacity=100.0)
    doubt = check(plant).doubt
    outage = doubt == 1 + DOUBTS.index("outage")
    assert not outage[power < 0].any()
