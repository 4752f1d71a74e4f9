"""What a table says against itself: capacities, places, plants that are not told apart."""

import pandas as pd
import pytest

from metaprior.solar.sites import read_power
from metaprior.solar.sites.reading.reader import capacity_margin
from tests.solar.sites.tables import long_frame, sunny_power

POWER = sunny_power()


def messages(table, kind):
    return [finding.message for finding in table.findings.of(kind)]


def test_the_margin_of_an_estimated_capacity_shrinks_with_the_record():
    margins = [capacity_margin(days) for days in (0.2, 1, 3, 14, 60, 700)]
    assert margins == sorted(margins, reverse=True)
    assert margins[0] == margins[1] == pytest.approx(1.348, abs=1e-3)
    assert margins[-2:] == [1.0, 1.0]


def test_power_far_above_the_stated_capacity_is_told():
    told = messages(read_power(long_frame(capacity_kw=40.0)), "capacity exceeded")
    assert len(told) == 1
    assert "far above the stated capacity of 40" in told[0]
    assert not messages(read_power(long_frame(capacity_kw=90.0)), "capacity exceeded")


def test_a_new_plant_beside_others_has_a_place_and_no_power():
    sites = pd.DataFrame({"site": ["roof", "new"], "capacity_kw": [90, 20], "latitude": 48.0, "longitude": 9.0})
    table = read_power(long_frame(), sites=sites)
    assert len(table["new"]) == 0
    assert table["new"].place == (48.0, 9.0)


def test_a_place_that_contradicts_the_clock_by_hours_is_not_used():
    table = read_power(long_frame(latitude=48.0, longitude=100.0))
    assert table["roof"].place is None
    assert "so the place is not used" in messages(table, "noon")[0]


def test_several_plants_in_one_are_refused():
    both = pd.concat([long_frame(), long_frame(POWER / 2)]).drop(columns="site").assign(owner="me")
    with pytest.raises(ValueError, match=r"stamps of one plant must differ, got .* rows .*tells plants apart"):
        read_power(both)
    german = pd.concat([long_frame(), long_frame(POWER / 2, site="barn")]).rename(columns={"site": "Anlage"})
    assert len(read_power(german)) == 2
