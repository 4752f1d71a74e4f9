"""The data of a descent: mini-batches of data in memory or of a loader, and the pieces of held-out data."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from metaprior.missing import TargetCount, any_of_row
from metaprior.noise import Noise
from metaprior.objectives import MINIBATCH_SHARES
from metaprior.scaling import TargetMoments
from metaprior.tasks.task import Examples


class Batch(NamedTuple):
    """The observations of one step, (B, M, ...) for B tasks, and their weight."""

    examples: Examples
    kl_share: float
    """The share of the KL in this mini-batch; those of a pass sum to one."""
    weights: Tensor | None = None
    """How many observations each one counts as, (B, M); None: one."""


class Minibatches(Protocol):
    """Mini-batches without end, one pass over the data after the other."""

    @property
    def observations(self) -> float | Tensor:
        """Number of observations of a task, or the sums of their weights, (B,)."""

    @property
    def count(self) -> int:
        """Number of mini-batches in a pass."""

    def __iter__(self) -> Iterator[Batch]: ...


class WeightedExamples(NamedTuple):
    """Examples, and how many observations each one counts as, (N,); None: one."""

    examples: Examples
    weights: Tensor | None = None

    @property
    def observations(self) -> float:
        """Number of observations, or the sum of their weights."""
        return self.examples.size if self.weights is None else float(self.weights.sum())

    def rows(self, index: Tensor | slice) -> "WeightedExamples":
        """Return the examples with these indices."""
        (x, y), weights = self
        if isinstance(index, slice):
            return WeightedExamples(Examples(x[index], y[index]), None if weights is None else weights[index])
        here = None if weights is None else weights[index.to(weights.device)]
        return WeightedExamples(self.examples.rows(index), here)


class HeldOut(Protocol):
    """Data that are scored, piece by piece."""

    @property
    def observations(self) -> float:
        """Number of observations, or the sum of their weights."""

    def pieces(self) -> Iterator[WeightedExamples]:
        """Iterate over the data, a piece at a time; each call begins anew."""


@dataclass(frozen=True)
class HeldOutData:
    """Held-out data in memory, in pieces of ``batch_size`` observations."""

    data: WeightedExamples
    batch_size: int

    @property
    def observations(self) -> float:
        """Number of observations, or the sum of their weights."""
        return self.data.observations

    def pieces(self) -> Iterator[WeightedExamples]:
        """Iterate over the pieces."""
        for start in range(0, self.data.examples.size, self.batch_size):
            yield self.data.rows(slice(start, start + self.batch_size))


@dataclass(frozen=True)
class ShuffledData:
    """Mini-batches of a stack of tasks in memory; each task has a random order of its own in every pass.

    Args:
        data: the tasks' data, of equal size.
        indices: the tasks' numbers, which choose their random orders.
        batch_size: observations in a mini-batch.
        weighting: how the mini-batches of a pass share the KL, "uniform" or "geometric".
        noise: noise of the orders.
        taken: mini-batches that were taken before, after which to go on.
        weights: how many observations each observation of a task counts as, (B, N); None: one.
    """

    data: Sequence[Examples]
    indices: Sequence[int]
    batch_size: int
    weighting: str
    noise: Noise
    taken: int = 0
    weights: Tensor | None = None

    @cached_property
    def observations(self) -> float | Tensor:
        """Number of observations of a task, or the sums of their weights, (B,)."""
        return self.data[0].size if self.weights is None else self.weights.sum(1)

    @property
    def count(self) -> int:
        """Number of mini-batches in a pass."""
        return math.ceil(self.data[0].size / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Iterate without end over each task's next mini-batches, stacked."""
        shares = MINIBATCH_SHARES[self.weighting](self.count)
        if self.count == 1:
            yield from repeat(self._batch(self.data, None, shares[0]))
        turn, place = divmod(self.taken, self.count)
        while True:
            noises = [self.noise.at(task=index, step=turn + 1).fork("shuffle") for index in self.indices]
            orders = [torch.randperm(self.data[0].size, generator=noise.generator()) for noise in noises]
            pieces = zip(*(order.split(self.batch_size) for order in orders), strict=True)
            for rows, share in list(zip(pieces, shares, strict=True))[place:]:
                parts = [data.rows(row) for data, row in zip(self.data, rows, strict=True)]
                yield self._batch(parts, rows, share)
            turn, place = turn + 1, 0

    def _batch(self, parts: Sequence[Examples], rows: Sequence[Tensor] | None, share: float) -> Batch:
        """Return the batch of these examples of every task; ``rows`` None are all of them."""
        stacked = Examples(torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts]))
        if self.weights is None:
            return Batch(stacked, share)
        if rows is None:
            return Batch(stacked, share, self.weights)
        own = [weights[row.to(weights.device)] for weights, row in zip(self.weights, rows, strict=True)]
        return Batch(stacked, share, torch.stack(own))


class StreamedData:
    """The batches of a torch ``DataLoader``, one in memory at a time, as mini-batches or as held-out data.

    The loader is read once at the beginning, for the number of observations and the moments of the targets.

    Args:
        loader: gives pairs (x, y), in equally many batches in every pass.
        checked: returns the checked pair, with targets in the user's units, and whether these came without a channel.
        present: returns where targets are not missing.
        members: networks that learn from each batch.
        weighting: how the mini-batches of a pass share the KL, "uniform" or "geometric".
    """

    def __init__(
        self,
        loader: Iterable[Any],
        checked: Callable[[Any, Any], tuple[Examples, bool]],
        present: Callable[[Tensor], Tensor],
        members: int = 1,
        weighting: str = "uniform",
    ) -> None:
        self._loader, self._checked, self._members, self._weighting = loader, checked, members, weighting
        self.internal: Callable[[Examples], Examples] = lambda examples: examples
        """Returns examples in the network's units, once these are known."""
        self.targets, rows, moments = TargetCount(), 0, list[TargetMoments]()
        self.count, self.scalar = 0, False
        for examples, scalar in self._read():
            here = present(examples.y)
            self.first, self.scalar = (self.first, self.scalar) if self.count else (examples, scalar)
            self.targets += TargetCount.of(here)
            rows, self.count = rows + int(any_of_row(here).sum()), self.count + 1
            if examples.y.is_floating_point():
                moments.append(TargetMoments.of(examples.y))
        if not rows:
            raise ValueError(f"the loader must give at least one target, got {self.targets.targets}, all missing")
        self.observations: float = rows
        self.moments = TargetMoments.pooled(moments) if moments else None

    def _read(self) -> Iterator[tuple[Examples, bool]]:
        """Iterate over one pass."""
        for batch in self._loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                kind = f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, Sized) else type(batch).__name__
                raise TypeError(f"a loader must give pairs (x, y), got a {kind}. Try a collate_fn that returns (x, y).")
            yield self._checked(*batch)

    def pieces(self) -> Iterator[WeightedExamples]:
        """Iterate over one pass, in the network's units."""
        return (WeightedExamples(self.internal(examples)) for examples, _ in self._read())

    def __iter__(self) -> Iterator[Batch]:
        """Iterate without end over the batches, which all members learn from."""
        shares = MINIBATCH_SHARES[self._weighting](self.count)
        while True:
            number = 0
            for number, (piece, _) in enumerate(self.pieces(), start=1):
                if number > self.count:
                    break
                stacked = Examples(*(part.unsqueeze(0).expand(self._members, *part.shape) for part in piece))
                yield Batch(stacked, shares[number - 1])
            if number != self.count:
                raise ValueError(
                    f"a loader must give equally many batches in every pass, got {self.count} in the first one and "
                    f"{'more' if number > self.count else number} in a later one"
                )
