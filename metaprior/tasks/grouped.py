"""Tasks from a data set whose examples belong to groups (a station, a patient, a day), one group a task."""

import warnings
from collections.abc import Hashable, Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from metaprior.checks import check_counts
from metaprior.noise import Noise
from metaprior.tasks.task import Task, check_index


class PairDataset(Protocol):
    """A map-style data set: a length, and by index a pair (x, y) of tensors, arrays or numbers."""

    def __len__(self) -> int:
        """Return the number of examples."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the pair (x, y) with this index."""


class GroupedTasks:
    """Tasks from the groups of a data set: task i draws ``k_shot + k_query`` different examples of one group.

    Args:
        dataset: ``dataset[i]`` is a pair (x, y) of tensors, arrays or numbers.
        groups: the group of every example, anything that can be a dictionary's key (or an array of them).
        k_shot: support examples of a task.
        k_query: query examples of a task, all different from the support examples.
        seed: seed of all draws.
        draws: tasks made of a group, each with examples of its own drawing. There are groups * draws tasks; index i is
            draw ``i // num_groups`` of group ``i % num_groups``, groups in the order in which they first appear.

    Groups with too few examples make no task: a warning counts them and ``skipped`` has their sizes; ``groups`` are the
    others in the order of their tasks. Floating-point values become float32 and integers int64; a floating-point scalar
    gives shape (k, 1), an integer scalar is a class label and gives (k,).
    """

    skipped: dict[Hashable, int]

    def __init__(
        self,
        dataset: PairDataset,
        groups: Iterable[Hashable],
        k_shot: int,
        k_query: int,
        seed: int = 0,
        draws: int = 1,
    ) -> None:
        check_counts(k_shot=k_shot, k_query=k_query, draws=draws)
        self.dataset = dataset
        self.k_shot, self.k_query, self.seed, self.draws = k_shot, k_query, seed, draws
        members, needed = _members(groups, len(dataset)), k_shot + k_query
        self.skipped = {group: len(rows) for group, rows in members.items() if len(rows) < needed}
        self._members = {group: rows for group, rows in members.items() if len(rows) >= needed}
        self.groups = list(self._members)
        if not self._members:
            raise ValueError(
                f"no group has the {needed} examples that a task needs (k_shot + k_query); of {len(members)} groups "
                f"the largest has {max(self.skipped.values(), default=0)}. Choose a smaller k_shot or k_query"
            )
        if self.skipped:
            warnings.warn(
                f"{len(self.skipped)} of {len(members)} groups have fewer than the {needed} examples that a task needs "
                "and make no task; the attribute 'skipped' has their sizes",
                stacklevel=2,
            )

    def __len__(self) -> int:
        """Return the number of tasks: groups times draws."""
        return len(self._members) * self.draws

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 to len - 1; its name is that of its group."""
        check_index(index, len(self))
        draw, number = divmod(index, len(self._members))
        group = self.groups[number]
        rows = self._members[group]
        generator = Noise(self.seed).fork("grouped tasks").at(task=number, step=draw).generator()
        order = torch.randperm(len(rows), generator=generator)[: self.k_shot + self.k_query].tolist()
        pairs = [self._pair(rows[place]) for place in order]
        x, y = (_stacked(values, group) for values in zip(*pairs, strict=True))
        return Task.split(x, y, self.k_shot, str(group))

    def _pair(self, row: int) -> tuple[Tensor, Tensor]:
        pair = self.dataset[row]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"example {row} of the data set must be a pair (x, y), got {type(pair).__name__}")
        return _tensor(pair[0], f"x of example {row}"), _tensor(pair[1], f"y of example {row}")


def _members(groups: Iterable[Hashable], count: int) -> dict[Hashable, list[int]]:
    """Return the rows of every group, groups in the order of their first appearance."""
    # Elements of a tensor would not do as keys: two equal ones are different keys.
    labels = groups.tolist() if isinstance(groups, Tensor | np.ndarray) else list(groups)
    if len(labels) != count:
        raise ValueError(f"the data set has {count} examples and there are {len(labels)} group labels; give one each")
    members: dict[Hashable, list[int]] = {}
    for row, given in enumerate(labels):
        label = given.item() if isinstance(given, Tensor) else given
        if label != label:
            raise ValueError(f"the group of example {row} is NaN; leave such examples out, or name their group")
        members.setdefault(label, []).append(row)
    return members


def _tensor(value: object, name: str) -> Tensor:
    """Return floating point as float32 with at least one axis, integers as int64."""
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a tensor, an array or a number, got {type(value).__name__}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers or integers, got {tensor.dtype}. Convert it in the data set.")
    if not tensor.is_floating_point():
        return tensor.long()
    return tensor.float() if tensor.ndim else tensor.float()[None]


def _stacked(values: tuple[Tensor, ...], group: Hashable) -> Tensor:
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) > 1:
        raise ValueError(f"examples of group {group!r} have different shapes, {sorted(shapes)}; a task needs one shape")
    return torch.stack(values)
