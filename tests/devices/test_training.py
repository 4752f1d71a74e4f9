"""Steps of a training on another device: the CPU's numbers, no mixed devices, and few waits for the device."""

import pytest

from tests.devices.lane import checked

TOLERANCE = 1e-12
STEPS = ("meta-step, stacked", "meta-step, one by one", "pooled step")
NAMES = (*STEPS, "training from a warm start to the end", "a loop of one's own")


@pytest.mark.parametrize("name", NAMES)
def test_training(name: str) -> None:
    checked(NAMES, name, TOLERANCE)


WAITS = ("to the CPU", "to the device", "wait")
"""What makes the CPU wait for a GPU; a queued copy does not."""
MOST = {"meta-step, stacked": 4, "meta-step, one by one": 3 + 3, "pooled step": 4}
"""One look each at missing targets, at damaged data, at the numbers that were computed, and at those of the report;
tasks that are computed one by one are looked at one by one, here three."""


@pytest.mark.parametrize("name", STEPS)
def test_a_step_waits_for_the_device_a_few_times(name: str) -> None:
    found = checked(NAMES, name, TOLERANCE).of(*WAITS)
    assert len(found) <= MOST[name], "\n".join(found)


def test_a_step_of_bayes_by_backprop_waits_for_the_device_once() -> None:
    name = "step of BayesByBackprop"
    found = checked((name,), name, TOLERANCE).of(*WAITS)
    of_epochs = [where for where in found if "free_energy_fit.py" in where]
    assert len(found) - len(of_epochs) == 10, "\n".join(found)  # of ten steps
    assert len(of_epochs) <= 2 * 10  # each of them an epoch, with its record
