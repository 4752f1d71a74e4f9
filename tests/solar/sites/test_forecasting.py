"""The forecast of a table and its files: one time of issue, the table's clock and unit, hours with a base forecast."""

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xarray as xr

from metaprior.solar.sites.forecast_file import write_forecast
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.forecasting import forecast_table, place_in_words, plant_rows, short_findings
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import PowerTable, read_power
from metaprior.solar.sites.simulator.base import with_base
from metaprior.solar.sites.simulator.fleet import Fleet, simulate_fleet
from metaprior.solar.sites.simulator.writing import power_table


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
        assert str(forecast_table(forecaster, table, at=at).issue) == "2024-06-07T01"
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
    assert forecast_table(forecaster, table).issue == np.datetime64("now", "h")
    unknown = read_power(frame.iloc[:0], sites={"new": {"capacity": 50.0}})
    assert place_in_words(unknown.plants[0]) == "unknown"
    with pytest.raises(ValueError, match="the capacity of new must be known"):
        forecast_table(forecaster, read_power(frame.iloc[:0], sites={"new": {"latitude": 48.0}}))


def test_files_agree(forecaster: SiteForecaster, fleet: Fleet, tmp_path: Path) -> None:
    table = read_power(power_table(fleet.plants), sites=facts(fleet.plants), zone="Asia/Tokyo")
    found = forecast_table(forecaster, table, levels=(0.1, 0.5, 0.9))
    write_forecast(tmp_path / "f.csv", found)
    text = pd.read_csv(tmp_path / "f.csv")
    assert list(text.columns) == ["site", "issued", "time", "lead_hours", "mean", "q10", "q50", "q90", "unit"]
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
