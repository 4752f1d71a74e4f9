"""A first step size that works: tried out on tasks, so that training does not hang on the number in a configuration."""

import math
from collections.abc import Sequence

import torch

from metaprior.metagrad.first_order import first_order
from metaprior.metagrad.meta_batch import meta_gradient
from metaprior.metagrad.problem import LOG_LR, Problem
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

LOWEST, HIGHEST = 1e-6, 10.0
FACTOR = math.sqrt(10)


def searched_step_sizes(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise
) -> WeightDistribution:
    """Theta with the common step size, out of ``inner.lr`` times powers of the root of 10, of the lowest outer loss.

    Step sizes at which a task is not finite are out. Where none is any good, theta stays as it is. Tasks whose data are
    not finite say nothing about step sizes and are left out.
    """
    tasks = [
        task for task in tasks if all(bool(t.isfinite().all()) for part in (task.support, task.query) for t in part)
    ]
    if not tasks:
        return theta
    start = math.log(problem.inner.lr)
    candidates = _candidates(start)
    losses = [_outer_loss(problem, _with_step_size(theta, log_lr), tasks, noise) for log_lr in candidates]
    best = min(range(len(losses)), key=losses.__getitem__)
    return _with_step_size(theta, candidates[best]) if math.isfinite(losses[best]) else theta


def _candidates(start: float) -> list[float]:
    down = math.ceil((math.log(LOWEST) - start) / math.log(FACTOR))
    up = math.floor((math.log(HIGHEST) - start) / math.log(FACTOR))
    powers = sorted(range(min(down, 0), max(up, 0) + 1), key=abs)  # the given one first: it wins a tie
    return [start + power * math.log(FACTOR) for power in powers]


def _with_step_size(theta: WeightDistribution, log_lr: float) -> WeightDistribution:
    return theta._replace(plain={**theta.plain, LOG_LR: torch.full_like(theta.plain[LOG_LR], log_lr)})


def _outer_loss(problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise) -> float:
    batch = meta_gradient(problem, theta, tasks, noise, engine=first_order)  # only its value is used
    return float("inf") if batch.failures else float(batch.loss)
