"""Training that is given a time and not a number of steps, so that methods can be compared at the same cost.

Seconds are CPU seconds of this process (of all its threads together): a machine that others use too would otherwise
give each method another budget.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch

from metaprior.methods.meta_learner import MetaLearner
from metaprior.tasks.source import Tasks
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

TRIAL_STEPS = 16


class Fitted(NamedTuple):
    """What a training within a budget came to; the seconds are those it really took."""

    seconds: float
    warm_start: int
    meta_steps: int
    bad_tasks: int


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for tensors so small that threads would only wait for each other; as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit_within(
    learner: MetaLearner,
    tasks: Tasks,
    training: MetaTraining,
    *,
    seconds: float,
    warm_share: float = 0.0,
    pooled: Tasks | None = None,
    progress: bool = True,
) -> Fitted:
    """Fit with as many steps as fit in ``seconds``, ``warm_share`` of them spent on the warm start (from ``pooled``).

    The time of a step is measured on a few of them first, in a training that is thrown away. A phase with a share of
    the time has at least one step.
    """
    warm = replace(training, warm_start=TRIAL_STEPS)
    warm_start = _steps_within(warm_share * seconds, learner, tasks if pooled is None else pooled, warm)
    meta_steps = _steps_within((1 - warm_share) * seconds, learner, tasks, replace(training, warm_start=0))
    chosen = replace(
        training,
        warm_start=warm_start,
        epochs=1 if meta_steps else 0,
        tasks_per_epoch=max(1, meta_steps * training.meta_batch),
    )
    started = time.process_time()
    learner.fit(tasks, chosen, pooled=pooled, progress=progress)
    bad = sum(summary.bad_tasks for summary in learner.history_)
    return Fitted(time.process_time() - started, warm_start, meta_steps, bad)


def meta_train_within(learner: MetaLearner, tasks: Tasks, training: MetaTraining, *, seconds: float) -> Fitted:
    """Meta-steps until the time is over, but one at least, from the module's weights on; learning rates do not fall.

    For short trainings after a warm start, of which the search of first step sizes is a good part.
    """
    endless = replace(training, warm_start=0, epochs=1, tasks_per_epoch=10**9, schedule="constant", pretrained=True)
    started = time.process_time()
    trainer = learner.trainer(tasks, endless)
    trainer.step()  # at least one: the first searches step sizes, and without them adaptation may do harm
    while time.process_time() - started < seconds:
        trainer.step()
    learner.theta_, learner.history_ = trainer.theta.detached(), []
    return Fitted(time.process_time() - started, 0, trainer.progress.step, trainer.progress.bad_tasks)


def _steps_within(seconds: float, learner: MetaLearner, tasks: Tasks, training: MetaTraining) -> int:
    """At least one, if there is any time at all; what happens once before the first step comes off the time."""
    if seconds <= 0:
        return 0
    pace = _pace(learner, tasks, training)
    return max(1, round((seconds - pace.once) / pace.each))


class _Pace(NamedTuple):
    once: float
    """What the first step takes longer than the others: the search for a step size, first uses."""
    each: float


def _pace(learner: MetaLearner, tasks: Tasks, training: MetaTraining) -> _Pace:
    short = replace(training, epochs=1, tasks_per_epoch=3 * TRIAL_STEPS * training.meta_batch)
    trainer = learner.trainer(tasks, short)
    first, *others = [_seconds_of_step(trainer) for _ in range(TRIAL_STEPS)]
    each = statistics.median(others)
    return _Pace(max(0.0, first - each), each)


def _seconds_of_step(trainer: Trainer) -> float:
    started = time.process_time()
    trainer.step()
    return time.process_time() - started
