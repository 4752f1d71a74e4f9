"""Every engine gives on another device what it gives on the CPU, and mixes no devices."""

import pytest

from tests.devices.lane import checked
from tests.metagrad.problems import EVERY

TOLERANCE = 1e-13
APPROXIMATE = {"finite_difference": 1e-9, "implicit": 1e-6}
"""Rounding is divided by a small step there, and grows with the iterations of a solver."""
NAMES = tuple(f"engine {name}" for name in (*EVERY, "implicit"))


@pytest.mark.parametrize("name", NAMES)
def test_engines(name: str) -> None:
    checked(NAMES, name, APPROXIMATE.get(name.removeprefix("engine "), TOLERANCE))


OTHERS = ("stacked tasks", "planner")


@pytest.mark.parametrize("name", OTHERS)
def test_stacks_and_the_planner(name: str) -> None:
    checked(OTHERS, name, TOLERANCE)
