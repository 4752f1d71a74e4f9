"""A first look at some tasks before a training: their checked data, the units of their targets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import as_plain_tensor, at_least_single
from metaprior.errors import NotFinite
from metaprior.metagrad.problem import Problem, TaskChecker
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task, Tasks, task_at
from metaprior.tasks.units import TargetUnits

FIRST_TASKS, FIRST_NUMBERS = 20, 2**24
"""Tasks whose targets give the units and the first noise scale; fewer if they have this many numbers."""


class FirstLook(NamedTuple):
    """The first tasks in the network's units, and what was learned from them."""

    tasks: list[Task]
    scale: TargetScale
    scalar_targets: bool
    """Whether targets come without a channel axis."""

    @property
    def targets(self) -> Tensor:
        """Return the finite targets of all tasks together."""
        return _pooled_targets(self.tasks)


def first_look(problem: Problem, tasks: Tasks, least: int, *, seed: int, standardize: bool) -> FirstLook:
    """Return the first tasks of a training, at least ``least``; ``problem`` is in the user's units."""
    check, first, given, numbers = TaskChecker(problem), list[Task](), list[Task](), 0
    while len(first) < least or (len(first) < FIRST_TASKS and numbers < FIRST_NUMBERS):
        given.append(task_at(tasks, len(first), seed))
        first.append(check(given[-1]))
        numbers += sum(values.numel() for part in (first[-1].support, first[-1].query) for values in part)
    scalar = are_scalars(given[-1].support, first[-1].support, problem)
    if not (standardize and problem.likelihood.continuous):
        return FirstLook(first, TargetScale.identity(problem.network.initial().mu), scalar)
    targets = _pooled_targets([_in_own_precision(*pair) for pair in zip(given, first, strict=True)])
    if not len(targets):
        raise NotFinite(f"the targets of the first {len(first)} tasks hold no finite value to standardise by")
    scale = TargetScale.standardising(targets)
    check = TaskChecker(replace(problem, likelihood=problem.likelihood.in_units_of(scale.scale)))
    return FirstLook([check(TargetUnits(scale, True).task(task)) for task in given], scale, scalar)


def are_scalars(given: Examples, checked: Examples, problem: Problem) -> bool:
    """Return whether real-valued targets were given as (N,), so that forecasts of them are (N,) too."""
    return problem.likelihood.continuous and torch.as_tensor(given.y).ndim < checked.y.ndim


def _pooled_targets(tasks: Sequence[Task]) -> Tensor:
    targets = torch.cat([part.y for task in tasks for part in (task.support, task.query)])
    return targets[targets.isfinite().flatten(1).all(1)] if targets.ndim > 1 else targets[targets.isfinite()]


def _in_own_precision(given: Task, checked: Task) -> Task:
    """Return a checked task with its targets in the precision in which they were given."""
    support, query = (
        Examples(one.x, at_least_single(as_plain_tensor(own.y, "y")).reshape(one.y.shape))
        for own, one in zip(given[:2], checked[:2], strict=True)
    )
    return Task(support, query, checked.name)
