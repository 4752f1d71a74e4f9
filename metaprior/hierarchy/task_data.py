"""All data of each task: checked when a fit begins, and recognised when they are fetched again."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metaprior import checks
from metaprior.errors import NotFinite
from metaprior.hierarchy.store import Entry
from metaprior.inputs import map_parts, named_parts, rebuilt
from metaprior.likelihoods import Likelihood
from metaprior.missing import TargetCount
from metaprior.network import BayesianNetwork
from metaprior.progress import track
from metaprior.scaling import TargetMoments, TargetScale
from metaprior.tasks.task import (
    UNNAMED,
    Examples,
    Task,
    Tasks,
    as_examples,
    as_task,
    as_tasks,
    exact_targets,
    is_pair,
    length_of,
)

TaskData = Tasks | Sequence[tuple[Tensor, Tensor]] | Mapping[str, Task | tuple[Tensor, Tensor]]
"""Tasks with a length, whose support and query sets are taken together, or examples (x, y); by index or by name."""

MESSAGES = 3
"""Most messages about tasks that are left out in the record of an epoch."""
COMPARED_NUMBERS = 1000
"""Inputs and targets (each) that are compared when a task's data are fetched again."""


class CheckedTasks:
    """Every task's data in the network's types, fetched lazily.

    The constructor goes through all tasks once: it raises for data that cannot be used, and records what a task will
    be recognised by (``entries``: name, size, fingerprint). A task whose numbers are not finite, or that has no target,
    is left out, unless no task remains.
    """

    entries: list[Entry]
    scalar_targets: bool
    """Whether real-valued targets come without a channel axis."""
    count: TargetCount
    """How many targets all tasks have, and how many of them are missing."""
    left_out: list[str]
    """Messages about the tasks that are left out."""

    def __init__(
        self, data: TaskData, network: BayesianNetwork, likelihood: Likelihood, *, progress: bool = False
    ) -> None:
        self._tasks, self._check = _as_tasks(data), checks.PairChecker(network, likelihood)
        self._likelihood, self.scalar_targets = likelihood, False
        self._samples: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._moments: list[TargetMoments] = []
        self.entries, self.left_out = [], []
        for number in track(range(len(self._tasks)), "checking tasks", unit="tasks", show=progress):
            try:
                self.entries.append(self._entry(number))
            except NotFinite as error:
                self.left_out.append(str(error))
        if not self.entries:
            raise NotFinite(f"none of the {len(self._tasks)} tasks can be learned from; the first: {self.left_out[0]}")
        self.count = self._check.count
        if len(self._numbers) < len(self.entries):
            names = [entry.name for entry in self.entries]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"task names must differ, because posteriors are found by name; got {twice!r} twice")

    def data_of(self, entry: Entry, scale: TargetScale) -> Examples:
        """Return a task's data in the network's units; raise if they changed since the constructor saw them."""
        number = self._numbers[entry.name]
        given = _all_examples(self._tasks[number])
        data = Examples(*self._check(*given, entry.name, finite=False))
        if _sample(data) != self._samples[entry.name]:
            raise ValueError(
                f"the data of {entry.name!r} changed during the training: a source must give the same task whenever "
                "it is asked for the same index"
            )
        if not self._likelihood.continuous:
            return data
        return Examples(data.x, scale.to_internal(exact_targets(given, data)).to(data.y.dtype))

    @property
    def losses(self) -> dict[str, Any]:
        """Return what an ``EpochRecord`` says about missing targets and about tasks that are left out."""
        failures = tuple(self.left_out[:MESSAGES])
        return {"missing": self.count.missing, "bad_tasks": len(self.left_out), "failures": failures}

    def warn(self) -> None:
        """Warn of tasks that are left out and of missing targets, if there are any."""
        if self.left_out:
            left, given = len(self.left_out), len(self._tasks)
            warnings.warn(f"{left} of {given} tasks are left out; the first: {self.left_out[0]}", stacklevel=3)
        self.count.warn()

    def target_scale(self) -> TargetScale:
        """Return the scale that standardises the targets of all tasks together."""
        moments = TargetMoments.pooled(self._moments)
        return TargetScale.from_moments(moments, self._like, keep_zero=self._likelihood.keeps_zero)

    def _entry(self, number: int) -> Entry:
        task = self._tasks[number]
        name = str(getattr(task, "name", UNNAMED))
        name = f"{UNNAMED} {number}" if name == UNNAMED else name
        try:
            given = _all_examples(task)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{name}: {error}") from error
        data = Examples(*self._check(*given, name))
        if not data.size:
            raise NotFinite(f"{name}: all of its {given.y.numel()} targets are missing")
        first = not self._numbers
        if first:
            checks.warn_of_scale(data.x)
        if not self._likelihood.labels:
            exact = exact_targets(given, data)
            if self._likelihood.continuous:
                self._moments.append(TargetMoments.of(exact))
            if first:
                self._like, self.scalar_targets = exact, given.y.ndim < exact.ndim
        self._samples[name], self._numbers[name] = _sample(data), number
        return Entry(name, data.size, _shapes(data), fingerprint(data))


