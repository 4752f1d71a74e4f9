"""A run on disk on another device: training, resuming, evaluation, scores and forecasts of maps."""

import pytest

from tests.devices.lane import checked

NAMES = ("a run on disk, stopped and resumed", "a run of maps, and a forecast")


@pytest.mark.parametrize("name", NAMES)
def test_runs(name: str) -> None:
    checked(NAMES, name, 1e-3)  # in float32; optimisers on the CPU are fused, and round differently
