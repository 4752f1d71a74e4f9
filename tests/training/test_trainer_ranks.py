"""A trainer on every rank: threads for processes, so that what each of them reads and draws can be seen."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.adaptation import descent as descent_module
from metaprior.adaptation.descent import DescentModel
from metaprior.errors import TrainingDiverged
from metaprior.metagrad import keeping
from metaprior.noise import Noise
from metaprior.tasks.task import Task, Tasks
from metaprior.team import OtherRankFailed, Team
from metaprior.training import trainer as trainer_module
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer
from tests.team.fake import outcomes, together
from tests.training.lines import EndlessLines, copied, diverging, line, make_problem

Results = dict[str, Tensor]


def trainer_of(tasks: Tasks, pooled: Tasks | None = None, **settings: Any) -> Trainer:
    problem = make_problem()
    theta = problem.initial(torch.ones(4, 1, dtype=torch.float64), 0.2)
    whole = MetaTraining(**{"epochs": 1, "tasks_per_epoch": 15, "meta_batch": 3, "scales_first": 0.2, **settings})
    model = DescentModel(problem, keeping(10))
    return Trainer(model, theta, tasks, whole, pooled=pooled, relative_sigma=0.2, seed=4)


def trained(tasks: Callable[[], Tasks] = EndlessLines, **settings: Any) -> Results:
    trainer = trainer_of(tasks(), **settings)
    while not trainer.done:
        trainer.step()
    return copied(trainer)


@pytest.mark.parametrize("settings", [{}, {"warm_start": 2, "search_step_size": False}, {"balance_step_sizes": True}])
def test_all_ranks_learn_the_same_and_that_of_one_process(settings: dict[str, Any]) -> None:
    (alone,) = together(1, lambda _: trained(**settings))
    for size in (2, 4):
        first, *others = together(size, lambda _: trained(**settings))
        for name, value in first.items():
            torch.testing.assert_close(value, alone[name], rtol=1e-10, atol=1e-12, msg=name)
            assert all(torch.equal(other[name], value) for other in others), name


def test_noise_belongs_to_the_task_and_not_to_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Noise] = {}
    real = descent_module.meta_sums

    def spy(problem: Any, theta: Any, tasks: list[Task], noise: Noise, **how: Any) -> Any:
        seen.update({task.name: noise.at(task=noise.task + index) for index, task in enumerate(tasks)})
        return real(problem, theta, tasks, noise, **how)

    monkeypatch.setattr(descent_module, "meta_sums", spy)
    expected = Noise(4).fork("meta-training")
    for size in (1, 2, 3):
        seen.clear()
        together(size, lambda _: trained(search_step_size=False))
        assert seen == {f"line {index}": expected.at(task=index) for index in range(15)}


def test_the_search_is_divided_with_the_noise_of_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Noise] = {}

    def spy(_: Any, theta: Any, tasks: list[Task], noise: Noise, **how: Any) -> Any:
        seen.update({task.name: noise.at(task=noise.task + index) for index, task in enumerate(tasks)})
        return theta

    monkeypatch.setattr(descent_module, "searched_step_sizes", spy)
    monkeypatch.setattr(descent_module, "SEARCH_TASKS", 5)
    expected = Noise(4).fork("step size search")
    for size in (1, 2, 3):
        seen.clear()
        together(size, lambda _: trainer_of(EndlessLines()).step())
        assert seen == {f"line {index}": expected.at(task=index) for index in range(5)}


class Watched:
    """Lines that know who asked for which, and that may diverge or be out of reach."""

    thread_safe = True

    def __init__(self, name: str = "", bad: range = range(0), gone: int | None = None) -> None:
        self.name, self.bad, self.gone = name, bad, gone
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> Task:
        self.asked.append(index)
        if index == self.gone:
            raise OSError("the disk is gone")
        task = line(index)._replace(name=f"{self.name}{index}")
        return diverging(task) if index in self.bad else task


@pytest.mark.parametrize("worth", [-1.0, 1e9])
def test_a_rank_reads_its_own_tasks_once_and_nothing_behind_the_last(
    worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the next ones are read ahead; those of the warm start come from their own source."""
    monkeypatch.setattr(trainer_module, "WORTH_A_THREAD", worth)

    def work(team: Team) -> tuple[list[int], list[int]]:
        tasks, pooled = Watched("task "), Watched("pooled ")
        trainer = trainer_of(tasks, pooled, warm_start=2, search_step_size=False)
        while not trainer.done:
            trainer.step()
        return pooled.asked, tasks.asked

    first, second = together(2, work)
    assert first == ([0, 3], [6, 9, 12, 15, 18])
    assert second == ([1, 2, 4, 5], [7, 8, 10, 11, 13, 14, 16, 17, 19, 20])


