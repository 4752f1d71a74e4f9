"""Which hours a backtest forecasts, and what methods may know."""

from dataclasses import replace

import numpy as np
import pytest

from metaprior.solar.sites.backtest.queries import SEASONS, WEEK, Case, case_of, query_weeks
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.sun_position import sun_of_intervals


@pytest.fixture(scope="module")
def plant() -> Plant:
    return simulate_fleet(1, 120, seed=3, start="2024-01-01", climates=["maritime"]).plants[0]


def case(plant: Plant, **other: object) -> Case:
    found = case_of(plant, **({"days": (0, 1, 7), "weeks": 5, "leads": 6, "place": "given"} | other))  # type: ignore[arg-type]
    assert isinstance(found, Case), found
    return found


@pytest.mark.parametrize(
    ("hours", "first", "weeks", "count", "length"),
    [(2000, 720, 26, 7, 168), (2000, 720, 3, 3, 168), (888, 720, 26, 1, 168), (120, 72, 26, 1, 48)],
)
def test_weeks_lie_in_the_record_and_do_not_overlap(
    hours: int, first: int, weeks: int, count: int, length: int
) -> None:
    begins, found = query_weeks(hours, first, weeks)
    assert (len(begins), found) == (count, length)
    assert begins[0] == first
    assert (np.diff(begins) >= length).all()
    assert begins[-1] + length <= hours
    assert count == 1 or begins[-1] + length == hours


def test_queries_are_all_forecasts_of_daylight_hours_with_power(plant: Plant) -> None:
    broken = replace(plant, power=np.where(np.arange(len(plant)) % 50 == 7, np.nan, plant.power))
    found = case(broken)
    queries, share = found.queries, broken.share().hourly()
    assert plant.latitude is not None
    assert plant.longitude is not None
    sun = sun_of_intervals(share.times, 3600, plant.latitude, plant.longitude / 15)
    wanted = {
        (begin, begin + after, lead)
        for begin in query_weeks(len(plant), 168, 5)[0].tolist()
        for after in range(WEEK)
        for lead in range(1, 7)
        if begin + after + lead - 1 < len(plant)
        and np.isfinite(share.power[begin + after + lead - 1])
        and np.ravel(sun.elevation)[begin + after + lead - 1] > 0
    }
    assert set(zip(queries.origin.tolist(), queries.issue.tolist(), queries.lead.tolist(), strict=True)) == wanted
    assert len(queries) == len(wanted)
    np.testing.assert_array_equal(queries.power, share.power[queries.issue + queries.lead - 1])
    assert found.weeks == 5
    month = share.times[queries.issue + queries.lead - 1].astype("datetime64[M]").astype(int) % 12
    names = np.array(SEASONS)[queries.season]
    assert set(names[month == 0]) == {"summer" if plant.latitude < 0 else "winter"}
    assert abs(np.average(queries.hour + 0.5) - 12) < 1


def test_short_records_keep_the_numbers_of_days_that_fit(plant: Plant) -> None:
    five = plant.between(end=plant.start + np.timedelta64(5, "D"))
    found = case(five, days=(0, 1, 3, 7, 14, 30), weeks=26)
    assert found.days == (0, 1, 3)
    assert found.queries.origins.tolist() == [72]
    assert found.weeks == pytest.approx(2 / 7)
    one = plant.between(end=plant.start + np.timedelta64(30, "h"))
    assert "30 hours of power are too few" in str(case_of(one, (0,), 26, 6, "given"))
    assert "too few for 7 days" in str(case_of(five, (7,), 26, 6, "given"))
    dark = replace(plant, power=np.full(len(plant), np.nan))
    assert "no usable power" in str(case_of(dark, (0,), 26, 6, "given"))


def test_the_place_is_what_may_be_known(plant: Plant) -> None:
    nowhere = replace(plant, latitude=None, longitude=None)
    assert case(plant).plant.latitude == plant.latitude
    assert case(plant).plant.longitude == pytest.approx(plant.longitude)
    for one, place in ((plant, "unknown"), (nowhere, "given"), (nowhere, "unknown")):
        hidden = case(one, place=place)
        assert hidden.sun is None
        assert (hidden.plant.latitude, hidden.plant.longitude, hidden.plant.zone_known) == (None, None, False)
    estimated = case(nowhere, place="known").plant
    assert estimated.latitude == pytest.approx(plant.latitude, abs=6)
    assert estimated.longitude == pytest.approx(plant.longitude, abs=8)
    assert len(case(plant, place="unknown").queries) == len(case(plant).queries)
