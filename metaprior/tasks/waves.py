"""Tasks of one input and one output: sine waves, and a mixture of sine waves and straight lines."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.checks import check_counts, check_not_negative
from metaprior.noise import task_generator, uniform
from metaprior.tasks.task import Task, check_index

INPUTS = (-5.0, 5.0)
AMPLITUDES, PHASES = (0.1, 5.0), (0.0, torch.pi)
SLOPES, INTERCEPTS = (-3.0, 3.0), (-3.0, 3.0)


def _sine(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return amplitude and phase."""
    return uniform(*AMPLITUDES, (1,), generator), uniform(*PHASES, (1,), generator)


@dataclass(frozen=True)
class _Waves:
    k_shot: int = 5
    k_query: int = 10
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(k_shot=self.k_shot, k_query=self.k_query)
        check_not_negative("noise", self.noise)


@dataclass(frozen=True)
class Sinusoids(_Waves):
    r"""Endless tasks $y = A\sin(f x + b) + s\,\epsilon$, $A \sim U[0.1, 5]$, $b \sim U[0, \pi]$, $x \sim U[-5, 5]$.

    x and y have the shape (k, 1). In the publication (Finn, Abbeel, Levine 2017, "Model-Agnostic Meta-Learning for
    Fast Adaptation of Deep Networks", section 5.1) the noise is zero and the frequency one.

    Args:
        k_shot: Support examples of a task.
        k_query: Query examples of a task.
        noise: Standard deviation $s$ of the noise.
        seed: Seed of all draws; other seeds are other waves.
        frequency: Range of $f$, drawn uniformly for each task. With an unknown frequency, such as (0.5, 2), tasks
            differ much more.
    """

    frequency: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.frequency) != 2 or not 0 < self.frequency[0] <= self.frequency[1] < math.inf:
            raise ValueError(f"frequency must be a range of positive numbers such as (0.5, 2), got {self.frequency!r}")

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 or more."""
        check_index(index)
        generator = task_generator("sinusoids", self.seed, index)
        amplitude, phase = _sine(generator)
        x = uniform(*INPUTS, (self.k_shot + self.k_query, 1), generator)
        low, high = self.frequency
        frequency = low if low == high else uniform(low, high, (1,), generator)
        y = amplitude * torch.sin(frequency * x + phase) + self.noise * torch.randn(x.shape, generator=generator)
        return Task.split(x, y, self.k_shot, f"sinusoid {index}")


@dataclass(frozen=True)
class SineOrLine(_Waves):
    r"""Endless tasks, half of them $y = A\sin(x + b) + s\,\epsilon$ and half $y = a x + c + s\,\epsilon$.

    A few points can leave it open which of the two they are. $A$, $b$ and $x$ are distributed as in ``Sinusoids``,
    $a, c \sim U[-3, 3]$; x and y have the shape (k, 1). Finn, Xu, Levine 2018, "Probabilistic Model-Agnostic
    Meta-Learning", section 5.

    Args:
        k_shot: Support examples of a task.
        k_query: Query examples of a task.
        noise: Standard deviation $s$ of the noise.
        seed: Seed of all draws.
    """

    noise: float = 0.3

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index, 0 or more; its name says which of the two it is."""
        check_index(index)
        generator = task_generator("sine or line", self.seed, index)
        is_sine = float(torch.rand((), generator=generator)) < 0.5
        x = uniform(*INPUTS, (self.k_shot + self.k_query, 1), generator)
        if is_sine:
            amplitude, phase = _sine(generator)
            clean = amplitude * torch.sin(x + phase)
        else:
            clean = uniform(*SLOPES, (1,), generator) * x + uniform(*INTERCEPTS, (1,), generator)
        y = clean + self.noise * torch.randn(x.shape, generator=generator)
        return Task.split(x, y, self.k_shot, f"{'sine' if is_sine else 'line'} {index}")
