"""Tasks on their way in: brought into the types that the engines trust, and looked at."""

import torch

from metaprior.metagrad.problem import Problem
from metaprior.tasks.task import Examples, Task


class Door:
    """Checks the first task of every shape in full (the network is run on it), and the shapes and types of the rest.

    Numbers that are not finite pass: such a task is bad, and is skipped and counted where its loss is computed, so that
    one damaged file does not end a training of hours.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._output_shapes: dict[tuple[int, ...], torch.Size] = {}

    def __call__(self, task: Task) -> Task:
        """The task as the engines take it."""
        for part in (task.support, task.query):
            if tuple(part.x.shape[1:]) not in self._output_shapes:
                self._look_closely(task)
        return Task(self._examples(task.support, task), self._examples(task.query, task), task.name)

    def _look_closely(self, task: Task) -> None:
        checked = self._problem.check(task)
        for part in (checked.support, checked.query):
            self._output_shapes[tuple(part.x.shape[1:])] = self._problem.network.check_forward(part.x)

    def _examples(self, examples: Examples, task: Task) -> Examples:
        network = self._problem.network
        x, y = torch.as_tensor(examples.x).to(network.device), torch.as_tensor(examples.y).to(network.device)
        if len(x) != len(y) or not len(x):
            raise ValueError(f"{task.name}: {len(x)} inputs and {len(y)} targets; they have to be pairs, at least one")
        x = x.to(network.dtype) if x.is_floating_point() else x
        try:
            y = self._problem.likelihood.check_targets(y, self._output_shapes[tuple(x.shape[1:])])
        except (ValueError, TypeError) as error:
            raise type(error)(f"{task.name}: {error}") from error
        return Examples(x, y.to(network.dtype) if y.is_floating_point() else y)
