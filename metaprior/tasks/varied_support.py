"""The same tasks with fewer examples to learn from: a prior that has seen small support sets can use them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaprior.noise import Noise
from metaprior.tasks.source import Tasks, length_of
from metaprior.tasks.task import Examples, Task


@dataclass(frozen=True)
class VariedSupport:
    """Each position of the training draws a task, and a random part of its support set of one of some ``sizes``.

    Endless. ``together`` positions in a row have the same size, so that they can be stacked.
    """

    tasks: Tasks
    sizes: Sequence[int]
    together: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or self.together < 1:
            raise ValueError(f"sizes and together have to be at least 1, got {self.sizes!r} and {self.together}")

    def __getitem__(self, position: int) -> Task:
        """The task at a position, with a part of its support set."""
        if position < 0:
            raise IndexError(f"positions start at 0, got {position}")
        noise, count = Noise(self.seed).fork("varied support"), length_of(self.tasks)
        task = self.tasks[position if count is None else position % count]
        draw = noise.at(step=position // self.together).generator()
        size = self.sizes[int(torch.randint(len(self.sizes), (), generator=draw))]
        if size > task.support.size:
            raise ValueError(f"{task.name} has {task.support.size} support examples, too few for a part of {size}")
        part = torch.randperm(task.support.size, generator=noise.at(task=position).generator())[:size]
        return Task(Examples(task.support.x[part], task.support.y[part]), task.query, task.name)
