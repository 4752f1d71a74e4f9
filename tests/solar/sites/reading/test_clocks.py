"""Time zones, daylight-saving time, cadences, and begins or ends of intervals."""

import numpy as np
import pandas as pd
import pytest

from metaprior.solar.sites import read_power
from tests.solar.sites.tables import START, long_frame, stamps, sunny_power, text_frame

POWER = sunny_power()
NAMES = {1: "1 minute", 60: "1 hour"}


def messages(table, kind):
    return [finding.message for finding in table.findings.of(kind)]


def naive_frame(power, time):
    return pd.DataFrame({"site": "roof", "time": time, "power_kw": power})


@pytest.mark.parametrize(
    ("frame", "zone", "hours"),
    [
        (text_frame(zone_text="+00:00"), None, 0),
        (text_frame(zone_text="+10:00"), None, 10),
        (text_frame(zone_text="-0330"), None, -3.5),
        (text_frame(zone_text=" UTC"), None, 0),
        (text_frame(zone_text=""), "Australia/Brisbane", 10),
        (text_frame(zone_text=""), "+05:30", 5.5),
        (text_frame(zone_text=""), "UTC-3", -3),
        (long_frame().assign(time=stamps(len(POWER)).tz_localize("Asia/Tokyo")), None, 9),
        (text_frame(zone_text="").rename(columns={"time": "timestamp_utc"}), None, 0),
    ],
)
def test_stated_zones_become_utc(frame, zone, hours):
    table = read_power(frame, zone=zone)
    assert table["roof"].start == START - np.timedelta64(int(hours * 60), "m")
    assert table["roof"].zone_known
    assert table.findings.of("zone")


def test_naive_stamps_without_a_zone_are_told_with_what_the_sun_suggests():
    table = read_power(text_frame(zone_text=""))
    assert not table["roof"].zone_known
    assert table["roof"].start == START
    assert messages(table, "zone unknown")[0].endswith("Try zone=")
    assert messages(table, "zone suggested")[0].startswith("the sun says about the clock: solar noon at 1")


def test_the_sun_suggests_the_zone_where_the_longitude_is_known():
    table = read_power(text_frame(zone_text="", longitude=120.0, latitude=30.0))
    assert messages(table, "zone suggested")[0].endswith("Try zone='+08:00'")


def test_stamps_without_an_offset_among_others_are_left_out():
    frame = text_frame()
    frame.loc[7, "time"] = frame.loc[7, "time"].removesuffix("Z")
    table = read_power(frame)
    (finding,) = table.findings.of("no offset")
    assert finding.message == "1 rows state no offset from UTC, as others do, and were left out"
    assert finding.rows.tolist() == [7]


def local_days(first, days, zone, step=900):
    """Return stamps of a clock in a zone, each wall time of a logger that follows it."""
    begin = pd.Timestamp(first, tz=zone)
    return pd.date_range(begin, begin + pd.Timedelta(days=days), freq=f"{step}s", inclusive="left")


@pytest.mark.parametrize("first", ["2025-10-16", "2025-03-20"])
def test_a_clock_with_daylight_saving_time_has_no_seam(first):
    moments = local_days(first, 30, "Europe/Berlin")
    power = sunny_power(days=31)[: len(moments)]
    table = read_power(naive_frame(power, moments.tz_localize(None)), zone="Europe/Berlin")
    plant = table["roof"]
    np.testing.assert_array_equal(plant.power, power)
    assert plant.start == moments[0].tz_convert("UTC").tz_localize(None).to_datetime64()
    if "10" in first:  # 2:00 to 3:00 occurs twice
        (finding,) = table.findings.of("repeated hour")
        assert finding.message.startswith("8 rows are in hours that occur twice in Europe/Berlin")
        assert len(finding.rows) == 8
    else:
        assert not table.findings.of("repeated hour")
    assert not table.findings.of("skipped hour")


def test_stamps_that_a_zone_skips_are_left_out_with_advice():
    moments = stamps(30 * 96, start=np.datetime64("2025-03-20T00:00", "s"))
    table = read_power(naive_frame(POWER, moments), zone="Europe/Berlin")
    (finding,) = table.findings.of("skipped hour")
    assert "4 rows are in hours that Europe/Berlin skips when the clock is set forward" in finding.message
    assert "try an offset, as in zone='+01:00'" in finding.message
    assert str(moments[finding.rows[0]]) == "2025-03-30 02:00:00"


