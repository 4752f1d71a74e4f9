"""The forecast of a table and its files: one time of issue, the table's clock and unit, hours with a base forecast."""

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xarray as xr

from metaprior.solar.sites.forecast_file import write_forecast
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.forecasting import forecast_table, needs_zone, place_in_words, plant_rows, short_findings
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import PowerTable, read_power
from metaprior.solar.sites.simulator.base import with_base
from metaprior.solar.sites.simulator.fleet import Fleet, simulate_fleet
from metaprior.solar.sites.simulator.writing import power_table
from tests.solar.sites.tables import long_frame, stamps, sunny_power


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return simulate_fleet(2, 8, seed=1, start="2024-06-01", clear_power=True)


@pytest.fixture(scope="module")
def frame(fleet: Fleet) -> pd.DataFrame:
    return power_table(fleet.plants)


def facts(plants: list[Plant]) -> dict[str, dict[str, float | None]]:
    return {
        one.name: {"capacity": one.capacity, "latitude": one.latitude, "longitude": one.longitude} for one in plants
    }


@pytest.mark.parametrize(
    ("change", "zone", "expected"),
    [
        (lambda time: time, None, "2024-06-09T00:00:00+00:00"),
        (lambda time: time.dt.tz_convert("Asia/Kolkata").astype(str), None, "2024-06-09T05:30:00+05:30"),
        (lambda time: time.dt.tz_localize(None), "Australia/Sydney", "2024-06-09T00:00:00+10:00"),
        (lambda time: time.dt.tz_localize(None), "UTC+2", "2024-06-09T00:00:00+02:00"),
        (lambda time: time.dt.tz_localize(None), None, "2024-06-09T00:00:00"),
    ],
    ids=["UTC", "offset", "zone", "stated offset", "unknown"],
)
def test_times_are_those_of_the_table(forecaster, frame, change, zone, expected, tmp_path):
    table = read_power(frame.assign(time=change(frame["time"])), zone=zone)
    found = forecast_table(forecaster, table)
    write_forecast(tmp_path / "forecast.csv", found)
    written = pd.read_csv(tmp_path / "forecast.csv")
    assert (written["issued"] == expected).all()
    assert written["time"][0] == expected


def test_at_is_a_time_of_the_tables_clock(forecaster: SiteForecaster, frame: pd.DataFrame) -> None:
    table = read_power(frame.assign(time=frame["time"].dt.tz_convert("Asia/Tokyo")))
    for at in ("2024-06-07T09:20", "2024-06-07T00:20Z"):
        found = forecast_table(forecaster, table, at=at)
        assert str(found.issue) == "2024-06-07T00"
        rounded = f"the time of issue, {at}, is rounded down to a full hour, 2024-06-07 09:00:00+09:00"
        assert found.notes[0] == f"{rounded}: power after it is not read"
    assert "rounded" not in " ".join(forecast_table(forecaster, table, at="2024-06-07T09:00").notes)
    with pytest.raises(ValueError, match="at must be a time such as"):
        forecast_table(forecaster, table, at="noon")
    naive = read_power(frame.assign(time=frame["time"].dt.tz_localize(None)))
    with pytest.raises(ValueError, match="at must have no zone"):
        forecast_table(forecaster, naive, at="2024-06-07T00:20Z")


def test_plants_that_stopped_earlier_are_forecast_at_the_same_time(forecaster: SiteForecaster, fleet: Fleet) -> None:
    one, other = fleet.plants
    stopped = [one, other.between(None, np.datetime64("2024-06-05T12:00"))]
    found = forecast_table(forecaster, PowerTable(stopped, read_power(power_table(stopped)).findings))
    assert found.frame["issued"].nunique() == 1
    assert [row["days"] for row in plant_rows(found)] == [8, 5]


def test_more_than_six_hours_need_a_base_forecast(forecaster: SiteForecaster, fleet: Fleet) -> None:
    with pytest.raises(ValueError, match=r"at most 6 .* got 24.*plant_0 \(0 h\).*add a column to the table.*'base'"):
        forecast_table(forecaster, read_power(power_table(fleet.plants)), hours=24)
    plants = with_base(fleet, 6, seed=0)
    table = read_power(power_table(plants), sites=facts(plants))
    found = forecast_table(forecaster, table, hours=48)
    assert len(found.frame) == 96
    assert found.frame["time"].max() == pd.Timestamp("2024-06-08T23:00Z")


def test_plants_without_power_need_a_capacity_alone(forecaster: SiteForecaster, frame: pd.DataFrame) -> None:
    table = read_power(frame.iloc[:0], sites={"new": {"capacity": 50.0, "latitude": 48.0, "longitude": 11.0}})
    found = forecast_table(forecaster, table, at="2024-06-01T10:00Z")
    assert found.frame["mean"].between(1, 50).all()
    assert plant_rows(found)[0]["days"] == 0
    now = forecast_table(forecaster, table)
    assert now.issue == np.datetime64("now", "h")
    assert now.notes[0].startswith("there is no power, so the forecast is issued now, at ")
    night = forecast_table(forecaster, table, at="2024-06-01T23:00Z", hours=2)
    assert "the forecast is zero, as all of these hours are dark: new" in night.notes
    unknown = read_power(frame.iloc[:0], sites={"new": {"capacity": 50.0}})
    assert place_in_words(unknown.plants[0]) == "unknown"
    with pytest.raises(ValueError, match="the capacity of new must be known"):
        forecast_table(forecaster, read_power(frame.iloc[:0], sites={"new": {"latitude": 48.0}}))


