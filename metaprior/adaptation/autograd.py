"""Task models whose outer loss autograd differentiates: one program for all tasks of a meta-batch."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from metaprior.adaptation.task_model import MEANS, SCALES, TaskModel
from metaprior.inputs import form_of
from metaprior.metagrad.finite import damages, first_non_finite
from metaprior.metagrad.meta_batch import BatchSums
from metaprior.metagrad.problem import OuterTerms
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


class AutogradModel(TaskModel):
    """A task model that gives its losses; the gradient is autograd's, of all tasks together."""

    @abstractmethod
    def losses(self, theta: WeightDistribution, tasks: Sequence[Task]) -> Tensor:
        """Return every task's outer loss, shape (T,), differentiable by autograd.

        Args:
            theta: where; it requires gradients.
            tasks: T checked tasks with finite data and inputs of one shape; support sets of any size, also empty ones.
        """

    def sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, means_move: bool = True
    ) -> BatchSums:
        """Return the sums of losses and gradients; tasks whose data, loss or gradient is not finite are failures."""
        damaged = damages(tasks)
        groups = self.groups(theta)
        moving = [*groups[SCALES], *(groups[MEANS] if means_move else ())]
        sums = self._sums(theta, [task for task, found in zip(tasks, damaged, strict=True) if found is None], moving)
        return replace(sums, failures=(*filter(None, damaged), *sums.failures))

    def _sums(self, theta: WeightDistribution, tasks: Sequence[Task], moving: Sequence[str]) -> BatchSums:
        """Return the sums; gradients by what is not ``moving`` are zero, and are not computed."""
        if not tasks:
            return BatchSums()
        leaves = theta.map(lambda value: value.detach())
        moved = {name: leaf.requires_grad_() for name, leaf in leaves.named().items() if name in moving}
        with torch.enable_grad():
            loss = sum((self.losses(leaves, own).sum() for own in _of_one_shape(tasks)), theta.mu.new_zeros(()))
            found = torch.autograd.grad(loss, list(moved.values()), allow_unused=True) if moved else ()
        named = dict(zip(moved, found, strict=True))
        grads = Parameters.from_named(
            {
                name: torch.zeros_like(leaf) if named.get(name) is None else named[name]
                for name, leaf in leaves.named().items()
            }
        )
        loss = loss.detach()
        zero = torch.zeros_like(loss)
        numbers = {"nll_query": loss, **{f"gradient by {name}": value for name, value in grads.named().items()}}
        failure = first_non_finite(numbers, tasks[0].name, "outer")
        if failure is None:
            names = tuple(task.name for task in tasks)
            return BatchSums(names, len(tasks), grads, OuterTerms(zero, loss, zero, zero))
        if len(tasks) == 1:
            return BatchSums(failures=(failure,))
        alone = [self._sums(theta, [task], moving) for task in tasks]
        good = [not one.failures for one in alone]
        if all(good):  # a sum that overflows
            return BatchSums(failures=tuple(replace(failure, task=task.name) for task in tasks))
        rest = self._sums(theta, list(compress(tasks, good)), moving)
        return replace(rest, failures=(*(bad for one in alone for bad in one.failures), *rest.failures))


def _of_one_shape(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return the tasks in groups whose inputs have the same shape, which share one pass of the network."""
    groups: dict[tuple[tuple[int, ...], ...], list[Task]] = {}
    for task in tasks:
        groups.setdefault(tuple(shape[1:] for shape in form_of(task.query.x)), []).append(task)
    return list(groups.values())
