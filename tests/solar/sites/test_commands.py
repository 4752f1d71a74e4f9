"""``metaprior sites``: what is printed and written."""

import json
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner, Result

from metaprior.cli import app
from metaprior.solar.sites.simulator.base import with_base
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.simulator.writing import write_power


@pytest.fixture(scope="module")
def power(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = simulate_fleet(2, 12, seed=1, start="2024-06-01")
    path = tmp_path_factory.mktemp("table") / "power.csv"
    write_power(fleet.plants, fleet.parameters, path)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sites", *map(str, arguments)])


def test_a_forecast_is_printed_and_written(power: Path, prior: Path, tmp_path: Path) -> None:
    out = tmp_path / "forecast.csv"
    result = run("forecast", power, "--out", out, "--prior", prior, "--levels", "0.05,0.5,0.95")
    assert result.exit_code == 0, result.output
    for told in (
        "power is in kW",
        "metaprior inspect",
        "issued 2024-06-13 00:00:00+00:00",
        "estimated, solar noon",
        "+6 h",
    ):
        assert told in result.output
    assert len(pd.read_csv(out)) == 12
    again = run("forecast", power, "--out", out, "--prior", prior)
    assert isinstance(again.exception, FileExistsError)


def test_places_are_those_of_the_second_table(power: Path, prior: Path) -> None:
    result = run("forecast", power, "--sites", power.with_name("power_sites.csv"), "--prior", prior)
    assert "given" in result.output
    assert "estimated" not in result.output


def test_options_that_cannot_be_are_refused(power: Path, prior: Path) -> None:
    assert "must be numbers with commas" in run("forecast", power, "--levels", "low", "--prior", prior).output
    assert "must be a table of power" in run("forecast", power.with_suffix(".json"), "--prior", prior).output
    assert "base forecast" in str(run("forecast", power, "--hours", 12, "--prior", prior).exception)
    sheet = run("forecast", power.with_suffix(".xlsx"), "--prior", prior).output
    assert "is a spreadsheet. Save it as CSV" in " ".join(sheet.split())


def test_a_clock_that_was_set_leads_to_the_zone(power: Path, prior: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(power, parse_dates=["time"])
    moved = frame["time"].dt.tz_localize(None) + pd.Timedelta(days=132, hours=10)
    twice = moved.where(moved < "2024-10-18T03:00", moved - pd.Timedelta(hours=1))  # a clock that is set back
    frame.assign(time=twice).to_csv(tmp_path / "local.csv", index=False)
    result = run("forecast", tmp_path / "local.csv", "--prior", prior)
    assert result.exit_code == 0, result.output
    assert "occurs twice, as where a clock is set back" in result.output
    assert "--zone YOUR/ZONE" in result.output


def test_the_page_of_a_forecast_has_bands_scores_and_masks(power: Path, prior: Path, tmp_path: Path) -> None:
    page = tmp_path / "forecast.html"
    result = run("forecast", power, "--page", page, "--prior", prior)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert text.count("<figcaption>plant_") == 2
    for shown in ("smart persistence", "the place is estimated", 'id="masked"', "Adapted to 12 days"):
        assert shown in text
    short = run("forecast", power, "--at", "2024-06-01T12:00", "--page", tmp_path / "short.html", "--prior", prior)
    assert short.exit_code == 0, short.output
    assert "The last days cannot be scored" in (tmp_path / "short.html").read_text()


def test_a_backtest_is_printed_and_written(power: Path, prior: Path, tmp_path: Path) -> None:
    page, scores = tmp_path / "backtest.html", tmp_path / "backtest.json"
    files = ("--page", page, "--json", scores)
    result = run("backtest", power, "--days", "0,1", "--weeks", 2, *files, "--prior", prior)
    assert result.exit_code == 0, result.output
    for told in ("With 1 day of data", "prior, adapted", "boosted trees", "% of hours in the 90 % band"):
        assert told in result.output
    content = json.loads(scores.read_text())
    assert {row["by"] for row in content["rows"]} == {"all", "lead", "hour", "season", "week"}
    assert "Hours and seasons" in page.read_text()
    assert isinstance(run("backtest", power, *files, "--prior", prior).exception, FileExistsError)


def test_two_days_are_forecast_with_the_packaged_prior_where_there_is_a_base(tmp_path: Path) -> None:
    fleet = simulate_fleet(1, 8, seed=1, clear_power=True)
    write_power(with_base(fleet, 6, seed=0), fleet.parameters, tmp_path / "power.csv")
    result = run("forecast", tmp_path / "power.csv", "--hours", 48, "--page", tmp_path / "page.html")
    assert result.exit_code == 0, result.output + str(result.exception)
    assert "+48 h" in result.output
