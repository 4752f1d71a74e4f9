"""Helpers of generated tasks: check settings, seed the random numbers of a task, split its examples."""

import math

import torch
from torch import Tensor

from metaprior.checks import check_integer
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task


def check_counts(**counts: object) -> None:
    """Raise unless every value is an integer of at least 1."""
    for name, count in counts.items():
        check_integer(name, count, 1)


def check_noise(noise: float) -> None:
    """Raise unless the value is a standard deviation: finite and not negative."""
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise is a standard deviation and must be finite and not negative, got {noise}")


def check_index(index: int, count: int | None = None) -> None:
    """Raise IndexError if there is no task with this index; ``count`` is None for an endless source."""
    if index < 0 or (count is not None and index >= count):
        allowed = "0, 1, 2, ..." if count is None else f"0 to {count - 1}"
        raise IndexError(f"there is no task {index}; indices are {allowed}")


def generator_of(source: str, seed: int, index: int) -> torch.Generator:
    """Return the random generator of one task, a function of the source's name, the seed and the index alone."""
    return Noise(seed).fork(source).at(task=index).generator()


def uniform(low: float, high: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return numbers drawn uniformly between low and high."""
    return low + (high - low) * torch.rand(shape, generator=generator)


def divided(x: Tensor, y: Tensor, k_shot: int, name: str) -> Task:
    """Return a task with the first ``k_shot`` examples as support and all others as query."""
    return Task(Examples(x[:k_shot], y[:k_shot]), Examples(x[k_shot:], y[k_shot:]), name)
