"""A first step size that works: tried out on tasks, so that training does not hang on the number in a configuration."""

import math
from collections.abc import Sequence
from types import EllipsisType

import torch

from metaprior.metagrad.adaptation import adapt
from metaprior.metagrad.problem import LOG_LR, NonFinite, Problem
from metaprior.metagrad.reference import outer_loss
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

LOWEST, HIGHEST = 1e-6, 10.0
FACTOR = math.sqrt(10)
SHARE = 0.25

Places = list[int] | EllipsisType
"""Entries of ``inner.log_lr``; ``...`` is all of them."""


def searched_step_sizes(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise
) -> WeightDistribution:
    """Theta with a common step size out of ``inner.lr`` times powers of the root of 10: the smallest of those that win
    at least a quarter of what the best one wins over no adaptation.

    Not the best one itself: steps that suit a network that knows nothing yet are ten times too long a little later
    (sinusoids trained from the best ended at twice the error), and short ones grow by learning.

    Where each tensor has a step size of its own, that of the likelihood's parameters (the noise scale) is then searched
    for itself: it is no weight, and the size that suits it may be a hundred times another. Step sizes at which a
    task is
    not finite are out. Where none is any good, theta stays as it is. Tasks whose data are not finite say nothing about
    step sizes and are left out.
    """
    tasks = [
        task for task in tasks if all(bool(t.isfinite().all()) for part in (task.support, task.query) for t in part)
    ]
    if not tasks:
        return theta
    found = _best(problem, theta, ..., tasks, noise)
    own = _places_of_likelihood(problem)
    return _best(problem, found, own, tasks, noise) if own else found


def _best(
    problem: Problem, theta: WeightDistribution, places: Places, tasks: Sequence[Task], noise: Noise
) -> WeightDistribution:
    """Theta with the best step size at some places of ``inner.log_lr``; as it is where none is any good."""
    candidates = _candidates(math.log(problem.inner.lr))
    changed = [_with_step_size(theta, places, log_lr) for log_lr in candidates]
    losses = [_outer_loss(problem, candidate, tasks, noise) for candidate in changed]
    standing_still = _outer_loss(problem, _with_step_size(theta, places, -math.inf), tasks, noise)
    best = min(losses)
    if not math.isfinite(best):
        return theta
    if best >= standing_still:
        return changed[losses.index(best)]
    enough = standing_still + SHARE * (best - standing_still)
    good = [place for place, loss in enumerate(losses) if loss <= enough]
    return changed[min(good, key=candidates.__getitem__)]


def _places_of_likelihood(problem: Problem) -> list[int]:
    """Where the step sizes of the likelihood's adapted parameters are; nowhere, if all tensors share one."""
    if problem.inner.learn_lr != "per_tensor":
        return []
    first = 2 * len(problem.network.layout.names)
    names = problem.likelihood.parameter_names
    return [first + place for place, name in enumerate(problem.adapted_names) if name in names]


def _candidates(start: float) -> list[float]:
    down = math.ceil((math.log(LOWEST) - start) / math.log(FACTOR))
    up = math.floor((math.log(HIGHEST) - start) / math.log(FACTOR))
    powers = sorted(range(min(down, 0), max(up, 0) + 1), key=abs)  # the given one first: it wins a tie
    return [start + power * math.log(FACTOR) for power in powers]


def _with_step_size(theta: WeightDistribution, places: Places, log_lr: float) -> WeightDistribution:
    step_sizes = theta.plain[LOG_LR].detach().clone()
    step_sizes[places] = log_lr
    return theta._replace(plain={**theta.plain, LOG_LR: step_sizes})


def _outer_loss(problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise) -> float:
    losses = [_task_loss(problem, theta, task, noise.at(task=noise.task + i)) for i, task in enumerate(tasks)]
    return math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.inf


def _task_loss(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> float:
    """The outer loss after adaptation; NaN if it left the finite numbers. No gradient is taken: the value decides."""
    lambda_ = adapt(problem, theta, task.support, noise)
    if isinstance(lambda_, NonFinite):
        return math.nan
    with torch.no_grad():
        return float(outer_loss(problem, lambda_, theta, task, noise).total)
