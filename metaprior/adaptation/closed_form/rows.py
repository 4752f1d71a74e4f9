"""Examples of one or several tasks as rows of features and targets, for the linear algebra."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

PADDING = {"scale": 1.0}
"""What rows are padded with where zero would not do."""
NOTHING = torch.empty(0)
"""Targets of rows that have none."""


class Rows(NamedTuple):
    """Examples of T tasks, n observations of P positions (pixels; one for vectors) each, padded where tasks have fewer.

    The first axis is missing where there is one task.
    """

    features: Tensor
    """Shape (T, n, P, d)."""
    centre: Tensor
    """What is added to the last layer's outputs, (T, n, P, C)."""
    scale: Tensor
    """Noise scales, (T, n, P, C), or one number, shape ()."""
    targets: Tensor = NOTHING
    """(T, n, P, C); for class labels (T, n, P, 1)."""
    present: Tensor = NOTHING
    """Where there is a target, in their shape: False where one is missing, and in padding."""

    def flat(self) -> "Rows":
        """Return the rows with observations and positions on one axis: (T, n P, ...)."""
        return Rows(*(value.flatten(-3, -2) if _in_rows(value) else value for value in self))

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum over each observation's targets, (T, K, n), of values (T, K, n P, C) where there are any."""
        present = self.present.flatten(-3, -2).unsqueeze(-3)
        found: Tensor = torch.where(present, values, 0.0).unflatten(-2, self.features.shape[-3:-1])
        return found.sum((-2, -1))

    def groups(self, sizes: Sequence[int]) -> list["Rows"]:
        """Return the rows of consecutive groups of observations of one task."""
        parts = (value.split(list(sizes)) if _in_rows(value) else [value] * len(sizes) for value in self)
        return [Rows(*own) for own in zip(*parts, strict=True)]


def _in_rows(value: Tensor) -> bool:
    """Return whether a field has numbers for each row, and is not one number or nothing."""
    return value.ndim > 1


def stacked(tasks: Sequence[Rows]) -> Rows:
    """Return the rows of several tasks, padded to the longest: padded rows have no target."""
    fields = zip(Rows._fields, zip(*tasks, strict=True), strict=True)
    return Rows(
        *(pad_sequence([*own], True, PADDING.get(name, 0.0)) if _in_rows(own[0]) else own[0] for name, own in fields)
    )


def joined(first: Rows, second: Rows) -> Rows:
    """Return the rows of both sets of examples of the same tasks, one after the other."""
    pairs = zip(first, second, strict=True)
    return Rows(*(torch.cat([one, other], -3) if _in_rows(one) else one for one, other in pairs))