def _as_tasks(data: TaskData) -> Sequence[Task]:
    """Return tasks by index, with a length; those of a mapping have its names."""
    if isinstance(data, Mapping):
        tasks = [_called(name, value) for name, value in data.items()]
        length_of(tasks)  # raises if there are none
        return tasks
    if length_of(as_tasks(data)) is None:  # type: ignore[arg-type]
        raise TypeError(
            "tasks must have an end, because every task gets a posterior of its own; "
            "[source[i] for i in range(100)] are the first hundred"
        )
    return data  # type: ignore[return-value]


def _called(name: str, value: Task | tuple[Tensor, Tensor]) -> Task:
    """Return a task with this name; examples become a task without a query set."""
    if isinstance(value, Task):
        return value._replace(name=name)
    return Task(as_examples(value, name), Examples(*[torch.empty(0)] * 2), name)


def _all_examples(given: Task) -> Examples:
    """Return support and query set together."""
    task = as_task(_called(UNNAMED, given) if is_pair(given) else given)
    parts = [task.support, *([task.query] if task.query.size else [])]
    sets = [named_parts(checks.plain_inputs(part.x)) for part in parts]
    if any(own.keys() != sets[0].keys() for own in sets):
        raise ValueError(
            f"x of support and query set must have the same parts, got {' and '.join(map(str, map(list, sets)))}"
        )
    x = rebuilt(parts[0].x, [_joined([own[name] for own in sets], name) for name in sets[0]])
    return Examples(x, _joined([part.y for part in parts], "y"))


def _joined(values: Sequence[object], name: str) -> Tensor:
    tensors = [checks.as_plain_tensor(value, name) for value in values]
    if len({tensor.shape[1:] for tensor in tensors}) > 1:
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(
            f"{name} of support and query set must have the same shape behind the first axis, got {shapes}"
        )
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _shapes(examples: Examples) -> str:
    named = {**named_parts(examples.x), "y": examples.y}
    return ", ".join(f"{name} {tuple(values.shape)} {values.dtype}" for name, values in named.items())


def fingerprint(examples: Examples) -> str:
    """Return a digest of the numbers, types and shapes of some examples; one NaN is like another."""
    digest = hashlib.blake2b(_shapes(examples).encode(), digest_size=16)
    for given in examples.tensors:
        values = torch.where(given.isnan(), torch.nan, given) if given.is_floating_point() else given
        digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _sample(examples: Examples) -> str:
    """Return a digest of a few of the numbers, which is cheap enough for every visit."""

    def some(values: Tensor) -> Tensor:
        flat = values.reshape(-1)
        return flat[:: max(1, len(flat) // COMPARED_NUMBERS)].contiguous()

    return f"{_shapes(examples)} {fingerprint(Examples(map_parts(some, examples.x), some(examples.y)))}"


def new_tasks(stored: Sequence[Entry], given: Sequence[Entry], *, growing: bool, folder: Path) -> list[Entry]:
    """Return the given tasks that the store does not have yet.

    Raises:
        ValueError: if a stored task is missing or has other data, or if tasks are new and ``growing`` is false.
    """
    before = {entry.name: entry for entry in stored if not entry.forgotten}
    now = {entry.name: entry for entry in given}
    missing = [name for name in before if name not in now]
    changed = [name for name, entry in before.items() if name in now and now[name].fingerprint != entry.fingerprint]
    new = [entry for entry in given if entry.name not in before]
    if missing:
        raise ValueError(
            f"{len(missing)} of the {len(before)} tasks in {folder} are not among the given ones, first "
            f"{missing[0]!r}. Give them again, or take them out with forget(name); nothing was changed"
        )
    if changed:
        then, present = before[changed[0]].observations, now[changed[0]].observations
        raise ValueError(
            f"{len(changed)} tasks have other data than when they were learned, first {changed[0]!r} ({then} "
            f"observations then, {present} now). Give them another name, or forget(name) first; nothing was changed"
        )
    if new and not growing:
        raise ValueError(
            f"{len(new)} tasks are new, first {new[0].name!r}: a stopped fit must first be finished with the tasks it "
            "was started with (resume=True); then call fit with all"
        )
    return new
