"""The same tasks with other support sets: a prior that has seen small ones can use them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaprior.noise import Noise
from metaprior.tasks.source import Tasks, length_of
from metaprior.tasks.task import Examples, Task


@dataclass(frozen=True)
class VariedSupport:
    """Each position of the training draws a task, and divides its examples anew: a support set of one of some
    ``sizes``, and a query set of the task's own size out of the rest.

    Endless. ``together`` positions in a row have the same size of support set, so that they can be stacked. Where tasks
    are few, dividing them anew keeps a prior from learning their query sets by heart.
    """

    tasks: Tasks
    sizes: Sequence[int]
    together: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or self.together < 1:
            raise ValueError(f"sizes and together have to be at least 1, got {self.sizes!r} and {self.together}")

    def __getitem__(self, position: int) -> Task:
        """The task at a position, divided anew."""
        if position < 0:
            raise IndexError(f"positions start at 0, got {position}")
        noise, count = Noise(self.seed).fork("varied support"), length_of(self.tasks)
        task = self.tasks[position if count is None else position % count]
        draw = noise.at(step=position // self.together).generator()
        size = self.sizes[int(torch.randint(len(self.sizes), (), generator=draw))]
        if size > task.support.size:
            raise ValueError(f"{task.name} has {task.support.size} support examples, too few for a part of {size}")
        x, y = (torch.cat(pair) for pair in zip(task.support, task.query, strict=True))
        order = torch.randperm(len(x), generator=noise.at(task=position).generator())
        support, query = order[:size], order[size : size + task.query.size]
        return Task(Examples(x[support], y[support]), Examples(x[query], y[query]), task.name)
