from statistics import NormalDist

import numpy as np
import pytest

from metaprior.solar.sites.baselines import (
    BASELINES,
    BaselineForecast,
    BoostedTrees,
    forecast,
    history_at,
    left_out_days,
    record_of,
    targets_at,
)
from metaprior.solar.sites.baselines.points import POINTS, TYPICAL_SHARE, blend, blend_weight, climatology
from metaprior.solar.sites.sun_path import SunPath
from metaprior.solar.sites.sun_position import Floats, Times, sun_of_intervals
from tests.solar.sites.clear_plants import cloudy_plants

DAY = 24


def place(latitude: float, offset: float) -> SunPath:
    return SunPath(*(np.asarray(value) for value in (latitude, 0.0, offset, 0.0, 0.0, 0.0)))


@pytest.fixture(scope="module")
def cloudy() -> tuple[Floats, Times]:
    power, times = cloudy_plants(1, np.array([42.0]), np.array([0.5]), days=40, start="2022-04-01")
    return power[0], times[0]


def clear_days(count: int, step: int = 3600) -> tuple[Floats, Times]:
    times = np.datetime64("2022-06-10", "s") + np.arange(count * 86400 // step) * np.timedelta64(step, "s")
    return 0.8e-3 * sun_of_intervals(times, step, 40.0, 0.0).clear_sky, times


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("days", [0, 1, 4])
@pytest.mark.parametrize("known", [False, True])
def test_nothing_at_or_after_the_issue_or_before_the_support_is_read(
    cloudy: tuple[Floats, Times], name: str, days: int, known: bool
) -> None:
    power, times = cloudy
    base = np.roll(power, 1)
    issue = 20 * DAY + np.array([5, 9, 13])
    begin = (20 - days) * DAY
    sun = place(42.0, 0.5) if known else None
    before = forecast(name, power, times, issue[2], begin, days, sun=sun, base=base)
    changed = power.copy()
    changed[issue[2] :] = 0.77
    changed[: begin - DAY] = 0.33
    after = forecast(name, changed, times, issue[2], begin, days, sun=sun, base=base)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.sd, after.sd)
    together = forecast(name, power, times, issue, begin, days, sun=sun, base=base)
    np.testing.assert_allclose(together.mean[2], before.mean[0])
    assert np.isfinite(together.mean).all()
    assert (together.sd > 0).all()


