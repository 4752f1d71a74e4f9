"""What a training survives: bad tasks, and being stopped and started again."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from metaprior.errors import TrainingDiverged
from metaprior.metagrad import AmortizedELBO, on_disk, twice_reverse
from metaprior.metagrad.problem import Engine
from metaprior.tasks.task import Task
from metaprior.training.trainer import Progress, Trainer
from tests.training.lines import (
    LEARNED,
    EndlessLines,
    copied,
    damaged,
    diverging,
    line,
    lines,
    make_problem,
    make_trainer,
    moved,
)
from tests.training.test_trainer import EVERYTHING


def test_a_bad_task_is_left_out_counted_and_named() -> None:
    tasks = [damaged(task) if i == 2 else task for i, task in enumerate(lines(4))]
    for stacked in (False, True):
        trainer = make_trainer(tasks, epochs=1, tasks_per_epoch=8, meta_batch=4, stacked=stacked)
        trainer._check(line(0))
        report = trainer.step()
        assert report.tasks == 3
        assert [failure.task for failure in report.failures] == ["line 2"]
        assert math.isfinite(report.loss)
        trainer.step()
        assert (trainer.progress.bad_tasks, trainer.progress.bad_in_a_row, trainer.progress.halvings) == (2, 0, 0)
        assert all(bool(value.isfinite().all()) for value in copied(trainer).values())


def test_nothing_but_bad_tasks_stops_with_theta_as_it_was() -> None:
    trainer = make_trainer(
        [diverging(task) for task in lines(4)],
        epochs=1,
        meta_batch=4,
        most_bad_tasks=12,
        search_step_size=False,
        scales_first=0.0,
    )
    trainer._check(line(0))
    start = copied(trainer)
    for halvings in (1, 2):
        report = trainer.step()
        assert (report.tasks, len(report.failures), report.grad_norms) == (0, 4, {})
        assert math.isnan(report.loss)
        assert moved(trainer, start) == {"log_lr"}
        expected = start["log_lr"] - halvings * math.log(2)
        torch.testing.assert_close(copied(trainer)["log_lr"], expected, rtol=1e-14, atol=0)
        assert (trainer.progress.halvings, trainer.progress.bad_in_a_row) == (halvings, 4 * halvings)
    with pytest.raises(TrainingDiverged, match=r"12 tasks in a row.*\(step 3\).*line \d: the nll became inf.*Also try"):
        trainer.step()
    assert all(bool(value.isfinite().all()) for value in copied(trainer).values())
    assert (trainer.progress.bad_tasks, trainer.progress.step, trainer.progress.position) == (12, 3, 12)


def test_a_good_task_ends_a_row_of_bad_ones() -> None:
    class MostlyBad:
        def __getitem__(self, index: int) -> Any:
            return line(index) if index % 4 == 0 else diverging(line(index))

    trainer = make_trainer(MostlyBad(), epochs=1, meta_batch=1, most_bad_tasks=4, search_step_size=False, stacked=False)
    for _ in range(20):
        trainer.step()
    assert (trainer.progress.bad_tasks, trainer.progress.bad_in_a_row, trainer.progress.halvings) == (15, 3, 15)


def test_a_bad_warm_start_leaves_theta_as_it_was() -> None:
    trainer = make_trainer([damaged(task) for task in lines(4)], epochs=1, warm_start=5, most_bad_tasks=8)
    trainer._check(line(0))
    start = copied(trainer)
    trainer.step()
    assert moved(trainer, start) <= {"log_lr"}
    with pytest.raises(TrainingDiverged, match=r"line \d: its (support|query) y holds inf.*Repair its data"):
        trainer.step()


@pytest.mark.parametrize("stacked", [False, True])
def test_damaged_data_leave_step_sizes_alone_and_are_told_from_divergence(stacked: bool) -> None:
    """No step size mends a number in a file: halving would undo what was learned, a little with every such task."""
    tasks = [damaged(task, "support") for task in lines(4)]
    trainer = make_trainer(tasks, epochs=1, meta_batch=2, most_bad_tasks=6, search_step_size=False, stacked=stacked)
    trainer._check(line(0))
    start = copied(trainer)
    for _ in range(2):
        report = trainer.step()
        assert {failure.step for failure in report.failures} == {"data"}
    assert moved(trainer, start) == set()
    assert trainer.progress.halvings == 0
    with pytest.raises(TrainingDiverged) as stopped:
        trainer.step()
    assert "its support y holds inf" in str(stopped.value)
    assert "inner" not in str(stopped.value)  # no advice about step sizes


def whole_state(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.tensors().items()}


FINITE, ENDLESS = lines(7), EndlessLines()


@pytest.mark.parametrize("stacked", [False, True])
def test_a_training_with_its_paths_on_disk_is_bitwise_that_in_memory_and_goes_on(stacked: bool, tmp_path: Path) -> None:
    def fresh(engine: Engine) -> Trainer:
        problem = make_problem(replace(LEARNED, momentum=0.5, samples=2), AmortizedELBO(7))
        return make_trainer(lines(7), problem, engine=engine, stacked=stacked, tasks_per_epoch=8, meta_batch=2)

    memory, disk, resumed = fresh(twice_reverse), fresh(on_disk(tmp_path)), fresh(on_disk(tmp_path))
    for _ in range(2):
        assert memory.step().loss == disk.step().loss
    resumed.restore(whole_state(disk), replace(disk.progress))
    for _ in range(2):
        assert memory.step().loss == disk.step().loss == resumed.step().loss
    for name, value in memory.tensors().items():
        assert torch.equal(disk.tensors()[name], value), name
        assert torch.equal(resumed.tensors()[name], value), name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("tasks", "after"),
    [(FINITE, 0), (FINITE, 2), (FINITE, 3), (FINITE, 5), (FINITE, 8), (ENDLESS, 3), (ENDLESS, 7)],
)
def test_a_restored_training_goes_on_bit_for_bit(tasks: Any, after: int) -> None:
    """Warm start until step 3, scales until step 6, then everything."""

    def fresh() -> Trainer:
        return make_trainer(
            tasks,
            make_problem(LEARNED, AmortizedELBO(7)),
            epochs=1,
            tasks_per_epoch=21,
            meta_batch=3,
            warm_start=3,
            scales_first=0.4,
            kl_warmup=0.5,
            weight_decay=0.1,
        )

    straight = fresh()
    for _ in range(after):
        straight.step()
    state, progress = whole_state(straight), replace(straight.progress)
    expected = [straight.step().loss for _ in range(10 - after)]
    resumed = fresh()
    resumed.restore(state, progress)
    kept = {name: value.clone() for name, value in state.items()}
    assert [resumed.step().loss for _ in range(10 - after)] == expected
    assert resumed.progress == straight.progress
    assert resumed.tensors().keys() == straight.tensors().keys()
    for name, value in straight.tensors().items():
        assert torch.equal(resumed.tensors()[name], value), name
        if name in state:
            assert torch.equal(kept[name], state[name]), "what was handed over is a copy"
    assert straight.done


def test_two_trainings_are_the_same_and_another_seed_is_another() -> None:
    def trained(seed: int) -> dict[str, Tensor]:
        trainer = make_trainer(lines(7), epochs=1, tasks_per_epoch=20, seed=seed, warm_start=1)
        while not trainer.done:
            trainer.step()
        return copied(trainer)

    first, again, other = trained(0), trained(0), trained(1)
    for name, value in first.items():
        assert torch.equal(again[name], value), name
        assert not torch.equal(other[name], value), name


def test_stacked_and_one_by_one_agree() -> None:
    found = []
    for stacked in (True, False):
        trainer = make_trainer(
            lines(7), make_problem(LEARNED, AmortizedELBO(7, samples=2)), epochs=1, tasks_per_epoch=24, stacked=stacked
        )
        losses = torch.tensor([trainer.step().loss for _ in range(6)], dtype=torch.float64)
        found.append({**copied(trainer), "losses": losses})
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-8, atol=1e-10, msg=name)


def test_progress_starts_from_nothing() -> None:
    assert make_trainer(lines(2)).progress == Progress()
    assert Progress().best == math.inf


class BadAt:
    """Endless, and damaged at one index."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __getitem__(self, index: int) -> Task:
        return damaged(line(index)) if index == self.index else line(index)


