"""Task models whose outer loss autograd differentiates: one program for all tasks of a meta-batch."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import torch

from metaprior.adaptation.task_model import MEANS, SCALES, TaskModel
from metaprior.metagrad.inner_loop import damage, first_non_finite
from metaprior.metagrad.meta_batch import BatchSums
from metaprior.metagrad.problem import OuterTerms
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


class AutogradModel(TaskModel):
    """A task model that gives its losses; the gradient is autograd's, of all tasks together."""

    @abstractmethod
    def losses(self, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise]) -> OuterTerms:
        """Return the terms of every task's outer loss, four tensors of shape (T,) whose sum is minimised.

        ``theta`` requires gradients, and everything must be differentiable by autograd. What an objective does not have
        is zeros: ``OuterTerms(zero, query, zero, zero)``.

        Args:
            theta: where.
            tasks: T checked tasks with finite data; support sets of any size, also empty ones.
            noises: the noise of each task.
        """

    def sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, means_move: bool = True
    ) -> BatchSums:
        """Return the sums of losses and gradients; tasks whose data, loss or gradient is not finite are failures."""
        noises = [noise.at(task=noise.task + index) for index in range(len(tasks))]
        damages = [damage(task) for task in tasks]
        whole = [found is None for found in damages]
        groups = self.groups(theta)
        moving = [*groups[SCALES], *(groups[MEANS] if means_move else ())]
        sums = self._sums(theta, list(compress(tasks, whole)), list(compress(noises, whole)), moving)
        return replace(sums, failures=(*filter(None, damages), *sums.failures))

    def _sums(
        self, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise], moving: Sequence[str]
    ) -> BatchSums:
        """Return the sums; gradients by what is not ``moving`` are zero, and are not computed."""
        if not tasks:
            return BatchSums()
        leaves = theta.map(lambda value: value.detach())
        moved = {name: leaf.requires_grad_() for name, leaf in leaves.named().items() if name in moving}
        with torch.enable_grad():
            terms = self.losses(leaves, tasks, noises)
            total_loss = terms.total.sum()
            found = torch.autograd.grad(total_loss, list(moved.values()), allow_unused=True) if moved else ()
        named = dict(zip(moved, found, strict=True))
        grads = Parameters.from_named(
            {
                name: torch.zeros_like(leaf) if named.get(name) is None else named[name]
                for name, leaf in leaves.named().items()
            }
        )
        total = OuterTerms(*(term.detach().sum() for term in terms))
        numbers = {**total._asdict(), **{f"gradient by {name}": value for name, value in grads.named().items()}}
        failure = first_non_finite(numbers, tasks[0].name, "outer")
        if failure is None:
            return BatchSums(tuple(task.name for task in tasks), len(tasks), grads, total)
        if len(tasks) == 1:
            return BatchSums(failures=(failure,))
        alone = [self._sums(theta, [task], [own], moving) for task, own in zip(tasks, noises, strict=True)]
        good = [not one.failures for one in alone]
        if all(good):  # a sum that overflows
            return BatchSums(failures=tuple(replace(failure, task=task.name) for task in tasks))
        rest = self._sums(theta, list(compress(tasks, good)), list(compress(noises, good)), moving)
        return replace(rest, failures=(*(bad for one in alone for bad in one.failures), *rest.failures))
