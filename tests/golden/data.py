"""Data of the cases: sine waves in float64, as one data set and as tasks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import metaprior as mp


def generator(seed: int) -> torch.Generator:
    """Return a fresh generator."""
    return torch.Generator().manual_seed(seed)


def wave(count: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs (N, 1) and targets (N, 1) of a noisy wave that is neither centred nor of unit scale."""
    made = generator(seed)
    x = 4 * torch.rand(count, 1, dtype=torch.float64, generator=made) - 2
    noise = torch.randn(count, 1, dtype=torch.float64, generator=made)
    return x, 20 + 5 * torch.sin(2 * x) + 0.5 * noise


def labels_of(y: Tensor, classes: int) -> Tensor:
    """Return class labels (N,) of targets (N, 1): which part of their range they are in."""
    order = y[:, 0].argsort().argsort()
    return order * classes // len(order)


@dataclass
class Waves:
    """Endless tasks; with ``count`` a finite number of them.

    ``kind``: "real" (N, 1), "scalar" (N,), "classes" (N,) of 3, or "binary" (N, 1). ``sizes``: support examples of
    tasks in turn. ``bad``: tasks whose inputs are NaN.
    """

    kind: str = "real"
    sizes: Sequence[int] = (4,)
    bad: frozenset[int] = frozenset()

    def __getitem__(self, index: int) -> mp.Task:
        made = generator(1000 + index)
        amplitude, phase = torch.rand(2, dtype=torch.float64, generator=made)

        def examples(count: int) -> mp.Examples:
            x = 4 * torch.rand(count, 1, dtype=torch.float64, generator=made) - 2
            return mp.Examples(x, self._targets((0.5 + amplitude) * torch.sin(2 * x + 3 * phase)))

        support, query = examples(self.sizes[index % len(self.sizes)]), examples(3)
        if index in self.bad:
            support = mp.Examples(support.x * math.nan, support.y)
        return mp.Task(support, query, f"wave {index}")

    def _targets(self, y: Tensor) -> Tensor:
        if self.kind == "scalar":
            return y[:, 0]
        if self.kind == "classes":
            return (1 + 2 * y[:, 0]).clamp(0, 2).round().long()
        return (y > 0).double() if self.kind == "binary" else y


@dataclass
class Pool(Waves):
    """The first seven of them, which training goes through in shuffled passes."""

    def __len__(self) -> int:
        return 7
