"""Rows of a table by group, and tasks made of them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task, check_index

MOST_SUPPORT, MOST_QUERY = 100, 32
"""Most rows of a group in the support and the query set of a training task."""

Rows = npt.NDArray[np.int64]


def labels_of(groups: Any, count: int) -> list[Hashable]:
    """Return the group of every row; raise ValueError unless there is one for each of ``count`` rows."""
    values = np.asarray(groups, dtype=object)
    if values.shape != (count,):
        raise ValueError(f"groups must be {count} labels, one for each row of X, got the shape {values.shape}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in values]
    missing = [row for row, label in enumerate(labels) if label is None or label != label]
    if missing:
        raise ValueError(
            f"groups must have a label for every row, got {len(missing)} missing ones, first in row {missing[0]}. Try "
            "groups=None in predict for rows of a group that is not known"
        )
    return labels


def rows_by_group(labels: Sequence[Hashable]) -> dict[Hashable, Rows]:
    """Return the rows of every group, groups in the order of their first row."""
    rows: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    return {label: np.asarray(own) for label, own in rows.items()}


def some_rows(groups: Sequence[Examples], most: int, seed: int) -> list[Examples]:
    """Return groups with at most ``most`` rows in all: of groups above an equal share, rows drawn at random."""
    sizes = sorted(group.size for group in groups)
    left, share = most, sizes[-1]
    for place, size in enumerate(sizes):
        share = max(1, left // (len(sizes) - place))
        if size > share:
            break
        left -= size
    else:
        return list(groups)
    noise = Noise(seed).fork("rows of groups")
    return [
        group.rows(torch.randperm(group.size, generator=noise.at(task=place).generator())[:share].sort().values)
        for place, group in enumerate(groups)
    ]


@dataclass(frozen=True)
class GroupSplits:
    """Endless tasks: every position splits a group anew into a support set of random size, and the query set.

    Sizes go from none to all rows but one; the ``together`` tasks of a meta-batch have the same share of their rows.
    """

    groups: Sequence[Examples]
    together: int
    seed: int

    def __getitem__(self, position: int) -> Task:
        """Return the task at a position."""
        check_index(position)
        turn, place = divmod(position, len(self.groups))
        noise = Noise(self.seed).fork("splits of groups")
        order = torch.randperm(len(self.groups), generator=noise.fork("order").at(step=turn).generator())
        share = float(torch.rand((), generator=noise.fork("share").at(step=position // self.together).generator()))
        examples = self.groups[int(order[place])]
        rows = torch.randperm(examples.size, generator=noise.at(task=position).generator())
        support = int(share * min(examples.size, MOST_SUPPORT + 1))
        return Task(examples.rows(rows[:support]), examples.rows(rows[support : support + MOST_QUERY]), str(place))


def held_out(count: int, share: float, most: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the groups to learn from, and of those that are held out."""
    order = torch.randperm(count, generator=Noise(seed).fork("groups held out").generator()).tolist()
    apart = min(most, round(share * count))
    return sorted(order[apart:]), sorted(order[:apart])


def folds(size: int, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over (other rows, rows) for ``count`` random parts of the rows 0 to size - 1; none of a single row."""
    parts = torch.randperm(size, generator=Noise(seed).fork("folds").generator()).chunk(min(count, size))
    for number, rows in enumerate(parts):
        if others := parts[:number] + parts[number + 1 :]:
            yield torch.cat(others), rows
