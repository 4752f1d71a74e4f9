"""What a task is, and what a collection of tasks is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from metaprior.checks import (
    array_of,
    as_plain_tensor,
    at_least_single,
    check_counts,
    check_integer,
    moved,
    plain_inputs,
)
from metaprior.inputs import concatenate, form_of, map_parts, parts_of, rows_of, size_of, split, stack
from metaprior.missing import any_of_row, present_numbers
from metaprior.noise import Noise
from metaprior.tasks.datasets import refuse_batches, refuse_unindexed

T = TypeVar("T")

UNNAMED = "task"
"""Name of a task that was given none."""


class Examples(NamedTuple):
    """Inputs x and targets y; the first axis of both is the observations.

    x is a tensor, or a tuple or dictionary of tensors, which are the arguments of the network.
    """

    x: Tensor | Any
    y: Tensor

    @property
    def size(self) -> int:
        """Number of observations."""
        return size_of(self.x)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors: the parts of x, then y."""
        return *parts_of(self.x), self.y

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of all tensors."""
        return form_of(self.tensors)

    def rows(self, index: Tensor) -> "Examples":
        """Return the examples with these indices."""
        x = map_parts(lambda part: part[moved(index, part.device)], self.x)
        return Examples(x, self.y[moved(index, self.y.device)])

    def first(self, count: int) -> "Examples":
        """Return the first ``count`` examples."""
        return Examples(rows_of(self.x, slice(count)), self.y[:count])

    def split(self, sizes: int | list[int]) -> list["Examples"]:
        """Return consecutive examples in groups of one size, or of these sizes."""
        return [Examples(*pair) for pair in zip(split(self.x, sizes), self.y.split(sizes), strict=True)]


def all_examples(several: Sequence[Examples]) -> Examples:
    """Return several examples as one, one after the other; empty ones need not have the same inputs."""
    several = [own for own in several if own.size] or several[:1]
    return Examples(concatenate([own.x for own in several]), torch.cat([own.y for own in several]))


def stacked_examples(several: Sequence[Examples]) -> Examples:
    """Return several examples of equal shapes along a new first axis."""
    return Examples(stack([own.x for own in several]), torch.stack([own.y for own in several]))


class Task(NamedTuple):
    """A support set to adapt to, a query set to score the forecast on, and a name for messages."""

    support: Examples
    query: Examples
    name: str = UNNAMED

    @classmethod
    def split(cls, x: Tensor | Any, y: Tensor, k_shot: int, name: str) -> "Task":
        """Return a task with the first ``k_shot`` examples as support and all others as query."""
        rest = slice(k_shot, None)
        return cls(Examples(x, y).first(k_shot), Examples(rows_of(x, rest), y[rest]), name)


def as_examples(value: object, name: str) -> Examples:
    """Return inputs and targets as ``Examples``; raise TypeError unless they are a pair."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name} must be a pair (x, y) of inputs and targets, got {_said(value)}")

    def array(part: Any) -> Any:
        return array_of(part, name) if hasattr(part, "to_numpy") else part

    return Examples(map_parts(array, value[0]), array(value[1]))


def exact_targets(given: Examples, checked: Examples) -> Tensor:
    """Return real-valued targets in the precision in which they were given, and in the shape in which they were checked
    (without observations that have no target)."""
    y = at_least_single(as_plain_tensor(given.y, "y").to(checked.y.device))
    rows = y if len(y) == len(checked.y) else y[any_of_row(present_numbers(y))]
    return rows.reshape(checked.y.shape)


def as_task(value: object) -> Task:
    """Return the task with both sets as ``Examples``; raise TypeError unless it is a ``Task`` of two pairs."""
    if not isinstance(value, Task):
        remedy = ""
        if isinstance(value, tuple | list) and len(value) == 2:
            of_arrays = "GroupedTasks.from_examples({name: (x, y), ...}, k_shot=..., k_query=...)"
            remedy = f". Try {of_arrays if is_pair(value) else 'Task(*task)'}."
        raise TypeError(
            "a task must be a metaprior.Task(support=(x, y), query=(x, y), name=...), and tasks a list of them or an "
            f"object with tasks by index, got {_said(value)}{remedy}"
        )
    support, query = (as_examples(getattr(value, part), f"{part} of {value.name}") for part in ("support", "query"))
    return Task(support, query, value.name)


def is_pair(value: object) -> bool:
    """Return whether a value is a pair (x, y) of arrays: examples without a division into support and query set."""
    pair = isinstance(value, tuple | list) and not isinstance(value, Task) and len(value) == 2
    return pair and not isinstance(value[1], tuple | list)  # type: ignore[index]


def _said(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, tuple | list) else kind


class Tasks(Protocol):
    """Tasks by index: a list of tasks, or a generator that makes task i from the number i.

    A collection with a length is finite, and training goes through it in shuffled passes. One without a length (or
    whose ``len`` raises TypeError) is endless, and every position is another task. The same index must always give the
    same task: resuming a training and sharing it between processes rely on that.

    Tasks that are read from a disk may set ``thread_safe = True``: a second thread then reads the next tasks while the
    present ones are used.
    """

    def __getitem__(self, index: int, /) -> Task:
        """Return the task with this index."""


