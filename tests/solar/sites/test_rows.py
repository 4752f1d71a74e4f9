"""Hours as rows: what is in them, and that nothing of the future is."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.rows import COLUMNS, RECENT, WIDTH, Hours

T = 24 * 5


def hours(**changes: object) -> Hours:
    power = np.random.default_rng(0).random((2, T))
    base = np.random.default_rng(1).random((2, T + 10))
    made = Hours.from_arrays(np.array([450000, 450007]), power, np.array([40.0, -30.0]), np.array([10.0, 150.0]), base)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_rows_hold_the_last_hours_the_hour_of_the_day_and_what_is_known_of_the_future() -> None:
    own = hours()
    rows = own.query_rows(1, np.array([50, 60]), np.array([1, 6]))
    assert rows.shape == (2, WIDTH)
    assert rows[1, COLUMNS["lead"]] == 6
    assert rows[1, COLUMNS["hour"]] == (450007 + 65) % 24
    np.testing.assert_array_equal(rows[1, COLUMNS["recent"]], own.power[1, 59 : 59 - RECENT : -1])
    np.testing.assert_allclose(rows[1, COLUMNS["day"]], [own.power[1, 36:60].mean(), 1.0], rtol=1e-6)
    np.testing.assert_array_equal(rows[1, COLUMNS["base"]], own.base[1, 65:66])
    np.testing.assert_array_equal(rows[1, COLUMNS["clear_around"]], own.clear[1, [64, 66]])


def test_nothing_at_or_after_the_time_of_issue_is_read() -> None:
    own, issue, lead = hours(), np.full(6, 70), np.arange(1, 7)
    later = own.power.copy()
    later[:, 70:] = 9.0
    np.testing.assert_array_equal(own.query_rows(0, issue, lead), replace(own, power=later).query_rows(0, issue, lead))
    np.testing.assert_array_equal(own.support_rows(0, 46, 70), replace(own, power=later).support_rows(0, 46, 70))


def test_missing_power_is_zero_and_flagged() -> None:
    own = hours()
    own.power[0, [45, 47]] = np.nan
    row = own.query_rows(0, np.array([48]), np.array([1]))[0]
    np.testing.assert_array_equal(row[COLUMNS["recent_there"]], [0, 1, 0, 1, 1, 1])
    assert row[COLUMNS["recent"]][0] == 0
    assert row[COLUMNS["day"]][1] == pytest.approx(22 / 24)
    assert not own.query_rows(0, np.array([0]), np.array([1]))[0, COLUMNS["recent_there"]].any()


def test_a_place_that_is_not_known_leaves_zeros() -> None:
    row = hours().without_place().query_rows(0, np.array([36]), np.array([2]))[0]
    assert not row[COLUMNS["clear"]].any()
    assert not row[COLUMNS["sun"]].any()
    assert not row[COLUMNS["place"]].any()


def test_support_rows_have_ages_and_power_as_targets() -> None:
    own = hours()
    support = own.support(0, 24, 72)
    np.testing.assert_allclose(support.x[:, COLUMNS["age"]][[-1, 0], 0], [2.0, 1 / 24])
    np.testing.assert_array_equal(support.y[:, 0], own.power[0, 24:72][::-1])


def test_hours_of_a_plant_are_shares_with_the_sun_of_its_place() -> None:
    power = np.arange(96.0)
    plant = Plant("a", np.datetime64("2024-06-01T00:00"), 1800, power, np.zeros(96, np.uint8), capacity=50.0)
    own = Hours.of(plant, hours_ahead=5)
    np.testing.assert_allclose(own.power[0], (power.reshape(48, 2).mean(1) / 50.0), rtol=1e-6)
    assert not own.place[0]
    located = Hours.of(replace(plant, latitude=50.0, longitude=0.0), hours_ahead=5)
    assert located.place[0]
    assert located.clear.shape[1] >= 53
    assert located.clear[0, 12] > 0.7
    assert located.clear[0, 0] == 0
