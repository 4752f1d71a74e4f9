"""The seven real plants of the data folder, with their real defects."""

import numpy as np
import pytest

from metaprior.solar.sites import count_doubts, read_power
from tests.conftest import folder_with

SHARE = {"zone": "UTC", "unit": "share"}
HONG_KONG = {"zone": "+08:00", "unit": "W", "latitude": 22.34, "longitude": 114.26}
CHINA = {"zone": "+08:00", "unit": "MW"}
FACTS = {f"gefcom_{number}": SHARE for number in (1, 2, 3)}
FACTS |= {"hk_sq19": HONG_KONG, "hk_sq8": HONG_KONG}
FACTS |= {"cn_1": {**CHINA, "capacity": 50}, "cn_2": {**CHINA, "capacity": 130}}


@pytest.fixture(scope="module")
def table():
    path = "pv_sites/pv_power.csv.gz"
    return read_power(folder_with(path) / path, sites=FACTS)


def test_clean_plants_are_left_alone_and_dirty_ones_are_masked_a_little(table):
    share = {plant.name: (plant.doubt > 0).mean() for plant in table}
    assert all(share[f"gefcom_{number}"] < 0.015 for number in (1, 2, 3))
    assert all(share[name] < 0.015 for name in share)


def test_two_impossible_negative_values_of_a_roof(table):
    assert count_doubts(table["hk_sq19"])["negative"] == 2
    assert np.nanmin(table["hk_sq19"].usable) >= 0


def test_copies_of_the_day_before_and_gaps_are_told(table):
    assert count_doubts(table["gefcom_2"])["copied"] > 150
    assert table.findings.of("gap", "hk_sq8")[0].message.startswith("875 of 23,837 intervals have no power")


def test_stamps_of_ends_are_recognised_by_midnights_and_by_the_sun(table):
    assert table["gefcom_1"].start == np.datetime64("2012-04-01T00:00")
    assert table["hk_sq19"].start == np.datetime64("2021-03-09T15:00")
    assert "noon would be" in table.findings.of("stamps", "hk_sq19")[0].message
