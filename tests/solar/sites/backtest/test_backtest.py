"""Backtests read nothing of the future, score as the definitions say, and answer in words."""

from dataclasses import fields, replace

import numpy as np
import pytest

from metaprior.solar.sites.backtest import (
    ADAPTED,
    LEVELS,
    Backtest,
    Case,
    Queries,
    backtest,
    case_of,
    usual_methods,
)
from metaprior.solar.sites.backtest.scores import score_rows
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.plant import BASE, Plant
from metaprior.solar.sites.simulator.base import with_base
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.training import simulated_tasks, train_prior


@pytest.fixture(scope="module")
def forecaster() -> SiteForecaster:
    return SiteForecaster(train_prior(simulated_tasks(10, seed=5, days=45), steps=10, progress=False))


@pytest.fixture(scope="module")
def plants() -> list[Plant]:
    fleet = simulate_fleet(2, 40, seed=1, start="2024-06-01", clear_power=True)
    return [with_base(fleet, 40)[0], fleet.plants[1]]


@pytest.fixture(scope="module")
def result(plants: list[Plant], forecaster: SiteForecaster) -> Backtest:
    return backtest(plants, forecaster, days=(0, 1, 3, 30), weeks=2)


def test_no_method_reads_power_at_or_after_the_issue(plants: list[Plant], forecaster: SiteForecaster) -> None:
    plant = plants[0]
    case = case_of(plant, (0, 3), 2, 6, "given")
    assert isinstance(case, Case)
    origin = int(case.queries.origins[0])
    issue = origin + 60
    draw = np.random.default_rng(0)
    future = np.arange(len(plant)) >= issue
    other = replace(plant, power=np.where(future, draw.uniform(0, plant.capacity or 1, len(plant)), plant.power))
    early = case.queries.issue <= issue
    queries = Queries(*(getattr(case.queries, field.name)[early] for field in fields(Queries)))
    hidden = replace(case, plant=replace(case.plant, power=other.share().power), queries=queries)
    for name, method in usual_methods(forecaster).items():
        for days in case.days:
            found, wanted = method(hidden, days), method(case, days)
            assert found is not None, name
            assert wanted is not None, name
            np.testing.assert_allclose(found.mean, wanted.mean[early], atol=1e-6, err_msg=name)
            np.testing.assert_allclose(found.quantiles, wanted.quantiles[:, early], atol=1e-6, err_msg=name)


def test_support_days_are_those_before_the_week_alone(plants: list[Plant], forecaster: SiteForecaster) -> None:
    case = case_of(plants[0], (3,), 1, 6, "given")
    assert isinstance(case, Case)
    origin = int(case.queries.origins[0])
    old = np.arange(len(case.plant)) < origin - 72
    young = replace(case, plant=replace(case.plant, power=np.where(old, np.nan, case.plant.power)))
    for name, method in usual_methods(forecaster).items():
        found, wanted = method(young, 3), method(case, 3)
        assert found is not None, name
        assert wanted is not None, name
        np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-6, err_msg=name)


def test_scores_are_those_of_the_definitions() -> None:
    draw = np.random.default_rng(1)
    count = 200
    numbers = [draw.integers(1, high, count) for high in (3, 9, 7, 2, 24, 4)]
    power = draw.uniform(size=count)
    queries = Queries(numbers[0], numbers[1], numbers[2], power, numbers[3], numbers[4], numbers[5])
    mean = draw.uniform(size=count)
    quantiles = np.sort(draw.uniform(size=(19, count)), axis=0)
    rows = score_rows(queries, PowerForecast(mean, quantiles))
    assert {row["by"] for row in rows} == {"all", "lead", "hour", "season", "week"}
    own = queries.lead == 2
    row = next(row for row in rows if (row["by"], row["group"]) == ("lead", 2))
    error = 100 * (mean - power)[own]
    assert row["hours"] == own.sum()
    assert row["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert row["mae"] == pytest.approx(np.abs(error).mean())
    assert row["bias"] == pytest.approx(error.mean())
    pinball = [
        level * (p - q) if p >= q else (1 - level) * (q - p)
        for level, qs in zip(LEVELS, quantiles, strict=True)
        for p, q in zip(power[own], qs[own], strict=True)
    ]
    assert row["crps"] == pytest.approx(200 * np.mean(pinball))
    inside = (power >= quantiles[0] - 1e-3) & (power <= quantiles[-1] + 1e-3)
    assert row["coverage"] == pytest.approx(100 * inside[own].mean())


def test_rows_are_tidy_and_tables_are_means_over_plants(result: Backtest) -> None:
    assert result.days == [0, 1, 3]
    assert "too short for 30 days" in result.notes[0]
    rows = result.rows[result.rows["by"] == "all"]
    assert not rows.duplicated(["plant", "place", "method", "days"]).any()
    assert rows.groupby("plant")["hours"].nunique().eq(1).all()
    assert set(rows[rows["method"] == "scaled base"]["plant"]) == {"plant_0"}
    table = result.table()
    own = rows[(rows["method"] == "blend") & (rows["days"] == 3)]["rmse"]
    assert table.loc["blend", 3] == pytest.approx(own.mean())
    assert list(table.columns) == [0, 1, 3]
    assert result.table(plant="plant_1").shape == (8, 3)
    lines = result.lines("lead", "crps", days=1)
    assert lines["persistence"][0] == [1, 2, 3, 4, 5, 6]
    assert result.lines("days")["climatology"][0] == [0, 1, 3]
    assert result.lines("season")["blend"][0] == ["winter", "summer"]  # one plant is in the south
    with pytest.raises(KeyError, match="by 'moon'"):
        result.scores("moon")


def test_methods_that_fall_back_to_a_simpler_one_are_named(result: Backtest) -> None:
    few = "of data there is too little to learn from for"
    falls = [note for note in result.notes if few in note]
    assert f"with 0 and 1 days {few} boosted trees: the forecasts are those of blend" in falls
    assert f"with 0 days {few} pooled network, fine-tuned: the forecasts are those of pooled network" in falls


def test_the_answer_says_how_much_it_rests_on(result: Backtest) -> None:
    told = result.answer("plant_1")
    assert told.startswith("With 3 days of data, forecasts of the next 6 hours of plant_1 were wrong by ")
    assert "that of smart persistence" in told
    assert "This rests on 2 weeks, from 2024-06-04 to 2024-07-10: too few" in told
    many = replace(result, extents={f"{n}": result.extents["plant_1"] for n in range(9)})
    assert "in eight of ten weeks the RMSE was" in many.answer()


def test_one_short_record_is_enough_and_none_raises(plants: list[Plant], forecaster: SiteForecaster) -> None:
    short = plants[1].between(end=plants[1].start + np.timedelta64(5, "D"))
    empty = short.between(end=short.start)
    found = backtest([short, empty], forecaster)
    assert found.days == [0, 1, 3]
    assert found.extents["plant_1"].weeks == pytest.approx(2 / 7)
    assert "This rests on 2 days, from" in found.answer()
    assert ADAPTED in found.methods
    with pytest.raises(ValueError, match="a backtest needs at least one plant with enough power"):
        backtest(empty, forecaster)
    with pytest.raises(ValueError, match="weeks"):
        backtest(short, forecaster, weeks=0)


def test_a_missing_base_forecast_leaves_its_method_out(plants: list[Plant], forecaster: SiteForecaster) -> None:
    case = case_of(plants[1], (0,), 1, 6, "given")
    assert isinstance(case, Case)
    assert BASE not in case.plant.future
    assert usual_methods(forecaster)["scaled base"](case, 0) is None
