"""What every source of tasks does with its arguments: check them, find the noise of a task, divide its examples."""

import math

import torch
from torch import Tensor

from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task


def check_counts(**counts: object) -> None:
    """Raise unless every one is a whole number of at least one."""
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"{name} has to be a whole number, got {count!r}")
        if count < 1:
            raise ValueError(f"{name} has to be at least 1, got {count}")


def check_noise(noise: float) -> None:
    """Raise unless it is a standard deviation: finite, and zero or more."""
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise is a standard deviation and has to be a finite number of at least 0, got {noise}")


def check_index(index: int, count: int | None = None) -> None:
    """Raise IndexError for an index that names no task; ``count`` is None for an endless source."""
    if index < 0 or (count is not None and index >= count):
        allowed = "0, 1, 2, ... without end" if count is None else f"0 to {count - 1}"
        raise IndexError(f"there is no task {index}; tasks have the indices {allowed}")


def generator_of(source: str, seed: int, index: int) -> torch.Generator:
    """The random numbers of one task: its own for every source, seed and index, and the same whenever asked for."""
    return Noise(seed).fork(source).at(task=index).generator()


def uniform(low: float, high: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers that are uniform between low and high."""
    return low + (high - low) * torch.rand(shape, generator=generator)


def divided(x: Tensor, y: Tensor, k_shot: int, name: str) -> Task:
    """The first ``k_shot`` examples as support, all others as query."""
    return Task(Examples(x[:k_shot], y[:k_shot]), Examples(x[k_shot:], y[k_shot:]), name)
