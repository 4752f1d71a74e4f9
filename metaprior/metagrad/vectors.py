"""Vectors with one number for each random weight, in memory or in a file, that elementwise passes work on in parts."""

from collections.abc import Iterator, MutableMapping, Sequence
from types import EllipsisType
from typing import Protocol

import torch
from torch import Tensor

from metaprior.noise import Noise
from metaprior.weights import Parameters

PART = 2**18
"""Weights that are worked on at once (1 MiB in float32)."""
SHORTEST = 16
"""Fewest numbers of a last part: torch draws fewer by another algorithm, and noise in parts would be other noise."""

Index = tuple[EllipsisType, slice]


class Vector(Protocol):
    """Numbers of shape (..., D), read and written in parts of the last axis; a tensor is one.

    ``vector[..., part] += x`` changes the vector. A part that was read must not be changed in place otherwise.
    """

    @property
    def shape(self) -> torch.Size:
        """Return the shape, (..., D)."""

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the numbers."""

    @property
    def device(self) -> torch.device:
        """Return the device of the parts."""

    def __getitem__(self, index: Index, /) -> Tensor:
        """Return a part."""

    def __setitem__(self, index: Index, value: Tensor, /) -> None:
        """Overwrite a part."""


class Moving(Protocol):
    """What moves in the inner loop, or one number for each of its numbers: ``Parameters``, or the like in a file."""

    @property
    def mu(self) -> Vector:
        """Return the numbers of the means."""

    @property
    def rho(self) -> Vector:
        """Return the numbers of the scales."""

    @property
    def plain(self) -> MutableMapping[str, Tensor]:
        """Return the numbers of the adapted plain tensors."""


class Storage(Protocol):
    """The place where a meta-gradient keeps its vectors."""

    def vector(self) -> Vector:
        """Return zeros of shape (..., D)."""

    def zeros(self) -> Moving:
        """Return zeros for everything that moves."""


class InMemory:
    """Storage in memory; ``like`` has the shapes of everything that moves, with a stack's tasks in front."""

    def __init__(self, like: Parameters) -> None:
        self._like = like

    def vector(self) -> Tensor:
        """Return zeros of shape (..., D)."""
        return torch.zeros_like(self._like.mu)

    def zeros(self) -> Parameters:
        """Return zeros for everything that moves."""
        return self._like.zeros()


def parts(vector: Vector) -> Iterator[slice]:
    """Iterate over slices of the last axis; the last one has at least ``SHORTEST`` numbers, if there are so many."""
    start, size = 0, vector.shape[-1]
    while start < size:
        stop = size if size - start < PART + SHORTEST else start + PART
        yield slice(start, stop)
        start = stop


def in_memory(values: Moving) -> Parameters:
    """Return values that are known to be in memory."""
    if not isinstance(values, Parameters):
        raise AssertionError("these values are in a file")
    return values


def whole(vector: Vector) -> Tensor:
    """Return a vector in memory."""
    if isinstance(vector, Tensor):
        return vector
    return torch.cat([vector[..., part] for part in parts(vector)], -1)


def copy_into(target: Moving, source: Moving) -> None:
    """Overwrite everything that moves by other values."""
    for vector, values in ((target.mu, source.mu), (target.rho, source.rho)):
        for part in parts(vector):
            vector[..., part] = values[..., part]
    for name, value in source.plain.items():
        target.plain[name] = value.clone()


def scale(moving: Moving, factor: float) -> None:
    """Multiply everything that moves by a number."""
    for vector in (moving.mu, moving.rho):
        for part in parts(vector):
            vector[..., part] *= factor
    for name in moving.plain:
        moving.plain[name] *= factor


class PartwiseNoise:
    """Noise of one weight sample (of each task of a stack), drawn part by part: the same numbers as in one draw.

    Parts are read in order, each as often as it is needed; reading the first one starts again.
    """

    def __init__(self, rows: Sequence[Noise], like: Tensor, *, stacked: bool) -> None:
        """Store the noise of every task, or of the only one, and a vector (D,) like it."""
        self._rows, self._like, self._stacked = rows, like, stacked
        self.shape = torch.Size((len(rows), *like.shape)) if stacked else like.shape
        self.dtype, self.device = like.dtype, like.device
        self._draws: list[Iterator[Tensor]] = []
        self._part, self._numbers = slice(0, 0), like.new_zeros(0)

    def __getitem__(self, index: Index) -> Tensor:
        """Return a part."""
        part = index[-1]
        if part != self._part:
            if part.start == 0:
                self._draws = [row.in_parts(self._like, parts(self._like)) for row in self._rows]
            elif part.start != self._part.stop:
                raise AssertionError("parts of noise are drawn in order")
            drawn = [next(draw) for draw in self._draws]
            self._part, self._numbers = part, torch.stack(drawn) if self._stacked else drawn[0]
        return self._numbers

    def __setitem__(self, index: Index, value: Tensor) -> None:
        """Raise: noise is a function of its index."""
        raise AssertionError("noise cannot be written")
