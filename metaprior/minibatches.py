"""The data of a descent: mini-batches of data in memory or of a loader, and the pieces of held-out data."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from metaprior.inputs import map_parts, rows_of
from metaprior.noise import Noise
from metaprior.objectives import MINIBATCH_SHARES
from metaprior.tasks.task import Examples, stacked_examples


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
        return self.examples.size if self.weights is None else float(self.weights.double().sum())

    def rows(self, index: Tensor | slice) -> "WeightedExamples":
        """Return the examples with these indices."""
        (x, y), weights = self
        if isinstance(index, slice):
            return WeightedExamples(Examples(rows_of(x, index), y[index]), None if weights is None else weights[index])
        here = None if weights is None else weights[index.to(weights.device)]
        return WeightedExamples(self.examples.rows(index), here)


class HeldOut(Protocol):
    """Data that are scored, piece by piece."""

    @property
    def observations(self) -> float:
        """Number of observations, or the sum of their weights."""

    @property
    def largest(self) -> int:
        """Number of observations of the largest piece."""

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

    @property
    def largest(self) -> int:
        """Number of observations of the largest piece."""
        return min(self.batch_size, self.data.examples.size)

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
        stacked = stacked_examples(parts)
        if self.weights is None:
            return Batch(stacked, share)
        if rows is None:
            return Batch(stacked, share, self.weights)
        own = [weights[row.to(weights.device)] for weights, row in zip(self.weights, rows, strict=True)]
        return Batch(stacked, share, torch.stack(own))


@dataclass(frozen=True)
class StreamedData:
    """Batches that are read anew in every pass, as mini-batches or as held-out data; never held as a whole.

    Args:
        read: begins a pass over the batches.
        count: number of batches in a pass.
        observations: number of observations in a pass.
        largest: number of observations of the largest batch.
        what: what the batches come from, for messages.
        members: networks that learn from each batch.
        weighting: how the mini-batches of a pass share the KL, "uniform" or "geometric".
    """

    read: Callable[[], Iterator[Examples]]
    count: int
    observations: float
    largest: int
    what: str = "x"
    members: int = 1
    weighting: str = "uniform"

    def pieces(self) -> Iterator[WeightedExamples]:
        """Iterate over one pass; raise unless it has as many batches as the first one."""
        number = 0
        for number, examples in enumerate(self.read(), start=1):
            if number > self.count:
                raise self._other_count("more")
            yield WeightedExamples(examples)
        if number < self.count:
            raise self._other_count(str(number))

    def __iter__(self) -> Iterator[Batch]:
        """Iterate without end over the batches, from each of which all members learn."""
        shares = MINIBATCH_SHARES[self.weighting](self.count)
        while True:
            for ((x, y), _), share in zip(self.pieces(), shares, strict=True):
                yield Batch(Examples(map_parts(self._for_each, x), self._for_each(y)), share)

    def _for_each(self, tensor: Tensor) -> Tensor:
        """Return the same tensor for every member, (members, ...)."""
        return tensor.expand(self.members, *tensor.shape)

    def _other_count(self, found: str) -> ValueError:
        return ValueError(
            f"{self.what} must give equally many batches in every pass, got {self.count} in the first one and {found} "
            "in a later one. Try a data set whose __iter__ begins anew, not one that goes on or is used up."
        )
