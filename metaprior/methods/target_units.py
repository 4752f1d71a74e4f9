"""Real-valued targets in the network's units, and the first tasks of a training, whose targets decide on the units."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.adaptation.task_model import TaskModel
from metaprior.checks import as_plain_tensor, at_least_single, moved
from metaprior.errors import NotFinite
from metaprior.likelihoods import Likelihood
from metaprior.metagrad.task_checker import ChecksTasks, TaskChecker
from metaprior.missing import any_of_row, present_numbers
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task, Tasks, as_examples, as_task, exact_targets, task_at

FIRST_TASKS, FIRST_NUMBERS = 20, 2**24
"""Tasks whose targets give the units and the first noise scale; fewer if they have this many numbers."""


@dataclass(frozen=True)
class TargetUnits:
    """The way from the user's units to the network's; with ``standardised=False`` nothing is changed."""

    scale: TargetScale
    standardised: bool

    def examples(self, examples: Examples) -> Examples:
        """Return examples with targets in the network's units."""
        if not self.standardised:
            return examples
        targets, channels = at_least_single(as_plain_tensor(examples.y, "y")), self.scale.loc.numel()
        if channels != 1 and (targets.ndim < 2 or targets.shape[1] != channels):
            return examples  # the check of shapes, which comes later, raises
        return Examples(examples.x, self.scale.to_internal(moved(targets, self.scale.loc.device)))

    def task(self, task: Task) -> Task:
        """Return a task with the targets of both sets in the network's units."""
        support, query, name = as_task(task)
        return Task(self.examples(support), self.examples(query), name)

    def tasks(self, tasks: Tasks) -> Tasks:
        """Return a source of the same tasks with targets in the network's units."""
        return _TasksInUnits(tasks, self) if self.standardised else tasks

    def checked(self, support: Examples, model: ChecksTasks) -> tuple[Examples, bool]:
        """Return a checked support set in the network's units, and whether its targets were given as (N,)."""
        support = as_examples(support, "support")
        checked = model.check_examples(self.examples(support), "support")
        return checked, _are_scalars(support, checked, model.likelihood)


@dataclass(frozen=True)
class _TasksInUnits:
    source: Tasks
    units: TargetUnits

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]  # TypeError for an endless source, as it should be

    def __getitem__(self, index: int) -> Task:
        return self.units.task(self.source[index])

    @property
    def thread_safe(self) -> bool:
        return bool(getattr(self.source, "thread_safe", False))


def first_look(
    model_with: Callable[[Likelihood], TaskModel],
    likelihood: Likelihood,
    tasks: Tasks,
    least: int,
    *,
    seed: int,
    standardize: bool,
) -> tuple[list[Task], TargetScale, bool]:
    """Return the first tasks of a training in the network's units, the scale, and whether targets are (N,).

    Args:
        model_with: returns the task model with a likelihood.
        likelihood: the one in the user's units.
        tasks: the tasks.
        least: the least number of tasks.
        seed: seed of the tasks' order.
        standardize: whether real-valued targets are standardised.
    """
    model = model_with(likelihood)
    check, first, given, numbers = TaskChecker(model), list[Task](), list[Task](), 0
    while len(first) < least or (len(first) < FIRST_TASKS and numbers < FIRST_NUMBERS):
        given.append(task_at(tasks, len(first), seed))
        first.append(check(given[-1]))
        numbers += sum(values.numel() for part in (first[-1].support, first[-1].query) for values in part.tensors)
    scalar = _are_scalars(given[-1].query, first[-1].query, likelihood)
    if not (standardize and likelihood.continuous):
        return first, TargetScale.identity(model.network.initial().mu), scalar
    parts = [pair for own, one in zip(given, first, strict=True) for pair in zip(own[:2], one[:2], strict=True)]
    targets = _without_infinite(torch.cat([exact_targets(own, one) for own, one in parts]))
    if not bool(present_numbers(targets).any()):
        raise NotFinite(f"the targets of the first {len(first)} tasks hold no finite value to standardise by")
    scale = TargetScale.standardising(targets, keep_zero=likelihood.keeps_zero)
    check = TaskChecker(model_with(likelihood.in_units_of(scale)))
    return [check(TargetUnits(scale, True).task(task)) for task in given], scale, scalar


def _are_scalars(given: Examples, checked: Examples, likelihood: Likelihood) -> bool:
    """Return whether numbers were given as (N,), so that forecasts of them are (N,) too."""
    return not likelihood.labels and as_plain_tensor(given.y, "y").ndim < checked.y.ndim


def pooled_targets(tasks: Sequence[Task]) -> Tensor:
    """Return the targets of all tasks together, without observations that have infinite ones."""
    return _without_infinite(torch.cat([part.y for task in tasks for part in (task.support, task.query)]))


def _without_infinite(targets: Tensor) -> Tensor:
    return targets[~any_of_row(targets.isinf())]
