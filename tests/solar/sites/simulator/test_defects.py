"""Defects and the truth about them."""

import numpy as np
import pytest

from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.simulator import simulate_fleet, with_defects
from metaprior.solar.sites.simulator.defects import KINDS


@pytest.fixture(scope="module")
def plant() -> Plant:
    return simulate_fleet(1, 60, seed=5, climates=["mediterranean"]).plants[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mask_is_where_values_changed(plant: Plant, kind: str) -> None:
    broken, mask = with_defects(plant, 7, kinds=(kind,), rate=10)
    changed = ~((broken.power == plant.power) | (np.isnan(broken.power) & np.isnan(plant.power)))
    np.testing.assert_array_equal(mask > 0, changed)
    assert set(mask[changed]) == {1 + list(KINDS).index(kind)}
    assert len(broken) == len(plant)


def test_defects_are_a_function_of_the_seed(plant: Plant) -> None:
    first, again, other = (with_defects(plant, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[0].power, again[0].power)
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


def test_what_defects_look_like(plant: Plant) -> None:
    def broken(kind: str) -> tuple[np.ndarray, np.ndarray]:
        changed, mask = with_defects(plant, 7, kinds=(kind,), rate=10)
        return changed.power, mask > 0

    power, mask = broken("outage")
    assert (power[mask] <= 0).all()
    power, mask = broken("gap")
    assert np.isnan(power[mask]).all()
    power, mask = broken("spike")
    assert (power[mask] > 1.4 * plant.power.max()).all()
    assert (power[mask] < 31 * plant.power.max()).all()
    power, mask = broken("negative")
    assert (power[mask] < 0).all()
    power, mask = broken("dead days")
    assert (power[mask] == 0).all()


def test_no_defects_leave_the_plant_as_it_was(plant: Plant) -> None:
    same, mask = with_defects(plant, 7, rate=0)
    np.testing.assert_array_equal(same.power, plant.power)
    assert not mask.any()
