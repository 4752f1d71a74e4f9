"""Statistics of how power varies."""

import numpy as np

from benchmarks.sites.realism import realism_table, statistics
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.simulator import simulate_fleet


def plant(power: np.ndarray) -> Plant:
    return Plant("p", np.datetime64("2021-01-01T00:00:00"), 3600, power, np.zeros(len(power), np.uint8), capacity=1.0)


DAY = np.maximum(np.sin(np.pi * (np.arange(24) - 6) / 12), 0)


def test_the_same_day_again_is_clear() -> None:
    found = statistics(plant(np.tile(DAY, 60) + np.random.default_rng(0).normal(0, 1e-4, 1440)))
    assert found["clear days"] == 1
    assert found["bright"] == 1
    assert found["inside"] < 0.01
    assert abs(found["peak"] - 1) < 0.01


def test_days_with_a_level_of_their_own_last_from_hour_to_hour() -> None:
    levels = np.random.default_rng(0).uniform(0.1, 1, 200)
    found = statistics(plant((levels[:, None] * DAY).ravel()))
    assert found["lag 1 h"] > 0.95
    assert abs(found["lag 24 h"]) < 0.2
    assert abs(found["day to day"]) < 0.2
    assert found["overcast days"] > 0.2


def test_missing_hours_do_not_count() -> None:
    power = np.tile(DAY, 60) * np.repeat(np.random.default_rng(1).uniform(0.2, 1, 60), 24)
    gaps = power.copy()
    gaps[240:300] = np.nan
    assert abs(statistics(plant(gaps))["bright"] - statistics(plant(power))["bright"]) < 0.1


def test_the_table_names_every_statistic_and_plant() -> None:
    fleet = simulate_fleet(4, 40, start="2023-05-01", climates=["maritime"])
    text = realism_table(fleet.plants[:3], {"roof": fleet.plants[3]})
    assert all(name in text for name in [*statistics(fleet.plants[0]), "roof", "95 %"])
