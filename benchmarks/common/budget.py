"""Training for a given time instead of a given number of steps, so that methods are compared at the same cost.

Seconds are CPU seconds of this process (all of its threads together): on a machine that others use as well, seconds of
wall clock would give each method a different budget.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch

import metaprior as mp
from metaprior.tasks.task import Tasks
from metaprior.training.trainer import Trainer

TRIAL_STEPS = 16


class Fitted(NamedTuple):
    """A training within a budget: the CPU seconds that it took, its steps, and the tasks that were not finite."""

    seconds: float
    warm_start: int
    meta_steps: int
    bad_tasks: int


def first_tasks(source: Tasks, count: int) -> list[mp.Task]:
    """Return the first tasks of a source."""
    return [source[index] for index in range(count)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside the block: with small tensors several threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit_within(
    learner: mp.MetaLearner,
    tasks: Tasks,
    training: mp.MetaTraining,
    *,
    seconds: float,
    warm_share: float = 0.0,
    progress: bool = True,
) -> Fitted:
    """Fit a learner with as many steps as fit into a time, and return what it took.

    The time of a step is measured in a short training that is discarded.

    Args:
        learner: The learner to fit.
        tasks: The tasks of the warm start and of meta-training.
        training: Settings; numbers of steps are replaced.
        seconds: CPU seconds of the training.
        warm_share: The share of them for the warm start. A phase with a share has at least one step.
        progress: Whether to show a progress bar.
    """
    warm_start = _steps_within(warm_share * seconds, learner, tasks, replace(training, warm_start=TRIAL_STEPS))
    meta_steps = _steps_within((1 - warm_share) * seconds, learner, tasks, replace(training, warm_start=0))
    chosen = replace(
        training,
        warm_start=warm_start,
        epochs=1 if meta_steps else 0,
        tasks_per_epoch=max(1, meta_steps * training.meta_batch),
    )
    started = time.process_time()
    learner.fit(tasks, chosen, progress=progress)
    bad = sum(summary.bad_tasks for summary in learner.history_)
    return Fitted(time.process_time() - started, warm_start, meta_steps, bad)


def meta_train_within(learner: mp.MetaLearner, tasks: Tasks, training: mp.MetaTraining, *, seconds: float) -> Fitted:
    """Take meta-steps from the module's weights on until the time is over, at a constant learning rate.

    Meant for short trainings after a warm start. At least one step is taken: the first one searches step sizes, and
    without them adaptation may do harm.
    """
    endless = replace(training, warm_start=0, epochs=1, tasks_per_epoch=10**9, schedule="constant", pretrained=True)
    started = time.process_time()
    trainer = learner.trainer(tasks, endless)
    trainer.step()
    while time.process_time() - started < seconds:
        trainer.step()
    learner.theta_, learner.history_ = trainer.theta.detached(), []
    return Fitted(time.process_time() - started, 0, trainer.progress.step, trainer.progress.bad_tasks)


class _Pace(NamedTuple):
    once: float
    """Seconds by which the first step is longer than the others: the search for a step size, first uses."""
    each: float


def _steps_within(seconds: float, learner: mp.MetaLearner, tasks: Tasks, training: mp.MetaTraining) -> int:
    """Return the number of steps for a time, after what happens once before the first step; 0 only for no time."""
    if seconds <= 0:
        return 0
    pace = _pace(learner, tasks, training)
    return max(1, round((seconds - pace.once) / pace.each))


def _pace(learner: mp.MetaLearner, tasks: Tasks, training: mp.MetaTraining) -> _Pace:
    short = replace(training, epochs=1, tasks_per_epoch=3 * TRIAL_STEPS * training.meta_batch)
    trainer = learner.trainer(tasks, short)
    first, *others = [_seconds_of_step(trainer) for _ in range(TRIAL_STEPS)]
    each = statistics.median(others)
    return _Pace(max(0.0, first - each), each)


def _seconds_of_step(trainer: Trainer) -> float:
    started = time.process_time()
    trainer.step()
    return time.process_time() - started
