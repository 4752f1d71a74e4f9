"""What a table says against itself: capacities, units, places, zones, plants that are not told apart."""

import re

import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites import read_power
from metaprior.solar.sites.reading.reader import capacity_margin
from tests.solar.sites.tables import long_frame, stamps, sunny_power, text_frame

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


def test_a_stated_unit_that_the_header_contradicts_is_told_first():
    table = read_power(long_frame(), unit="MW")
    assert table.findings.lines()[0] == (
        "roof: power is in MW as stated, and the name of its column says kW: one of the two is wrong"
    )
    assert table["roof"].unit == "MW"
    assert not messages(read_power(long_frame(), unit="kw"), "unit contradicted")


@pytest.mark.parametrize(("unit", "size"), [("W", "small"), ("kW", None), ("MW", None), ("GW", "large")])
def test_capacities_that_no_plant_has_are_told(unit, size):
    frame = long_frame(power=POWER * (1e3 if unit == "GW" else 1)).rename(columns={"power_kw": "power"})
    told = messages(read_power(frame, unit=unit.replace("G", "M")), "capacity implausible")
    assert len(told) == (size is not None)
    assert not told or f"too {size} for a plant: the unit is probably wrong" in told[0]


def test_a_capacity_of_another_order_leaves_the_unit_open():
    frame = long_frame(1000 * POWER, capacity=90.0).rename(columns={"power_kw": "power"})
    assert "Power in W and a capacity in kW would fit as well" in messages(read_power(frame), "capacity")[0]
    assert "as well" not in messages(read_power(frame, unit="W"), "capacity")[0]


def clock_table(zone, noon):
    frame = text_frame(sunny_power(noon=noon), zone_text="")
    return read_power(frame, zone=zone)


def test_a_zone_whose_noon_is_far_from_twelve_is_told_without_a_place():
    assert "the sun is highest at 0" in messages(clock_table("Asia/Hong_Kong", 4.4), "zone contradicted")[0]
    assert "the zone is wrong" in messages(clock_table("+08:00", 18.0), "zone contradicted")[0]
    assert not messages(clock_table("UTC", 4.4), "zone contradicted")  # a plant in the east


@pytest.mark.parametrize(("zone", "place"), [("America/New_York", "west"), ("Asia/Hong_Kong", "east")])
def test_a_stated_zone_says_where_the_plant_would_be(zone, place):
    (told,) = messages(clock_table(zone, 12.5), "zone implied")
    assert told.startswith("the sun is highest at 12:")
    assert place in told
    placed = read_power(text_frame(zone_text="", latitude=48.0, longitude=9.0), zone="UTC")
    assert not messages(placed, "zone implied")


def test_hours_may_be_stamped_at_their_ends_where_a_zone_puts_a_plant():
    frame = text_frame(sunny_power(step=3600), step=3600, zone_text="")
    (told,) = messages(read_power(frame, zone="+08:00"), "zone implied")
    longitude, other = map(int, re.findall(r"(\d+) east", told))
    assert other == pytest.approx(longitude + 15, abs=1)
    assert "if stamps are ends of intervals" in told
    (told,) = messages(read_power(frame, zone="+08:00", stamps="begin"), "zone implied")
    assert "ends" not in told


def test_an_hour_that_occurs_twice_without_a_zone_is_a_clock_set_back():
    moments = stamps(30 * 96, start=np.datetime64("2025-10-10")).tz_localize("UTC").tz_convert("Europe/Berlin")
    frame = text_frame(start=np.datetime64("2025-10-10")).assign(time=moments.strftime("%d.%m.%Y %H:%M"))
    (told,) = messages(read_power(frame), "clock set back")
    assert told.startswith("the hour of 2025-10-26T02:00:00 occurs twice")
    assert told.endswith("Try zone=")
    assert not messages(read_power(frame, zone="Europe/Berlin"), "clock set back")
    noon = frame.iloc[[40, *range(len(frame))]]  # a row that occurs twice is no clock
    assert len(messages(read_power(noon), "clock set back")) == 0


def test_a_single_row_of_facts_is_about_the_single_plant_that_has_no_name():
    facts = pd.DataFrame({"site": ["hill"], "capacity_kw": [90.0]})
    table = read_power(long_frame().drop(columns="site"), sites=facts)
    assert [(plant.name, plant.capacity) for plant in table] == [("hill", 90.0)]
    assert messages(table, "facts matched") == [
        "the table does not name its plant, which is taken for 'hill' of sites="
    ]


def test_facts_about_no_plant_of_the_table_are_told_first():
    table = read_power(long_frame(), sites={"hill": {"capacity": 90.0}})
    assert len(table["hill"]) == 0
    assert table.findings.lines()[0].startswith("no row of sites= is about a plant of the table: it has 'roof', and")
    both = read_power(long_frame(), sites={"hill": {"capacity": 90.0}, "roof": {"capacity": 90.0}})
    assert not messages(both, "facts unmatched")


def test_findings_tell_times_as_the_table_has_them():
    power = POWER.copy()
    power[10 * 96 + 44 : 10 * 96 + 52] = 0.0
    for zone, kind, first in (
        ("Europe/Zurich", "begin", "2025-05-11T11:00:00"),
        ("Europe/Zurich", "end", "2025-05-11T11:00:00"),
        (None, "begin", "2025-05-11T11:00:00"),
    ):
        table = read_power(text_frame(power, zone_text=""), zone=zone, stamps=kind)
        assert f"with zero power by day, first on {first}; masked" in messages(table, "outage")[0]
