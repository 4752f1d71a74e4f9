"""The benchmark of plants: its headline, what is skipped, and the networks and trees that it compares."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from benchmarks.sites import BENCHMARK, comparison, networks
from benchmarks.sites.fleets import QUALITIES, WEATHER, real_plants, weather_panels, with_base
from benchmarks.sites.whole_record import trees_on_whole_record
from metaprior.solar.sites.backtest import ADAPTED, Case, case_of
from metaprior.solar.sites.backtest.networks import fine_tuned, pooled
from metaprior.solar.sites.plant import BASE
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from tests.benchmarks.tiny import TINY


def scores(training: int, method: str, plant: str, rmse: dict[int, float], coverage: float = 90.0) -> list[dict]:  # type: ignore[type-arg]
    return [
        {"training": training, "method": method, "plant": plant, "place": place, "days": days}
        | {"rmse": value + 0.5 * (place == "known" and days == 0), "coverage": coverage}
        for place in networks.PLACES
        for days, value in rmse.items()
    ]


def test_statistics_are_those_of_their_definitions() -> None:
    rows = scores(0, ADAPTED, "a", {0: 20, 1: 16, 3: 14, 7: 12}) + scores(
        0, ADAPTED, "b", {0: 10, 1: 9, 3: 8, 7: 8}, 80
    )
    rows += scores(0, comparison.TUNED, "a", {3: 15}) + scores(0, comparison.TUNED, "b", {3: 10})
    rows += scores(-1, comparison.SMART, "a", {1: 16, 3: 16, 7: 16}) + scores(
        -1, comparison.SMART, "b", {1: 8, 3: 10, 7: 10}
    )
    rows += scores(1, ADAPTED, "a", {0: 1, 3: 1})  # another training does not count
    found = comparison.statistics_of(pd.DataFrame(rows), 0)
    assert found["gain_3"] == pytest.approx(100 * (1 - 11 / 15))
    assert found["gain_7"] == pytest.approx(100 * (1 - 10 / 15))
    assert found["gain_known_3"] == pytest.approx(100 * (1 - 11 / 15.5))
    assert found["gain_finetuned_3"] == pytest.approx(100 * (1 - 11 / 12.5))
    assert found["ratio_smart_worst"] == pytest.approx(9 / 8)
    assert (found["coverage_low"], found["coverage_high"]) == (85, 85)
    assert (found["coverage_plant_low"], found["coverage_plant_high"]) == (80, 90)
    assert found["gain_worst_plant_3_unknown"] == pytest.approx(20)
    assert math.isnan(found["ratio_blend"])


def test_without_a_table_real_plants_are_skipped_with_a_reason(tmp_path: Path) -> None:
    result = BENCHMARK.run(settings=TINY["sites"], data=tmp_path, workers=0)
    assert any("real plants are left out" in note for note in result.notes)
    assert all(math.isnan(value) for value in result.headline.values())
    assert any(str(row.get("part")).startswith("simulated fleet") for row in result.rows)


def test_base_forecasts_have_the_size_and_the_gaps_that_are_asked_for(made_up_data: Path) -> None:
    plants = real_plants(made_up_data)
    assert [plant.name for plant in plants] == ["a", "b"]
    good = with_base(plants, QUALITIES["good"])[0]
    base, power = good.future[BASE], good.usable
    lit = np.isfinite(power) & (power > 0.1)
    assert np.corrcoef(base[lit], power[lit])[0, 1] > 0.8
    gaps = with_base(plants, QUALITIES["good, half of the days missing"])[0].future[BASE]
    assert 0.2 < np.isnan(gaps).mean() < 0.8


def test_ratios_of_base_forecasts_and_weather_are_those_of_their_definitions(made_up_data: Path) -> None:
    panels = weather_panels(made_up_data)
    assert [plant.name for plant in panels] == ["Here", "There"]
    assert set(panels[0].future) == set(WEATHER)
    keys = ("fleet", "base", "method", "training")
    cells = {
        (comparison.REAL, "good", ADAPTED, 0): 8.0,
        (comparison.REAL, comparison.WITHOUT, ADAPTED, 0): 10.0,
        (comparison.REAL, "good", comparison.SCALED, -1): 16.0,
        (comparison.REAL, "good", ADAPTED, 1): 1.0,  # another training does not count
        (comparison.PANELS, comparison.WEATHER, ADAPTED, 0): 18.0,
        (comparison.PANELS, comparison.WITHOUT, ADAPTED, 0): 20.0,
    }
    rows = [dict(zip(keys, cell, strict=True), days=3, rmse=value) for cell, value in cells.items()]
    found = comparison.base_statistics(pd.DataFrame(rows), 0)
    assert found["ratio_base_3, good"] == pytest.approx(0.8)
    assert found["ratio_scaled_3, good"] == pytest.approx(0.5)
    assert found["ratio_weather_3"] == pytest.approx(0.9)
    assert math.isnan(found["ratio_base_7, good"])


def test_networks_and_trees_read_no_power_after_the_issue() -> None:
    plant = simulate_fleet(1, 40, seed=4).plants[0]
    case = case_of(plant, (0, 7), 1, 6, "given")
    assert isinstance(case, Case)
    settings = replace(TINY["sites"], steps=10)
    trained = networks.train(settings, 0)
    last = int(case.queries.issue.max())
    power = case.plant.power.copy()
    power[last:] = 0.7
    other = replace(case, plant=replace(case.plant, power=power))
    for method in (pooled(trained.pooled), fine_tuned(trained.pooled, {7: (2, 1e-3)})):
        for days in (0, 7):
            wanted, found = method(case, days), method(other, days)
            assert wanted is not None
            assert found is not None
            np.testing.assert_allclose(found.mean, wanted.mean)
    trees = trees_on_whole_record(case, 7)
    assert trees is not None
    assert np.isfinite(trees.mean).all()
    assert trees_on_whole_record(case, 3) is None