def test_files_agree(forecaster: SiteForecaster, fleet: Fleet, tmp_path: Path) -> None:
    table = read_power(power_table(fleet.plants), sites=facts(fleet.plants), zone="Asia/Tokyo")
    found = forecast_table(forecaster, table, levels=(0.1, 0.5, 0.9))
    write_forecast(tmp_path / "f.csv", found)
    text = pd.read_csv(tmp_path / "f.csv")
    assert list(text.columns) == ["site", "issued", "time", "lead_hours", "mean", "q10", "q50", "q90", "unit", "stamp"]
    assert text["time"][0] == "2024-06-09T09:00:00+09:00"
    np.testing.assert_allclose(text["q90"], found.frame["q90"], rtol=1e-5)
    write_forecast(tmp_path / "f.nc", found)
    with xr.open_dataset(tmp_path / "f.nc") as data:
        assert data.Conventions == "CF-1.8"
        assert data["power"].attrs["units"] == "kW"
        np.testing.assert_allclose(data["power"].values.ravel(), found.frame["mean"])
        np.testing.assert_allclose(data["power_quantiles"].sel(quantile=0.9).values.ravel(), found.frame["q90"])
        assert data["time"].values[0] == np.datetime64("2024-06-09T00:00")
        np.testing.assert_allclose(data["latitude"], [one.latitude for one in fleet.plants])
    with pytest.raises(FileExistsError, match="--overwrite"):
        write_forecast(tmp_path / "f.csv", found)
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet or \.nc, got '\.txt'"):
        write_forecast(tmp_path / "f.txt", found)


def test_parquet_files_keep_the_zone(forecaster: SiteForecaster, frame: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    found = forecast_table(forecaster, read_power(frame, zone="Asia/Tokyo"))
    write_forecast(tmp_path / "f.parquet", found)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), found.frame, check_dtype=False)


def test_places_are_given_or_estimated_with_their_uncertainty(fleet: Fleet, frame: pd.DataFrame) -> None:
    assert place_in_words(read_power(frame, sites=facts(fleet.plants)).plants[0]).startswith("given, ")
    assert "(+- " in place_in_words(read_power(frame).plants[0])


def test_findings_are_short(frame: pd.DataFrame) -> None:
    table = read_power(frame.assign(power_kw=frame["power_kw"].where(frame.index != 12, -1e6)))
    lines = short_findings(table.findings, table.plants)
    assert any(line.startswith("masked as doubtful: ") for line in lines)
    assert len(lines) < 9


def ends(plants: list[Plant]) -> PowerTable:
    """Return a table whose hourly stamps are ends, as the sun tells."""
    frame = power_table(plants).iloc[:-3]  # no whole days
    return read_power(frame.assign(time=frame["time"] + pd.Timedelta("1h")), sites=facts(plants))


def test_findings_do_not_contradict_each_other(fleet: Fleet) -> None:
    table = ends(fleet.plants[:1])
    lines = short_findings(table.findings, table.plants)
    assert any("stamps are ends of intervals: taken as begins" in line for line in lines)
    assert not any("stamps are taken as the begins" in line for line in lines)


def test_all_files_name_hours_as_the_table_does(forecaster: SiteForecaster, fleet: Fleet, tmp_path: Path) -> None:
    for table, stamp, first in (
        (read_power(power_table(fleet.plants), sites=facts(fleet.plants)), "begin", "2024-06-09T00:00"),
        (ends(fleet.plants[:1]), "end", "2024-06-08T22:00"),
    ):
        found = forecast_table(forecaster, table)
        assert (
            found.notes[-1]
            == f"values are means of hours; 'time' is the {stamp} of the hour, as stamps of the table are"
        )
        path = tmp_path / stamp
        write_forecast(path.with_suffix(".csv"), found)
        text = pd.read_csv(path.with_suffix(".csv"))
        assert set(text["stamp"]) == {stamp}
        assert text["time"][0] == f"{first}:00+00:00"
        write_forecast(path.with_suffix(".nc"), found)
        with xr.open_dataset(path.with_suffix(".nc")) as data:
            assert data["time"].values[0] == np.datetime64(first)
            assert data["time"].attrs["long_name"].startswith(f"{stamp} of the hour")
            assert data["time_bounds"].values[0, int(stamp == "end")] == np.datetime64(first)


def test_finer_tables_are_told_that_values_are_hourly(forecaster: SiteForecaster) -> None:
    plants = simulate_fleet(1, 4, seed=1, start="2024-06-01", step=900).plants
    found = forecast_table(forecaster, read_power(power_table(plants)))
    assert "means of hours (the table has intervals of 15 minutes)" in found.notes[-1]


def test_useless_weather_is_not_said_to_be_used(forecaster: SiteForecaster) -> None:
    power = sunny_power(days=12, step=3600)
    ghi = 500 * np.random.default_rng(0).random(len(power)) * (power > 0)
    power[10 * 24 :] = np.nan
    found = forecast_table(forecaster, read_power(long_frame(power, step=3600, ghi=ghi)), hours=24)
    told = " ".join(found.notes)
    assert "the base forecast from 'ghi' had no skill on the last days and is not used" in told
    assert "is used as a base forecast" not in told
    assert "hours beyond the next 6 know nothing of the weather" in told


def test_what_masks_half_of_a_table_is_told_first_with_what_settles_it() -> None:
    moments = stamps(40 * 96, start=np.datetime64("2025-03-10")).tz_localize("UTC").tz_convert("Europe/Berlin")
    frame = long_frame(sunny_power(days=40)).assign(time=moments.tz_localize(None))
    table = read_power(frame)
    assert needs_zone(table.findings)
    lines = short_findings(table.findings, table.plants)
    assert lines[0].startswith("masked as doubtful: ")
    assert lines[0].endswith("the zone is not stated. Try zone=")
    assert "outage" not in lines[0]
    stated = read_power(frame, zone="Europe/Berlin")
    assert not needs_zone(stated.findings)
