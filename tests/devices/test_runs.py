"""A run on disk on another device: training, resuming, evaluation, scores and forecasts of maps."""

import pytest

from tests.devices.lane import checked

RUN, MAPS = "a run on disk, stopped and resumed", "a run of maps, and a forecast"
TOLERANCE = 1e-3
"""In float32; an optimiser on the CPU is fused, and rounds differently."""


def test_a_run_on_disk() -> None:
    checked((RUN,), RUN, TOLERANCE)


@pytest.mark.slow
def test_a_run_of_maps() -> None:
    checked((MAPS,), MAPS, TOLERANCE)
