"""Tasks on their way in: brought into the types that the engines trust, and looked at."""

import torch
from torch import Tensor

from metaprior.metagrad.problem import Problem
from metaprior.tasks.task import Examples, Task

Kind = tuple[bool, tuple[int, ...]]


def _kind(x: Tensor) -> Kind:
    """Whether inputs are real numbers, and the shape of one."""
    return x.is_floating_point(), tuple(x.shape[1:])


def _finite(examples: Examples) -> Examples:
    """With zeros for what is not finite: only for a look at whether the network can take such examples at all."""
    x, y = torch.as_tensor(examples.x), torch.as_tensor(examples.y)
    return Examples(*(t.nan_to_num(0.0, 0.0, 0.0) if t.is_floating_point() else t for t in (x, y)))


class Door:
    """Checks the first task of every shape in full (the network is run on it), and the shapes and types of the rest.

    Numbers that are not finite pass: such a task is bad, and is skipped and counted where its loss is computed, so that
    one damaged file does not end a training of hours.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._output_shapes: dict[Kind, torch.Size] = {}

    def __call__(self, task: Task) -> Task:
        """The task as the engines take it."""
        if any(_kind(torch.as_tensor(part.x)) not in self._output_shapes for part in (task.support, task.query)):
            self._look_closely(task)
        return Task(self._examples(task.support, task), self._examples(task.query, task), task.name)

    def _look_closely(self, task: Task) -> None:
        checked = self._problem.check(Task(_finite(task.support), _finite(task.query), task.name))
        for part in (checked.support, checked.query):
            self._output_shapes[_kind(part.x)] = self._problem.network.check_forward(part.x)

    def _examples(self, examples: Examples, task: Task) -> Examples:
        network = self._problem.network
        x, y = torch.as_tensor(examples.x).to(network.device), torch.as_tensor(examples.y).to(network.device)
        if len(x) != len(y) or not len(x):
            raise ValueError(f"{task.name}: {len(x)} inputs and {len(y)} targets; they have to be pairs, at least one")
        x = x.to(network.dtype) if x.is_floating_point() else x
        try:
            y = self._problem.likelihood.check_targets(y, self._output_shapes[_kind(x)])
        except (ValueError, TypeError) as error:
            raise type(error)(f"{task.name}: {error}") from error
        return Examples(x, y.to(network.dtype) if y.is_floating_point() else y)
