"""Tasks of another source with support sets of several sizes, so that a prior learns to use small ones too."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task, Tasks, length_of


@dataclass(frozen=True)
class VariedSupport:
    """Endless tasks: each position draws a task of ``tasks`` and splits its examples anew.

    The support set has one of the ``sizes``, the query set has the size of the task's own and is drawn from the rest.
    Where tasks are few, new splits keep a prior from memorising their query sets.

    Args:
        tasks: the tasks to draw from.
        sizes: sizes of support sets, drawn uniformly.
        together: consecutive positions that have the same size of support set, so that they can be stacked.
        seed: seed of the splits.
    """

    tasks: Tasks
    sizes: Sequence[int]
    together: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or self.together < 1:
            raise ValueError(f"sizes and together must be at least 1, got {self.sizes!r} and {self.together}")

    def __getitem__(self, position: int) -> Task:
        """Return the task at a position, split anew."""
        if position < 0:
            raise IndexError(f"positions start at 0, got {position}")
        noise, count = Noise(self.seed).fork("varied support"), length_of(self.tasks)
        task = self.tasks[position if count is None else position % count]
        draw = noise.at(step=position // self.together).generator()
        size = self.sizes[int(torch.randint(len(self.sizes), (), generator=draw))]
        if size > task.support.size:
            raise ValueError(
                f"{task.name} has {task.support.size} support examples, fewer than the {size} drawn from sizes"
            )
        x, y = (torch.cat(pair) for pair in zip(task.support, task.query, strict=True))
        order = torch.randperm(len(x), generator=noise.at(task=position).generator())
        support, query = order[:size], order[size : size + task.query.size]
        return Task(Examples(x[support], y[support]), Examples(x[query], y[query]), task.name)
