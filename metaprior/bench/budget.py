"""Training that is given a time and not a number of steps, so that methods can be compared at the same cost."""

import time
from dataclasses import replace
from typing import NamedTuple

from metaprior.methods.meta_learner import MetaLearner
from metaprior.tasks.source import Tasks
from metaprior.training.epoch import run_steps
from metaprior.training.settings import MetaTraining

TRIAL_STEPS = 8


class Fitted(NamedTuple):
    """What a training within a budget came to."""

    seconds: float
    warm_start: int
    meta_steps: int
    bad_tasks: int


def fit_within(
    learner: MetaLearner,
    tasks: Tasks,
    training: MetaTraining,
    *,
    seconds: float,
    warm_share: float = 0.0,
    progress: bool = True,
) -> Fitted:
    """Fit with as many steps as fit in ``seconds``, ``warm_share`` of them spent on the warm start.

    The time of a step is measured on a few of them first, in a training that is thrown away.
    """
    plain = _seconds_a_step(learner, tasks, replace(training, warm_start=TRIAL_STEPS)) if warm_share else 1.0
    warm_start = round(warm_share * seconds / plain)
    meta = _seconds_a_step(learner, tasks, replace(training, warm_start=0)) if warm_share < 1 else 1.0
    meta_steps = round((1 - warm_share) * seconds / meta)
    chosen = replace(
        training,
        warm_start=warm_start,
        epochs=1 if meta_steps else 0,
        tasks_per_epoch=max(1, meta_steps * training.meta_batch),
    )
    started = time.perf_counter()
    learner.fit(tasks, chosen, progress=progress)
    bad = sum(summary.bad_tasks for summary in learner.history_)
    return Fitted(time.perf_counter() - started, warm_start, meta_steps, bad)


def _seconds_a_step(learner: MetaLearner, tasks: Tasks, training: MetaTraining) -> float:
    short = replace(training, epochs=1, tasks_per_epoch=3 * TRIAL_STEPS * training.meta_batch)
    trainer = learner.trainer(tasks, short)
    run_steps(trainer, 2, progress=False)  # what happens once: searching a step size, first use
    started = time.perf_counter()
    run_steps(trainer, TRIAL_STEPS - 2, progress=False)
    return (time.perf_counter() - started) / (TRIAL_STEPS - 2)
