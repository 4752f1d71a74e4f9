"""A fit that ends before its time leaves its last commit, and goes on from there as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.errors import CheckpointError
from metaprior.tasks.task import Task
from tests.hierarchy import stopped_fit
from tests.hierarchy.stopped_fit import PLAN, ROUNDS, inference, tasks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> mp.HierarchicalVI:
    return inference(tmp_path_factory.mktemp("undisturbed") / "store").fit(tasks(), **PLAN)


def place(folder: Path) -> dict[str, Any]:
    """Where the last commit of a fit stands."""
    try:
        return json.loads((folder / "checkpoint.json").read_text())["fit"]  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {"rounds": 0, "finished": False}


class Breaks:
    """Tasks from a source that fails after some time."""

    def __init__(self, after: int, error: type[BaseException] = OSError) -> None:
        self._tasks, self._left, self._error = tasks(), after, error

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        self._left -= 1
        if self._left < 0:
            raise self._error("the disk went away")
        return self._tasks[index]


def stopped_in(folder: Path, **settings: Any) -> mp.HierarchicalVI:
    """Some rounds of a fit, each committed, then an error."""
    hvi = inference(folder)
    with pytest.raises(OSError, match="the disk went away"):
        hvi.fit(Breaks(30), **{**PLAN, "save_every": 0.0, **settings})
    return hvi


def assert_same(one: mp.HierarchicalVI, other: mp.HierarchicalVI) -> None:
    """Bit for bit."""
    for mine, others in zip(one.psi_, other.psi_, strict=True):
        assert torch.equal(mine, others)
    assert one.task_names_ == other.task_names_
    for name in one.task_names_:
        mine, others = one.posterior(name).weights, other.posterior(name).weights
        assert torch.equal(mine.mu, others.mu)
        assert torch.equal(mine.rho, others.rho)
        assert set(mine.plain) == set(others.plain) > {"likelihood.rho"}
        assert all(torch.equal(value, others.plain[name]) for name, value in mine.plain.items())
    assert one.history_ == other.history_


def test_a_killed_fit_goes_on_as_if_nothing_had_been(tmp_path: Path, undisturbed: mp.HierarchicalVI) -> None:
    """SIGKILL in the middle of a process that fits; this one resumes."""
    folder = tmp_path / "store"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, stopped_fit.__file__, folder], env=environment)
    try:
        while place(folder)["rounds"] < 3:
            assert process.poll() is None
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert 3 <= place(folder)["rounds"] < ROUNDS
    assert not place(folder)["finished"]
    resumed = mp.HierarchicalVI.load(folder).fit(tasks(), resume=True, **PLAN)
    assert place(folder)["finished"]
    assert_same(resumed, undisturbed)
    assert_same(mp.HierarchicalVI.load(folder), undisturbed)


def test_an_error_leaves_the_last_commit(tmp_path: Path, undisturbed: mp.HierarchicalVI) -> None:
    hvi = stopped_in(tmp_path / "store")
    rounds = place(tmp_path / "store")["rounds"]
    assert 3 <= rounds < ROUNDS
    assert_same(hvi, mp.HierarchicalVI.load(tmp_path / "store"))  # what it knows is what is there
    hvi.prior_predictive().predict(torch.zeros(2, 1))
    hvi.posterior(hvi.task_names_[0]).predict(torch.zeros(2, 1))
    assert_same(hvi.fit(tasks(), resume=True, **PLAN), undisturbed)


def test_stopping_again_and_again_makes_no_difference(tmp_path: Path, undisturbed: mp.HierarchicalVI) -> None:
    hvi, times = inference(tmp_path / "store"), 0
    for after in range(13, 60, 5):
        times += 1
        with pytest.raises(KeyboardInterrupt):
            hvi.fit(Breaks(after, KeyboardInterrupt), resume=True, save_every=0.0, **PLAN)
        if place(tmp_path / "store")["rounds"] > 12:
            break
    assert times > 2
    assert_same(hvi.fit(tasks(), resume=True, **PLAN), undisturbed)


def test_how_often_it_is_saved_makes_no_difference(tmp_path: Path, undisturbed: mp.HierarchicalVI) -> None:
    assert_same(inference(tmp_path / "store").fit(tasks(), save_every=0.0, **PLAN), undisturbed)


def test_after_its_first_round_a_stopped_fit_is_known_to_have_begun(
    tmp_path: Path, undisturbed: mp.HierarchicalVI
) -> None:
    hvi = stopped_in(tmp_path / "store", save_every=1e6)
    assert place(tmp_path / "store")["rounds"] == 1
    assert not place(tmp_path / "store")["finished"]
    assert_same(hvi.fit(tasks(), resume=True, **PLAN), undisturbed)


def test_a_second_fit_that_is_stopped_is_resumed_and_not_taken_for_the_first(tmp_path: Path) -> None:
    hvi = inference(tmp_path / "store").fit(tasks(), **PLAN)
    epochs = len(hvi.history_)
    with pytest.raises(KeyboardInterrupt):
        hvi.fit(Breaks(20, KeyboardInterrupt), save_every=1e6, **PLAN)
    assert len(hvi.fit(tasks(), resume=True, **PLAN).history_) == 2 * epochs


def test_what_is_left_of_a_stopped_fit_can_be_given_up(tmp_path: Path) -> None:
    hvi = stopped_in(tmp_path / "store", save_every=0.0)
    with pytest.raises(CheckpointError, match=r"give_up\(\)"):
        hvi.fit(tasks(), **{**PLAN, "lr": 1e-3})
    hvi.give_up().fit(tasks(), **{**PLAN, "lr": 1e-3})
    assert place(tmp_path / "store")["finished"]


def test_a_finished_fit_has_nothing_to_resume(tmp_path: Path, undisturbed: mp.HierarchicalVI) -> None:
    hvi = inference(tmp_path / "store").fit(tasks(), resume=True, **PLAN)  # nor one that was not begun
    before = (tmp_path / "store" / "checkpoint.json").read_bytes()
    assert_same(hvi.fit(tasks(), resume=True, **PLAN), undisturbed)
    assert (tmp_path / "store" / "checkpoint.json").read_bytes() == before


def test_a_stopped_fit_is_resumed_as_it_was_begun_or_not_at_all(tmp_path: Path) -> None:
    hvi = stopped_in(tmp_path / "store")
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    other = [task._replace(query=task.support) for task in tasks()]
    new = tasks()[0]._replace(name="new")
    for given, settings, message in (
        (tasks(), {"resume": False}, "holds a fit that was stopped at round .*: resume=True continues it"),
        (tasks(), {"lr": 0.5}, r"resumed with the settings it was started with, but lr \(was 0.02, now 0.5\)"),
        (tasks(), {"epochs": 9, "samples": 1}, r"epochs \(was 8, now 9\); samples \(was 2, now 1\)"),
        (tasks()[:-1], {}, "tasks in .* are not among the given ones, first 'wave 4'"),
        (other, {}, "tasks have other data than when they were learned, first 'wave 0'"),
        ([*tasks(), new], {}, "1 tasks are new, first 'new': a stopped fit must first be finished"),
    ):
        with pytest.raises(ValueError, match=message):
            hvi.fit(given, **{**PLAN, "resume": True, **settings})  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="first finish it with fit"):
        hvi.forget(hvi.task_names_[0])
    assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()} == files


def test_tasks_are_the_same_ones_in_any_order(tmp_path: Path) -> None:
    hvi = stopped_in(tmp_path / "store")
    hvi.fit(tasks()[::-1], **{**PLAN, "resume": True})
    assert place(tmp_path / "store")["finished"]