@pytest.mark.parametrize("safe", [(True, True), (True, False), (False, True), (None, None)])
def test_only_sources_that_say_so_are_read_by_another_thread(
    safe: tuple[bool | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both: the last step of the warm start reads ahead from the other source."""
    monkeypatch.setattr(trainer_module, "WORTH_A_THREAD", -1.0)
    threads: set[bool] = set()

    class Source(EndlessLines):
        def __getitem__(self, index: int) -> Task:
            threads.add(threading.current_thread() is threading.main_thread())
            return super().__getitem__(index)

    sources = []
    for says in safe:
        sources.append(Source())
        if says is not None:
            sources[-1].thread_safe = says  # type: ignore[attr-defined]
    trainer = trainer_of(*sources, warm_start=2, search_step_size=False)
    while not trainer.done:
        trainer.step()
    assert threads == ({True, False} if all(safe) else {True})


def test_what_was_read_ahead_is_not_taken_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is put back to where it was asks again."""
    monkeypatch.setattr(trainer_module, "WORTH_A_THREAD", -1.0)
    trainer = trainer_of(Watched())
    trainer.step()
    before, progress = {name: value.clone() for name, value in trainer.tensors().items()}, trainer.progress
    saved = vars(progress).copy()
    trainer.step()
    trainer.step()
    expected = copied(trainer)
    trainer.restore(before, type(progress)(**saved))
    trainer.step()
    trainer.step()
    for name, value in copied(trainer).items():
        assert torch.equal(value, expected[name]), name


def test_bad_tasks_everywhere_stop_all_ranks_alike() -> None:
    def work(team: Team) -> str:
        trainer = trainer_of(Watched("line ", bad=range(6, 99)), most_bad_tasks=6, search_step_size=False)
        trainer.step()
        trainer.step()
        before = copied(trainer)
        trainer.step()
        assert torch.equal(trainer.theta.mu.detach(), before["mu"])
        assert trainer.progress.halvings == 1
        with pytest.raises(TrainingDiverged) as stopped:
            trainer.step()
        return f"{stopped.value} {trainer.progress}"

    (alone,) = together(1, work)
    assert together(3, work) == [alone] * 3
    assert "the last was line 11" in alone


def test_a_rank_that_cannot_read_for_the_search_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "SEARCH_TASKS", 4)
    first, second = outcomes(2, lambda _: trainer_of(Watched(gone=3)).step())
    assert isinstance(first, OtherRankFailed)
    assert isinstance(second, OSError)


def test_a_rank_that_cannot_read_stops_all_before_the_step_is_taken() -> None:
    def work(team: Team) -> None:
        trainer = trainer_of(Watched(gone=8), search_step_size=False)
        for _ in range(2):
            trainer.step()
        before = copied(trainer)
        try:
            trainer.step()
        finally:
            assert trainer.progress.step == 2
            assert all(torch.equal(value, before[name]) for name, value in copied(trainer).items())

    first, second = outcomes(2, work)
    assert isinstance(first, OtherRankFailed)
    assert isinstance(second, OSError)
    assert second.__notes__ == ["(rank 1; ranks that failed: 1 of 2)"]
