"""Steps of a training on another device: the CPU's numbers, no mixed devices, and few waits for the device."""

import pytest

from tests.devices.lane import checked

TOLERANCE = 1e-12
STEPS = ("meta-step, stacked", "meta-step, one by one", "pooled step")
NAMES = (*STEPS, "training from a warm start to the end", "a loop of one's own")


@pytest.mark.parametrize("name", NAMES)
def test_training(name: str) -> None:
    checked(NAMES, name, TOLERANCE)
