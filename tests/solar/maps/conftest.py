"""One small archive and one solar run for all tests of this folder."""

from pathlib import Path
from typing import NamedTuple

import pytest

from metaprior.runs import finish
from metaprior.solar.simulator import simulate, write_frames
from tests.solar.maps.tiny_run import run


class SolarRun(NamedTuple):
    folder: Path
    said: list[str]


@pytest.fixture(scope="session")
def june(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days: one to train, one to validate, one to test, and those between."""
    path = tmp_path_factory.mktemp("frames") / "june.nc"
    write_frames(simulate(days=5, size=16, start="2025-06-01", progress=False), path)
    return path


@pytest.fixture(scope="session")
def solar_run(june: Path, tmp_path_factory: pytest.TempPathFactory) -> SolarRun:
    """It has finished, and drawn what only solar runs draw."""
    folder = tmp_path_factory.mktemp("solar") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        return SolarRun(folder, run(folder, june))
