"""Simulated plants as tables, and the command that writes them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.solar.sites import read_power
from metaprior.solar.sites.simulator import simulate_fleet, with_base
from metaprior.solar.sites.simulator.writing import power_table, write_power

COMMAND = ["simulate", "sites", "--plants", "2", "--days", "3", "--start", "2025-06-01"]


def test_the_command_writes_power_places_and_truth(tmp_path: Path) -> None:
    out = tmp_path / "data" / "power.csv"
    result = CliRunner().invoke(cli.app, [*COMMAND, "--out", str(out)])
    assert result.exit_code == 0, result.output
    fleet = simulate_fleet(2, 3, start="2025-06-01")
    table = pd.read_csv(out, parse_dates=["time"])
    assert list(table.columns) == ["site", "time", "power_kw"]
    for plant in fleet.plants:
        mine = table[table.site == plant.name]
        np.testing.assert_array_equal(mine.time.dt.tz_localize(None).to_numpy(), plant.times)
        np.testing.assert_allclose(mine.power_kw, plant.power, atol=1e-4 * plant.power.max())
    sites = pd.read_csv(tmp_path / "data" / "power_sites.csv")
    np.testing.assert_allclose(sites.latitude, [truth.latitude for truth in fleet.parameters], atol=1e-4)
    truth = json.loads((tmp_path / "data" / "power_truth.json").read_text())
    assert truth["plant_1"]["climate"]["name"] == fleet.parameters[1].climate.name
    again = CliRunner().invoke(cli.app, [*COMMAND, "--out", str(out)])
    assert isinstance(again.exception, FileExistsError)
    assert "--overwrite" in str(again.exception)


def test_a_base_forecast_reaches_beyond_the_power_and_defects_leave_gaps(tmp_path: Path) -> None:
    out = tmp_path / "power.csv"
    longer = ["--days", "40", "--minutes", "30", "--base", "--defects", "--seed", "2"]
    result = CliRunner().invoke(cli.app, [*COMMAND, *longer, "--out", str(out)])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(out)
    last = table[table.site == "plant_1"].tail(96)
    assert last.power_kw.isna().all()
    assert last.base_kw.notna().any()
    assert 2 * 42 * 48 > len(table) > 42 * 48


def test_a_table_has_a_row_for_each_known_value() -> None:
    fleet = simulate_fleet(2, 5, seed=1, clear_power=True)
    plants = with_base(fleet, 3)
    plants[0].power[4] = np.nan
    table = power_table(plants)
    assert (table.site == "plant_0").sum() == 5 * 24 - 1
    assert (table.site == "plant_1").sum() == 5 * 24
    assert str(table.time.dt.tz) == "UTC"


def test_other_endings_raise(tmp_path: Path) -> None:
    fleet = simulate_fleet(1, 1)
    with pytest.raises(ValueError, match=r"must end in .csv or .parquet, got '.xlsx'"):
        write_power(fleet.plants, fleet.parameters, tmp_path / "power.xlsx")


def test_what_is_written_is_what_read_power_reads(tmp_path: Path) -> None:
    fleet = simulate_fleet(3, 6, seed=4, step=1800, clear_power=True)
    plants = with_base(fleet, 4)
    write_power(plants, fleet.parameters, tmp_path / "power.csv")
    table = read_power(tmp_path / "power.csv", sites=tmp_path / "power_sites.csv")
    for plant, found in zip(plants, table.plants, strict=True):
        assert (found.name, found.start, found.step, found.unit) == (plant.name, plant.start, 1800, "kW")
        assert found.capacity == pytest.approx(plant.capacity, rel=1e-3)
        assert found.latitude == pytest.approx(plant.latitude, abs=1e-3)
        np.testing.assert_allclose(found.power[: len(plant)], plant.power, atol=1e-4 * plant.power.max())
        np.testing.assert_allclose(found.future["base"], plant.future["base"], rtol=1e-2, atol=1e-3 * plant.power.max())