def test_a_training_that_is_resumed_at_a_bad_task_goes_on() -> None:
    straight = make_trainer(BadAt(4), epochs=1, search_step_size=False)
    straight.step()
    state, progress = whole_state(straight), replace(straight.progress)
    assert straight.step().tasks == 3
    resumed = make_trainer(BadAt(4), epochs=1, search_step_size=False)
    resumed.restore(state, progress)
    assert resumed.step().tasks == 3


def test_the_warm_start_leaves_out_bad_tasks_alone() -> None:
    trainer = make_trainer(BadAt(2), epochs=1, warm_start=2)
    start = copied(trainer)
    report = trainer.step()
    assert [failure.task for failure in report.failures] == ["line 2"]
    assert report.tasks == 3
    assert moved(trainer, start) == EVERYTHING - {"rho", "log_lr"}


def test_tasks_of_other_shapes_may_come_later() -> None:
    class Shrinking:
        def __getitem__(self, index: int) -> Task:
            return line(index, support=4 if index < 6 else 3)

    trainer = make_trainer(Shrinking(), epochs=1, search_step_size=False, stacked=True)
    assert [trainer.step().tasks for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_training_with_a_pooled_source_goes_on_bit_for_bit(after: int, average: float) -> None:
    """Warm start until step 3, from a source of its own; a search that balances step sizes; then everything."""

    def fresh() -> Trainer:
        return make_trainer(
            lines(7),
            pooled=EndlessLines(slope=-1.0),
            epochs=1,
            tasks_per_epoch=8,
            meta_batch=2,
            warm_start=3,
            warm_start_average=average,
            scales_first=0.5,
            balance_step_sizes=True,
        )

    straight = fresh()
    for _ in range(after):
        straight.step()
    state, progress = whole_state(straight), replace(straight.progress)
    expected = [straight.step().loss for _ in range(7 - after)]
    resumed = fresh()
    resumed.restore(state, progress)
    assert [resumed.step().loss for _ in range(7 - after)] == expected
    assert straight.done
    for name, value in straight.tensors().items():
        assert torch.equal(resumed.tensors()[name], value), name
