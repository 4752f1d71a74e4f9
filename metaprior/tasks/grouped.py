"""Tasks from data whose examples belong to groups (a station, a patient, a day), one group a task."""

import copy
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from metaprior.checks import as_plain_tensor, check_counts, check_integer, plain_inputs, same_length, warn_caller
from metaprior.inputs import named_parts, parts_of, rebuilt
from metaprior.noise import Noise
from metaprior.tasks.datasets import joined
from metaprior.tasks.folder import FolderData
from metaprior.tasks.tables import Choice, Column, Columns, Table, group_labels, missing, plain_labels
from metaprior.tasks.task import Examples, Task, all_examples, as_examples, check_index, stacked_examples


class PairDataset(Protocol):
    """A map-style data set: a length, and by index a pair (x, y) of tensors, arrays or numbers."""

    def __len__(self) -> int:
        """Return the number of examples."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the pair (x, y) with this index."""


class _Rows(Protocol):
    @property
    def size(self) -> int: ...
    def rows(self, index: Tensor) -> Examples: ...


class GroupedTasks:
    """Tasks from the groups of some data: task i draws ``k_shot + k_query`` different examples of one group.

    ``from_table``, ``from_folder``, ``from_examples`` and ``from_datasets`` make one of data in other forms.

    Args:
        dataset: ``dataset[i]`` is a pair (x, y) of tensors, arrays or numbers; or ``Examples`` with all x and y.
        groups: the group of every example, anything that can be a dictionary's key (or an array of them).
        k_shot: support examples of a task; several numbers such as (0, 1, 5) or range(11) are drawn from for every
            task. (``VariedSupport`` gives the tasks of a meta-batch the same size.)
        k_query: query examples of a task, all different from the support examples.
        seed: seed of all draws.
        draws: tasks made of a group, each with examples of its own drawing. There are groups * draws tasks; index i is
            draw ``i // num_groups`` of group ``i % num_groups``, groups in the order in which they first appear.
        time: the time of every example, numbers. The support set of a task then lies before its query set: a moment
            between two examples is drawn, support examples from those before it and query examples from those after
            it, both in the order of time. Examples of the same time are never on both sides.

    Groups with too few examples make no task: a warning counts them and ``skipped`` has their sizes; ``groups`` are the
    others in the order of their tasks. ``past`` says whether there is a time. Floating-point values become float32 and
    integers int64. Of a data set, a floating-point scalar gives shape (k, 1), an integer scalar is a class label and
    gives (k,); targets of ``Examples`` keep their shape.
    """

    skipped: dict[Hashable, int]
    groups: list[Hashable]
    past: bool

    def __init__(
        self,
        dataset: PairDataset | Examples,
        groups: Iterable[Hashable],
        k_shot: int | Sequence[int],
        k_query: int,
        seed: int = 0,
        draws: int = 1,
        *,
        time: Sequence[float] | Tensor | None = None,
    ) -> None:
        self.sizes = _sizes(k_shot)
        check_counts(k_query=k_query, draws=draws)
        self.dataset, self.k_shot, self.k_query, self.seed, self.draws = dataset, k_shot, k_query, seed, draws
        self._data, self.past = _rows_of(dataset), time is not None
        members, times = _members(groups, self._data.size), _times(time, self._data.size)
        formed = {label: _Group.of(rows, times) for label, rows in members.items()}
        fits = {label: group for label, group in formed.items() if group.fits(max(self.sizes), k_query)}
        self.skipped = {label: len(rows) for label, rows in members.items() if label not in fits}
        self.groups = list(fits)
        self._groups = list(enumerate(fits.values()))  # with the number that a group's draws are a function of
        self._refuse_or_warn_of_skipped("" if time is None else ", with the support before the query")

    def _refuse_or_warn_of_skipped(self, condition: str) -> None:
        needed, count = max(self.sizes) + self.k_query, len(self.skipped) + len(self.groups)
        if not self.groups:
            raise ValueError(
                f"no group has the {needed} examples that a task needs (k_shot + k_query{condition}); of {count} "
                f"groups the largest has {max(self.skipped.values(), default=0)}. Choose a smaller k_shot or k_query"
            )
        if self.skipped:
            warn_caller(
                f"{len(self.skipped)} of {count} groups have fewer than the {needed} examples that a task needs"
                f"{condition} and make no task; the attribute 'skipped' has their sizes"
            )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        group: Column,
        target: Columns,
        features: Columns | None = None,
        time: Column | None = None,
        k_shot: int | Sequence[int],
        k_query: int,
        seed: int = 0,
        draws: int = 1,
    ) -> Self:
        """Return tasks from the rows of a table.

        Args:
            table: a pandas or polars data frame, a mapping from names to columns, a structured array, or a 2-D array,
                whose columns are called 0, 1, ... (``dict(zip(names, array.T))`` gives them names).
            group: the column with the group of every row.
            target: the column to forecast, or a list of columns. Numbers become float32, where NaN is a missing target;
                integers are class labels, where -100 is a missing one. Forecasts have the shape (N,) for a column by
                its name, and (N, C) for a list.
            features: the columns to forecast from; None takes all that have no other role. Numbers become float32. A
                column with several axes (images in a mapping) is taken alone.
            time: the column with the time of every row: numbers, dates or ISO 8601 text. The support set of a task then
                lies before its query set, as the class describes.
            k_shot: support examples of a task, or several numbers to draw from.
            k_query: query examples of a task.
            seed: seed of all draws.
            draws: tasks made of a group.

        Raises:
            ValueError: for unknown columns, missing groups and times, and (``NotFinite``) missing features.
            TypeError: for columns that are not numbers.
        """
        columns, choice = Table(table), Choice(target, features, time, others=(group,))
        labels, examples, times = group_labels(columns, group), choice.examples(columns), choice.times(columns)
        return cls(examples, labels, k_shot, k_query, seed, draws, time=times)

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        *,
        target: Columns,
        features: Columns | None = None,
        time: Column | None = None,
        k_shot: int | Sequence[int],
        k_query: int,
        seed: int = 0,
        draws: int = 1,
    ) -> Self:
        """Return tasks from the files of a folder, one file a group: CSV with a header, Parquet, or NPZ.

        A group has the name of its file without the ending; groups are in the order of names. Columns are as in
        ``from_table``, and the features of the first file if there are none given. All files are checked at once; about
        256 MiB of them are kept in memory and the others are read again for every task. Files of other kinds are named
        in a warning, and hidden ones ignored.
        """
        data = FolderData(Path(folder), Choice(target, features, time))
        labels = [name for name, size in zip(data.groups, data.sizes, strict=True) for _ in range(size)]
        return cls(data, labels, k_shot, k_query, seed, draws, time=data.times)  # type: ignore[arg-type]

    @classmethod
    def from_examples(
        cls,
        examples: Mapping[str, tuple[Any, Any]],
        *,
        k_shot: int | Sequence[int],
        k_query: int,
        past: bool = False,
        seed: int = 0,
        draws: int = 1,
    ) -> Self:
        """Return tasks from examples (x, y) by the name of their group.

        With ``past=True`` the examples of a group are in the order of time, and support sets lie before query sets.
        """
        parts = {name: as_examples(pair, repr(name)) for name, pair in examples.items()}
        if not parts:
            raise ValueError("examples must have at least one group, got none")
        pairs = [
            Examples(_inputs(x, "x", f" of {name!r}"), _tensor(as_plain_tensor(y, "y"), f"y of {name!r}"))
            for name, (x, y) in parts.items()
        ]
        if odd := [name for name, own in zip(parts, pairs, strict=True) if {*map(len, own.tensors)} != {own.size}]:
            raise ValueError(f"x and y of a group must have the same length, got other ones in {odd[0]!r}")
        _refuse_shapes([{**named_parts(own.x), "y": own.y} for own in pairs], axis=1)
        joined = all_examples(pairs)
        labels = [name for name, own in zip(parts, pairs, strict=True) for _ in range(own.size)]
        return cls(joined, labels, k_shot, k_query, seed, draws, time=torch.arange(joined.size) if past else None)

    @classmethod
    def from_datasets(
        cls,
        datasets: Mapping[str, Dataset[Any]],
        *,
        k_shot: int | Sequence[int],
        k_query: int,
        past: bool = False,
        seed: int = 0,
        draws: int = 1,
    ) -> Self:
        """Return tasks from torch data sets by the name of their group, each with pairs (x, y) by index.

        Only the examples of a task are read, when it is asked for. With ``past=True`` the examples of a data set are in
        the order of time, and support sets lie before query sets.
        """
        rows, labels = joined(datasets)
        return cls(rows, labels, k_shot, k_query, seed, draws, time=torch.arange(len(labels)) if past else None)

    def split(self, share: float, *, seed: int = 0) -> tuple[Self, Self]:
        """Return tasks of most groups, and tasks of the ``share`` of groups that is kept apart, both at least one.

        Which groups these are is a function of the seed and the number of groups; a group keeps its tasks.
        """
        count = len(self.groups)
        if not 0 < share < 1 or count < 2:
            raise ValueError(f"share must lie between 0 and 1 with at least 2 groups, got {share!r} and {count} groups")
        order = torch.randperm(count, generator=Noise(seed).fork("split of groups").generator()).tolist()
        apart = min(max(1, round(share * count)), count - 1)
        return self._of(sorted(order[apart:])), self._of(sorted(order[:apart]))

    def _of(self, places: Sequence[int]) -> Self:
        part = copy.copy(self)
        part.groups, part._groups = [self.groups[i] for i in places], [self._groups[i] for i in places]
        part.skipped = {}
        return part

    @property
    def thread_safe(self) -> bool:
        """Return whether a second thread may read the next tasks."""
        return not isinstance(self._data, _Pairs) or bool(getattr(self.dataset, "thread_safe", False))

    def __len__(self) -> int:
        """Return the number of tasks: groups times draws."""
        return len(self.groups) * self.draws

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 to len - 1; its name is that of its group."""
        check_index(index, len(self))
        draw, place = divmod(index, len(self.groups))
        label, (number, group) = self.groups[place], self._groups[place]
        noise = Noise(self.seed).fork("grouped tasks").at(task=number, step=draw)
        k_shot = self.sizes[int(torch.randint(len(self.sizes), (), generator=noise.fork("size").generator()))]
        try:
            drawn = self._data.rows(group.draw(k_shot, self.k_query, noise.generator()))
        except (TypeError, ValueError) as error:
            raise type(error)(f"group {label!r}: {error}") from error
        return Task.split(*drawn, k_shot, str(label))


@dataclass(frozen=True)
class _Group:
    """Rows of a group, in the order of time if there is one; ``cuts`` are the places at which time has passed."""

    rows: Tensor
    cuts: Tensor | None = None

    @classmethod
    def of(cls, rows: Sequence[int], times: Tensor | None) -> "_Group":
        index = torch.tensor(rows)
        if times is None:
            return cls(index)
        sorted_times, order = times[index].sort(stable=True)
        return cls(
            index[order], torch.cat([torch.zeros(1, dtype=torch.int64), sorted_times.diff().nonzero()[:, 0] + 1])
        )

    def fits(self, k_shot: int, k_query: int) -> bool:
        """Return whether a task of these sizes can be drawn."""
        return len(self.rows) >= k_shot + k_query and (self.cuts is None or len(self._between(k_shot, k_query)) > 0)

    def draw(self, k_shot: int, k_query: int, generator: torch.Generator) -> Tensor:
        """Return the rows of a support set, then those of a query set."""
        count = len(self.rows)
        if self.cuts is None:
            return self.rows[torch.randperm(count, generator=generator)[: k_shot + k_query]]
        cuts = self._between(k_shot, k_query)
        cut = int(cuts[torch.randint(len(cuts), (), generator=generator)])
        before = torch.randperm(cut, generator=generator)[:k_shot].sort().values
        after = torch.randperm(count - cut, generator=generator)[:k_query].sort().values
        return self.rows[torch.cat([before, cut + after])]

    def _between(self, k_shot: int, k_query: int) -> Tensor:
        cuts = torch.empty(0) if self.cuts is None else self.cuts
        return cuts[(cuts >= k_shot) & (cuts <= len(self.rows) - k_query)]


@dataclass(frozen=True)
class _Pairs:
    """A map-style data set, read row by row."""

    dataset: PairDataset

    @property
    def size(self) -> int:
        return len(self.dataset)

    def rows(self, index: Tensor) -> Examples:
        pairs = [self._pair(row) for row in index.tolist()]
        _refuse_shapes([{**named_parts(own.x), "y": own.y} for own in pairs])
        return stacked_examples(pairs)

    def _pair(self, row: int) -> Examples:
        pair = self.dataset[row]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"example {row} of the data set must be a pair (x, y), got {type(pair).__name__}")
        named = {name: _tensor(part, f"{name} of example {row}") for name, part in named_parts(pair[0]).items()}
        return Examples(rebuilt(pair[0], [*named.values()]), _tensor(pair[1], f"y of example {row}"))


def _rows_of(dataset: PairDataset | Examples) -> _Rows:
    if isinstance(dataset, FolderData):
        return dataset
    if not isinstance(dataset, Examples):
        return _Pairs(dataset)
    x, y = _inputs(dataset.x, "x"), _tensor(as_plain_tensor(dataset.y, "y"), "y")
    for part in parts_of(x):
        same_length(part, y)
    return Examples(x, y)


def _sizes(k_shot: int | Sequence[int]) -> Sequence[int]:
    sizes = k_shot if isinstance(k_shot, Sequence) and len(k_shot) else [k_shot]
    for size in sizes:
        check_integer("k_shot", size, 0)
    return sizes  # type: ignore[return-value]


def _times(time: Any, count: int) -> Tensor | None:
    if time is None:
        return None
    times = torch.as_tensor(time)
    if times.shape != (count,) or not bool(times.isfinite().all()):
        raise ValueError(f"time must be {count} finite numbers, one for each example, got {tuple(times.shape)}")
    return times


def _members(groups: Iterable[Hashable], count: int) -> dict[Hashable, list[int]]:
    """Return the rows of every group, groups in the order of their first appearance."""
    # Elements of a tensor would not do as keys: two equal ones are different keys.
    given = groups.cpu().numpy() if isinstance(groups, Tensor) else groups
    labels = plain_labels(given) if isinstance(given, np.ndarray) else list(given)
    if len(labels) != count:
        raise ValueError(f"the data set has {count} examples and there are {len(labels)} group labels; give one each")
    members: dict[Hashable, list[int]] = {}
    for row, one in enumerate(labels):
        label = one.item() if isinstance(one, Tensor) else one
        if label is not None and missing(label):
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


def _inputs(values: object, name: str, where: str = "") -> Any:
    """Return all inputs of a group, with a second axis if they are floating point."""

    def own(part: Tensor, own_name: str) -> Tensor:
        tensor = _tensor(part, own_name + where)
        return tensor[:, None] if tensor.is_floating_point() and tensor.ndim == 1 else tensor

    plain = plain_inputs(values, name, where)
    return rebuilt(plain, [own(part, own_name) for own_name, part in named_parts(plain, name).items()])


def _refuse_shapes(examples: Sequence[Mapping[str, Tensor]], axis: int = 0) -> None:
    """Raise unless the tensors of a name have one shape (from an axis on) in all examples."""
    if odd := next((own for own in examples if own.keys() != examples[0].keys()), None):
        raise ValueError(f"examples must have the same inputs, got {', '.join(examples[0])} and {', '.join(odd)}")
    for name in examples[0]:
        shapes = {tuple(own[name].shape[axis:]) for own in examples}
        if len(shapes) > 1:
            raise ValueError(f"examples have different shapes, {sorted(shapes)}; a task needs one shape")