@pytest.mark.parametrize("step", [3600, 900])
@pytest.mark.parametrize("known", [False, True])
def test_smart_persistence_is_right_if_the_sky_stays_as_it_is(step: int, known: bool) -> None:
    power, times = clear_days(4, step)
    per_day = 86400 // step
    power[3 * per_day :] *= 0.4
    issue = 3 * per_day + np.arange(per_day * 10 // 24, per_day * 14 // 24)
    sun = place(40.0, 0.0) if known else None
    found = forecast("smart persistence", power, times, issue, 0, 3, leads=4, sun=sun)
    expected = targets_at(record_of(power, times), issue, 4)
    np.testing.assert_allclose(found.mean, expected, atol=0.01)


def test_points_against_one_forecast_at_a_time(cloudy: tuple[Floats, Times]) -> None:
    power, times = cloudy
    power = np.where(np.arange(len(power)) % 37 == 0, np.nan, power)
    record = record_of(power, times)
    issue, begin, days, leads = 12 * DAY + np.arange(DAY), 7 * DAY + 5, 4, 6
    history = history_at(record, issue, begin, days, leads)
    mean, last = POINTS["climatology"](history), POINTS["persistence"](history)
    for n, i in enumerate(issue):
        for lead in range(leads):
            same = [j for j in range(begin, begin + days * DAY) if j % DAY == (i + lead) % DAY]
            assert mean[n, lead] == pytest.approx(np.nanmean(power[same]))
        known = [j for j in range(i - DAY, i) if np.isfinite(power[j])]
        assert (last[n] == power[known[-1]]).all()


def test_the_blend_lies_between_its_parts_and_trusts_the_present_first(cloudy: tuple[Floats, Times]) -> None:
    power, times = cloudy
    history = history_at(record_of(power, times), 20 * DAY + np.arange(DAY), 13 * DAY, 7, 6)
    mixed, parts = blend(history), np.stack([POINTS["smart persistence"](history), climatology(history)])
    assert (mixed >= parts.min(0) - 1e-12).all()
    assert (mixed <= parts.max(0) + 1e-12).all()
    weight = blend_weight(np.arange(1.0, 25.0), 7)
    assert (np.diff(weight) < 0).all()
    assert 0.75 < weight[0] < 0.95
    assert blend_weight(np.array([1.0]), 0)[0] < 1.0


def test_without_days_the_place_tells_what_is_typical() -> None:
    power, times = clear_days(3)
    known = record_of(power, times, sun=place(40.0, 0.0))
    issue = np.array([2 * DAY + 9])
    history = history_at(known, issue, 2 * DAY, 0, 6)
    np.testing.assert_allclose(climatology(history), TYPICAL_SHARE * power[None, issue[0] : issue[0] + 6] / 0.8)
    unknown = history_at(record_of(power, times), issue, 2 * DAY, 0, 6)
    for name in ("smart persistence", "climatology", "blend"):
        np.testing.assert_allclose(POINTS[name](unknown), POINTS["persistence"](unknown))


def test_a_base_forecast_is_scaled_by_the_least_squares_factor(cloudy: tuple[Floats, Times]) -> None:
    power, times = cloudy
    issue = np.array([10 * DAY + 8])
    found = forecast("scaled base", 0.6 * power, times, issue, 5 * DAY, 5, base=power)
    np.testing.assert_allclose(found.mean[0], 0.6 * power[issue[0] : issue[0] + 6])
    unscaled = forecast("scaled base", 0.6 * power, times, issue, 10 * DAY, 0, base=power)
    np.testing.assert_allclose(unscaled.mean[0], power[issue[0] : issue[0] + 6])
    with pytest.raises(ValueError, match="a base forecast must be given"):
        forecast("scaled base", power, times, issue, 5 * DAY, 5)


def test_a_day_that_is_left_out_is_not_read(cloudy: tuple[Floats, Times]) -> None:
    power, times = cloudy
    rehearsal = left_out_days(record_of(power, times), 3 * DAY + 7, 5, 6)
    assert rehearsal.history.days.shape == (5 * DAY, 5, DAY)
    for n in (0, 20, 3 * DAY + 2):
        touched = {(n + lead) // DAY for lead in range(6)}
        for day in range(5):
            assert np.isnan(rehearsal.history.days[n, day]).all() == (day in touched)
    assert np.isnan(rehearsal.targets[-1, 1:]).all()
    np.testing.assert_array_equal(rehearsal.targets[:, 0], power[3 * DAY + 7 : 8 * DAY + 7])
    assert np.isnan(rehearsal.history.recent[0]).all()


@pytest.mark.parametrize("name", ["smart persistence", "climatology", "blend"])
def test_intervals_hold_on_simulated_plants(name: str) -> None:
    latitude, offset = np.linspace(-50, 55, 12), np.linspace(-11, 11, 12)
    power, times = cloudy_plants(9, latitude, offset, days=24)
    covered = []
    for shares, stamps in zip(power, times, strict=True):
        issue = 14 * DAY + np.arange(9 * DAY)
        found = forecast(name, shares, stamps, issue, 7 * DAY, 7)
        target = targets_at(record_of(shares, stamps), issue, 6)
        low, high = np.moveaxis(found.quantile([0.05, 0.95]), -1, 0)
        covered.append(((target >= low) & (target <= high))[target > 0.02].mean())
    assert 0.82 < np.mean(covered) < 0.97


def test_quantiles_are_normal_and_stay_within_the_limits() -> None:
    found = BaselineForecast(np.array([[0.5, 0.1]]), np.array([[0.1, 0.4]]), limit=1.0)
    np.testing.assert_allclose(found.quantile([0.5, 0.9])[0, 0], [0.5, 0.5 + 0.1 * NormalDist().inv_cdf(0.9)])
    assert found.quantile([0.01])[0, 1, 0] == 0.0
    assert found.quantile([0.999])[0, 1, 0] == 1.0


def test_trees_learn_what_the_blend_does_wrong() -> None:
    power, times = clear_days(80)
    rng = np.random.default_rng(0)
    power *= np.repeat(rng.uniform(0.3, 1.0, 80), DAY)
    power *= 1.0 - 0.6 * ((np.arange(80 * DAY) % DAY == 15) & np.repeat(np.arange(80) % 2 == 0, DAY))
    record = record_of(power, times)
    issue = np.arange(8 * DAY, 60 * DAY)
    trees = BoostedTrees(days=60).fit(history_at(record, issue, issue - 7 * DAY, 7, 6), targets_at(record, issue, 6))
    later = np.arange(60 * DAY, 79 * DAY)
    history, target = history_at(record, later, later - 7 * DAY, 7, 6), targets_at(record, later, 6)
    assert np.mean((trees(history) - target) ** 2) < 0.95 * np.mean((blend(history) - target) ** 2)
    few = forecast("boosted trees", power, times, [9 * DAY + 9], 8 * DAY, 1)
    np.testing.assert_array_equal(few.mean, forecast("blend", power, times, [9 * DAY + 9], 8 * DAY, 1).mean)


def test_invalid_arguments_raise() -> None:
    power, times = clear_days(3)
    with pytest.raises(ValueError, match="name must be one of persistence, smart persistence"):
        forecast("magic", power, times, [50], 0, 2)
    with pytest.raises(ValueError, match="2 days that end up to 8 intervals after the issue"):
        forecast("blend", power, times, [40, 60], 0, 2)
    with pytest.raises(ValueError, match="support must begin at 0 or later"):
        forecast("blend", power, times, [40], -8, 2)
