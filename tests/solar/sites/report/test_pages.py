"""Pages about plants have what there is to show, and name options where findings name arguments of Python."""

import re
from pathlib import Path

import numpy as np
import pytest

from metaprior.solar.sites.backtest import ADAPTED, adapted, backtest, baseline
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.forecasting import forecast_table
from metaprior.solar.sites.reading.reader import read_power
from metaprior.solar.sites.report.pages import write_backtest_page, write_forecast_page
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from tests.solar.sites.tables import sunny_power, text_frame


def titles(page: Path) -> list[str]:
    found = re.findall(r"<h2[^>]*>([^<]*)", page.read_text())
    assert re.findall(r'<a href="#[^"]*">([^<]*)', page.read_text()) == found
    return found


def test_the_page_of_one_day_has_its_forecast_and_how_the_table_was_read(
    forecaster: SiteForecaster, tmp_path: Path
) -> None:
    table = tmp_path / "roof.csv"
    text_frame(sunny_power()[:96], zone_text="").to_csv(table, index=False)
    page = tmp_path / "page.html"
    write_forecast_page(page, forecast_table(forecaster, read_power(table)), forecaster)
    assert titles(page) == ["Forecasts", "How the table was read"]
    text = page.read_text()
    assert "The last days cannot be scored: roof: " in text
    assert 'class="note"' not in text
    assert "Try --zone" in text
    assert "zone=" not in text


@pytest.mark.parametrize(("count", "parts"), [(1, []), (2, ["Plants"])])
def test_the_page_of_a_backtest_draws_groups_of_which_there_are_several(
    count: int, parts: list[str], forecaster: SiteForecaster, tmp_path: Path
) -> None:
    plants = simulate_fleet(count, 6, seed=1, start="2024-07-01").plants
    methods = {ADAPTED: adapted(forecaster), "persistence": baseline("persistence")}
    result = backtest(plants, forecaster, days=(0, 1), weeks=1, methods=methods)
    page = tmp_path / "page.html"
    write_backtest_page(page, result)
    assert titles(page) == ["Scores", "Lead times", "Learning curve", "Hours and seasons", *parts]
    text = page.read_text()
    assert "RMSE by hour of the day (solar time), with 1 day of data." in text
    seasons = max(len(groups) for groups, _ in result.lines("season").values())
    assert ("RMSE by season" in text) == (seasons > 1)
    assert np.isfinite(result.rows["rmse"]).all()