@pytest.mark.parametrize("minutes", [1, 2, 5, 6, 10, 12, 15, 20, 30, 60])
def test_cadences_are_found(minutes):
    power = sunny_power(days=4, step=60 * minutes)
    table = read_power(long_frame(power, step=60 * minutes))
    assert table["roof"].step == 60 * minutes
    np.testing.assert_array_equal(table["roof"].power, power)
    assert messages(table, "cadence") == [f"intervals of {NAMES.get(minutes, f'{minutes} minutes')}"]


def test_gaps_do_not_change_the_cadence():
    frame = long_frame()[POWER > 0]  # a logger that sleeps at night
    plant = read_power(frame)["roof"]
    assert plant.step == 900
    np.testing.assert_array_equal(plant.power[np.isfinite(plant.power)], POWER[POWER > 0])


def test_irregular_stamps_are_averaged_and_counted():
    rng = np.random.default_rng(0)
    seconds = np.cumsum(rng.integers(200, 400, 10000))
    slow = 50 + 30 * np.sin(seconds / 86400 * 2 * np.pi)
    time = pd.DatetimeIndex(START + seconds.astype("timedelta64[s]")).tz_localize("UTC")
    table = read_power(pd.DataFrame({"time": time, "power_kw": slow}), checked=False)
    plant = table.plants[0]
    assert plant.step == 300
    expected = 50 + 30 * np.sin(((plant.times - START).astype(int) + 150) / 86400 * 2 * np.pi)
    assert np.nanmax(np.abs(plant.power - expected)) < 0.5
    (finding,) = table.findings.of("irregular")
    assert finding.message == "stamps are irregular and were averaged over intervals of 5 minutes"
    assert finding.count > 100


def test_seconds_are_averaged_to_minutes():
    power = np.repeat(sunny_power(days=1, step=60), 6)
    frame = pd.DataFrame({"time": stamps(len(power), 10).tz_localize("UTC"), "power_kw": power})
    plant = read_power(frame).plants[0]
    assert plant.step == 60
    np.testing.assert_allclose(plant.power, sunny_power(days=1, step=60))


@pytest.mark.parametrize(
    ("frame", "stamped", "kind", "told"),
    [
        (long_frame(), "end", None, None),
        (long_frame().rename(columns={"time": "period_end"}), "auto", None, None),
        (
            text_frame(start=START + np.timedelta64(900, "s")),
            "auto",
            "stamps",
            "stamps are ends of intervals, as the first",
        ),
        (text_frame(start=START + np.timedelta64(450, "s")), "auto", "centre", "stamps are the centres of intervals"),
        (text_frame(start=START + np.timedelta64(60, "s")), "auto", "phase", "stamps lie 60 seconds inside their"),
        (long_frame(), "auto", "stamps assumed", "stamps are taken as the begins of intervals"),
        (long_frame(), "begin", None, None),
    ],
)
def test_begins_ends_and_centres_of_intervals(frame, stamped, kind, told):
    table = read_power(frame, stamps=stamped)
    plant = table.plants[0]
    early = stamped == "end" or "period_end" in frame
    assert plant.start == START - np.timedelta64(900 * early, "s")
    np.testing.assert_array_equal(plant.power, POWER)
    if kind:
        assert messages(table, kind)[0].startswith(told)


def test_hours_of_a_zone_with_half_hours_keep_their_begin():
    frame = text_frame(sunny_power(step=3600), step=3600, zone_text="+05:30")
    plant = read_power(frame)["roof"]
    assert plant.start == START - np.timedelta64(330, "m")
    np.testing.assert_array_equal(plant.power, sunny_power(step=3600))
    np.testing.assert_array_equal(plant.hourly().times, plant.times)


def test_the_sun_tells_ends_of_hours_where_the_place_is_known():
    frame = text_frame(sunny_power(step=3600, noon=13.0, days=60), step=3600, longitude=0.0, latitude=45.0)
    table = read_power(frame)
    assert table["roof"].start == START - np.timedelta64(1, "h")
    assert "stamps are ends of intervals: taken as begins, noon would be" in messages(table, "stamps")[0]


def test_a_noon_that_does_not_fit_the_longitude_is_told():
    table = read_power(text_frame(longitude=60.0, latitude=45.0))
    assert "the longitude, the zone or the clock is wrong" in messages(table, "noon")[0]
