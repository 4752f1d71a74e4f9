"""Tiny runs that tests compare with or copy: one that nobody has disturbed, and one that was interrupted."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from metaprior.runs import finish
from tests.runs.tiny import PowerFailure, at_step, fail, run


class Undisturbed(NamedTuple):
    folder: Path
    said: list[str]


@pytest.fixture(scope="session")
def undisturbed_run(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A run of one process, the only one whose pictures are drawn."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    return Undisturbed(folder, run(folder))


@pytest.fixture
def undisturbed(undisturbed_run: Undisturbed) -> Path:
    return undisturbed_run.folder


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "draw", lambda *_: [])


@pytest.fixture(scope="session")
def _interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, 11, fail)
        with pytest.raises(PowerFailure):
            run(folder)
    return folder


@pytest.fixture
def interrupted(_interrupted: Path, tmp_path: Path) -> Path:
    """A run that stopped at step 11, with checkpoints of step 10 in ``last`` and of step 9 in ``previous``."""
    return shutil.copytree(_interrupted, tmp_path / "interrupted")


@pytest.fixture
def copied(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of the undisturbed run, to be damaged."""
    return shutil.copytree(undisturbed, tmp_path / "copied")
