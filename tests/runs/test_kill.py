"""SIGKILL at any moment: no file is ever unreadable, and the resumed run ends where an undisturbed one does."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs.killed import MOMENTS
from tests.runs.tiny import WAYS, adapted_by, assert_readable, assert_same_run, run

REPOSITORY = Path(__file__).parents[2]
NEVER = -1
WRITES = 55
"""Files that an undisturbed run writes, about."""


def start(
    folder: Path, call: int = NEVER, moment: str = MOMENTS[0], delay: float | None = None, changes: tuple[str, ...] = ()
) -> int:
    """Train until the end, or until killed: the process's return code."""
    command = [sys.executable, "-m", "tests.runs.killed", str(folder), str(call), moment, *changes]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if delay is not None:
            time.sleep(delay)
            process.kill()
        return process.wait()


def test_killed_while_a_checkpoint_is_written(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for call, moment in ((2, "half written"), (19, "after it was moved")):
        assert start(folder, call, moment) == -signal.SIGKILL
        assert_readable(folder)
        assert not (folder / "evaluation.json").exists()
    run(folder, resume=True)
    assert_same_run(folder, undisturbed)
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize("kind", [kind for kind in WAYS if kind != "descent"])
def test_killed_with_every_way_of_adapting(kind: str, tmp_path: Path) -> None:
    folder, changes = tmp_path / "run", adapted_by(kind)
    assert start(folder, 19, "half written", changes=changes) == -signal.SIGKILL
    assert_readable(folder)
    run(folder, *changes, resume=True)
    run(tmp_path / "undisturbed", *changes)
    assert_same_run(folder, tmp_path / "undisturbed")


@pytest.mark.slow
def test_killed_at_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    chance, folder = random.Random(0), tmp_path / "run"
    began = time.monotonic()
    assert start(tmp_path / "timed") == 0
    longest, kills = time.monotonic() - began, 0
    while kills < 30:
        if kills % 2:
            code = start(folder, chance.randrange(WRITES), chance.choice(MOMENTS))
        else:
            code = start(folder, delay=chance.uniform(0, longest / 2))
        assert code in (0, -signal.SIGKILL)
        assert_readable(folder)
        kills += code != 0
        if code == 0:
            assert_same_run(folder, undisturbed)
            shutil.rmtree(folder)
    run(folder, resume=True)
    assert_same_run(folder, undisturbed)
