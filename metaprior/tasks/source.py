"""Where tasks come from: anything that gives the same task whenever it is asked for the same index."""

from collections.abc import Mapping
from typing import Protocol

import torch

from metaprior.noise import Noise
from metaprior.tasks.task import Task, as_task


class Tasks(Protocol):
    """Tasks by index: a list of tasks, or a generator that makes task i from the number i.

    One with a length is finite, and training goes through it in shuffled passes; one without (or whose ``len`` raises
    TypeError) is endless, and every position is another task. Asking twice for an index has to give the same task: that
    is what lets a stopped training go on as if nothing had happened, and lets several processes share the work.

    A source that reads from a disk may say ``thread_safe = True``: the next tasks are then read by a second thread
    while these are computed with, also while others are asked for. Without it all happens in the caller's thread.
    """

    def __getitem__(self, index: int, /) -> Task:
        """The task with this index."""


def length_of(tasks: Tasks) -> int | None:
    """Number of tasks, or None for an endless source."""
    if isinstance(tasks, Mapping):
        raise TypeError(
            f"tasks are asked for by index, which a {type(tasks).__name__} is not; list(tasks.values()) makes a list"
        )
    if not hasattr(tasks, "__getitem__"):
        raise TypeError(
            f"tasks are asked for by index, which a {type(tasks).__name__} cannot be; list(tasks) makes a list"
        )
    try:
        count = len(tasks)  # type: ignore[arg-type]
    except TypeError:
        return None
    if count < 1:
        raise ValueError("there are no tasks: the collection is empty")
    return count


def task_at(tasks: Tasks, position: int, seed: int) -> Task:
    """The task at a position of the training: a pure function of position and seed, so nothing needs to be stored."""
    count = length_of(tasks)
    if count is None:
        return as_task(tasks[position])
    turn, place = divmod(position, count)
    order = torch.randperm(count, generator=Noise(seed).fork("task order").at(step=turn).generator())
    return as_task(tasks[int(order[place])])
