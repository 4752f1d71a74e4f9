"""All data of each task: checked on their way in, and recognised when they come again."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from metaprior import checks
from metaprior.hierarchy.store import Entry
from metaprior.metagrad.problem import Problem
from metaprior.tasks.source import Tasks, length_of
from metaprior.tasks.task import Examples, Task

TaskData = Tasks | Mapping[str, tuple[Tensor, Tensor]]
"""Tasks with a length, of which support and query set are taken together; or examples (x, y) by name."""


GLANCE = 1000
"""Numbers of inputs and of targets that are compared when a task's data are fetched again."""


class CheckedTasks:
    """Every task's data in the network's types, fetched when they are asked for.

    All are looked at once when this is made: whether they are usable, and what they will be recognised by (``entries``:
    name, size, fingerprint).
    """

    entries: list[Entry]

    def __init__(self, data: TaskData, problem: Problem, *, progress: bool = False) -> None:
        self._tasks, self._problem = _as_tasks(data), problem
        self._output_shapes: dict[tuple[bool, tuple[int, ...]], torch.Size] = {}
        self._glances: list[str] = []
        numbers = tqdm(range(len(self._tasks)), "tasks", unit="task", disable=not progress, delay=2)
        self.entries = [self._entry(number) for number in numbers]
        self._numbers = {entry.name: number for number, entry in enumerate(self.entries)}
        if len(self._numbers) < len(self.entries):
            names = [entry.name for entry in self.entries]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two tasks are called {twice!r}; a posterior is found by its task's name, so all differ")

    def __iter__(self) -> Iterator[tuple[str, Examples]]:
        """Name and data of each."""
        return ((entry.name, self.data_of(entry)) for entry in self.entries)

    def data_of(self, entry: Entry) -> Examples:
        """The data that were there when the task was first looked at, or an error."""
        number = self._numbers[entry.name]
        data = self._in_types(_everything(self._tasks[number]))
        if _glance(data) != self._glances[number]:
            raise ValueError(
                f"the data of {entry.name!r} changed during the training: asking twice for a task has to give the same"
            )
        return data

    @property
    def scalar_targets(self) -> bool:
        """Whether real-valued targets come without a channel axis."""
        first = self._tasks[0]
        return self._problem.likelihood.continuous and _everything(first).y.ndim < self._checked(first).y.ndim

    def _entry(self, number: int) -> Entry:
        task = self._tasks[number]
        data = self._checked(task)
        self._glances.append(_glance(data))
        return Entry(task.name, data.size, _shapes(data), fingerprint(data))

    def _checked(self, task: Task) -> Examples:
        """The network is run on the first task of every kind; numbers, types and shapes of all are looked at."""
        network = self._problem.network
        try:
            data = _everything(task)
            x = checks.inputs(data.x, dtype=network.dtype, device=network.device)
            y = checks.as_tensor(data.y, "y", device=network.device)
            checks.same_length(x, y)
            if _kind(x) not in self._output_shapes:
                self._output_shapes[_kind(x)] = network.check_forward(x)
            checked = self._in_types(Examples(x, y))
            checks.refuse_non_finite(checked.y, f"y (converted to {network.dtype})")
            return checked
        except (ValueError, TypeError) as error:
            raise type(error)(f"{getattr(task, 'name', task)}: {error}") from error

    def _in_types(self, data: Examples) -> Examples:
        """As the network and the likelihood take them."""
        network = self._problem.network
        x, y = data.x.to(network.device), data.y.to(network.device)
        x = x.to(network.dtype) if x.is_floating_point() else x
        y = self._problem.likelihood.check_targets(y, self._output_shapes[_kind(x)])
        return Examples(x, y.to(network.dtype) if y.is_floating_point() else y)


def _kind(x: Tensor) -> tuple[bool, tuple[int, ...]]:
    """Whether inputs are real numbers, and the shape of one."""
    return x.is_floating_point(), tuple(x.shape[1:])


def _as_tasks(data: TaskData) -> Sequence[Task]:
    """Tasks by index and with a length; examples by name become tasks without a query set."""
    if isinstance(data, Mapping):
        tasks = [Task(as_examples(pair, name), Examples(*[torch.empty(0)] * 2), name) for name, pair in data.items()]
        length_of(tasks)  # says so if there are none
        return tasks
    if length_of(data) is None:
        raise TypeError(
            "every task has a posterior of its own here, so there has to be an end to them: "
            "[source[i] for i in range(100)] are the first hundred"
        )
    return data  # type: ignore[return-value]


def as_examples(pair: object, name: str) -> Examples:
    """A pair (x, y), or an error that says what it is instead."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        found = f"{len(pair)} things" if isinstance(pair, tuple | list) else type(pair).__name__
        raise TypeError(f"{name}: examples are a pair (x, y) of tensors or arrays, got {found}")
    return Examples(*pair)


def _everything(task: Task) -> Examples:
    """Support and query set together."""
    if not isinstance(task, Task):
        raise TypeError(
            f"tasks are metaprior.Task(support, query, name), or a dictionary of examples (x, y) by name; got a "
            f"{type(task).__name__}"
        )
    parts = [task.support, *([task.query] if len(task.query.x) else [])]
    return Examples(_joined([part.x for part in parts], "x"), _joined([part.y for part in parts], "y"))


def _joined(values: Sequence[object], name: str) -> Tensor:
    tensors = [checks.as_plain_tensor(value, name) for value in values]
    if len({tensor.shape[1:] for tensor in tensors}) > 1:
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"{name} of support and query set have shapes {shapes}, which do not belong together")
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _shapes(examples: Examples) -> str:
    return ", ".join(f"{name} {tuple(values.shape)} {values.dtype}" for name, values in examples._asdict().items())


def fingerprint(examples: Examples) -> str:
    """The same for the same numbers in the same types and shapes."""
    digest = hashlib.blake2b(_shapes(examples).encode(), digest_size=16)
    for values in examples:
        digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _glance(examples: Examples) -> str:
    """A fingerprint of a few of the numbers, for data that are fetched again and again."""
    flat = (values.reshape(-1) for values in examples)
    few = Examples(*(values[:: max(1, len(values) // GLANCE)].contiguous() for values in flat))
    return f"{_shapes(examples)} {fingerprint(few)}"


def new_tasks(stored: Sequence[Entry], given: Sequence[Entry], *, growing: bool, folder: Path) -> list[Entry]:
    """The given tasks that the store does not have yet.

    Raises if one of the store is gone or has other data, or if there are new ones where none may come (``growing``).
    """
    before = {entry.name: entry for entry in stored if not entry.forgotten}
    now = {entry.name: entry for entry in given}
    gone = [name for name in before if name not in now]
    changed = [name for name, entry in before.items() if name in now and now[name].fingerprint != entry.fingerprint]
    new = [entry for entry in given if entry.name not in before]
    if gone:
        raise ValueError(
            f"{len(gone)} of the {len(before)} tasks in {folder} are not among the given ones, first {gone[0]!r}. "
            "Give them again, or take them out with forget(name); nothing was changed"
        )
    if changed:
        then, present = before[changed[0]].observations, now[changed[0]].observations
        raise ValueError(
            f"{len(changed)} tasks have other data than when they were learned, first {changed[0]!r} ({then} "
            f"observations then, {present} now). Give them another name, or forget(name) first; nothing was changed"
        )
    if new and not growing:
        raise ValueError(
            f"{len(new)} tasks are new, first {new[0].name!r}: a fit that was stopped is first finished with the tasks "
            "it was started with (resume=True); then call fit with all"
        )
    return new