def as_tasks(tasks: T | Mapping[str, Task]) -> T | list[Task]:
    """Return tasks by index; tasks by name become a list of tasks that have these names."""
    refuse_batches(tasks)
    if isinstance(tasks, Task):
        raise TypeError("tasks must be a list of tasks or an object with tasks by index, got a Task. Try [task].")
    if hasattr(tasks, "to_numpy") or isinstance(tasks, Tensor | np.ndarray):
        raise TypeError(
            f"tasks must be a list of tasks or an object with tasks by index, got {type(tasks).__name__}. Try "
            "GroupedTasks.from_table(table, group=..., target=..., k_shot=..., k_query=...)."
        )
    if not isinstance(tasks, Mapping):
        return tasks
    return [as_task(task)._replace(name=str(name)) for name, task in tasks.items()]


def length_of(tasks: Tasks) -> int | None:
    """Return the number of tasks, or None for an endless source."""
    refuse_unindexed(tasks)
    if isinstance(tasks, Mapping):
        raise TypeError(
            f"tasks must be indexed by integers, which a {type(tasks).__name__} is not. Try list(tasks.values())."
        )
    if not hasattr(tasks, "__getitem__"):
        raise TypeError(
            f"tasks must be indexed by integers, which a {type(tasks).__name__} cannot be. Try list(tasks)."
        )
    try:
        count = len(tasks)  # type: ignore[arg-type]
    except TypeError:
        return None
    if count < 1:
        raise ValueError("there are no tasks: the collection is empty")
    return count


def check_index(index: int, count: int | None = None) -> None:
    """Raise IndexError if there is no task with this index; ``count`` is None for an endless source."""
    if index < 0 or (count is not None and index >= count):
        allowed = "0, 1, 2, ..." if count is None else f"0 to {count - 1}"
        raise IndexError(f"there is no task {index}; indices are {allowed}")


def task_at(tasks: Tasks, position: int, seed: int) -> Task:
    """Return the task at a position of the training, a pure function of position and seed."""
    count = length_of(tasks)
    if count is None:
        return as_task(tasks[position])
    turn, place = divmod(position, count)
    order = torch.randperm(count, generator=Noise(seed).fork("task order").at(step=turn).generator())
    return as_task(tasks[int(order[place])])


@dataclass(frozen=True)
class FirstTasks:
    """The first ``count`` tasks of a source."""

    source: Tasks
    count: int
    poll: Callable[[], None] = lambda: None
    """Called whenever a task is asked for, which is a good moment to stop: may raise KeyboardInterrupt."""

    def __len__(self) -> int:
        """Return the number of tasks."""
        return self.count

    def __getitem__(self, index: int) -> Task:
        """Return one of them; ``IndexError`` beyond the last."""
        self.poll()
        if not 0 <= index < self.count:
            raise IndexError(f"there is no task {index}; tasks have the indices 0 to {self.count - 1}")
        return self.source[index]


@dataclass(frozen=True)
class VariedSupport:
    """Endless tasks: each position draws a task of ``tasks`` and splits its examples anew.

    The support set has one of the ``sizes``, the query set has the size of the task's own and is drawn from the rest.
    Where tasks are few, new splits keep a prior from memorising their query sets. A prior that is trained with several
    sizes, 0 among them, is calibrated for all of them.

    Args:
        tasks: the tasks to draw from.
        sizes: sizes of support sets, drawn uniformly; 0 is a task without support examples.
        together: consecutive positions that have the same size of support set, so that they can be stacked.
        seed: seed of the splits.
        past: keep the order of the task's examples (support set first, then query set), which must be their order in
            time: every support example lies before every query example. Tasks with a true attribute ``past`` (those of
            ``GroupedTasks`` with a time) are split like this in any case.
    """

    tasks: Tasks
    sizes: Sequence[int]
    together: int = 1
    seed: int = 0
    past: bool = False

    def __post_init__(self) -> None:
        check_counts(together=self.together)
        if not isinstance(self.sizes, Sequence) or not self.sizes:
            raise ValueError(f"sizes must be support set sizes such as (0, 1, 5) or range(11), got {self.sizes!r}")
        for size in self.sizes:
            check_integer("sizes", size, 0)

    @property
    def thread_safe(self) -> bool:
        """Return whether a second thread may read the next tasks."""
        return bool(getattr(self.tasks, "thread_safe", False))

    def __getitem__(self, position: int) -> Task:
        """Return the task at a position, split anew."""
        if position < 0:
            raise IndexError(f"positions start at 0, got {position}")
        noise, count = Noise(self.seed).fork("varied support"), length_of(self.tasks)
        task = as_task(self.tasks[position if count is None else position % count])
        draw = noise.at(step=position // self.together).generator()
        size = self.sizes[int(torch.randint(len(self.sizes), (), generator=draw))]
        if size > task.support.size:
            raise ValueError(
                f"{task.name} has {task.support.size} support examples, fewer than the {size} drawn from sizes. Try "
                f"tasks whose k_shot is the one number {max(self.sizes)}, or smaller sizes (shots)."
            )
        sets = (task.support, task.query)
        examples = all_examples([Examples(plain_inputs(own.x), as_plain_tensor(own.y, "y")) for own in sets])
        count = examples.size
        rows = torch.randperm(count, generator=noise.at(task=position).generator())[: size + task.query.size]
        rows = rows.sort().values if self.past or getattr(self.tasks, "past", False) else rows
        return Task(examples.rows(rows[:size]), examples.rows(rows[size:]), task.name)
