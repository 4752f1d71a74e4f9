"""Sine waves and straight lines in one family, so that a few points can leave it open which of the two they are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.tasks.arguments import check_counts, check_index, check_noise, divided, generator_of, uniform
from metaprior.tasks.sinusoids import AMPLITUDES, INPUTS, PHASES
from metaprior.tasks.task import Task

SLOPES = (-3.0, 3.0)
INTERCEPTS = (-3.0, 3.0)


@dataclass(frozen=True)
class SineOrLine:
    r"""$y = A\sin(x + b) + s\,\epsilon$ or $y = a x + c + s\,\epsilon$, each for half of the tasks; $x \sim U[-5, 5]$.

    $A \sim U[0.1, 5]$, $b \sim U[0, \pi]$, and $a, c \sim U[-3, 3]$. An endless source; x and y have the shape (k, 1).
    ``noise`` is $s$.

    Finn, Xu, Levine 2018, "Probabilistic Model-Agnostic Meta-Learning", section 5.
    """

    k_shot: int = 5
    k_query: int = 10
    noise: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(k_shot=self.k_shot, k_query=self.k_query)
        check_noise(self.noise)

    def __getitem__(self, index: int) -> Task:
        """The task with this index, 0 or more; its name says which of the two it is."""
        check_index(index)
        generator = generator_of("sine or line", self.seed, index)
        is_sine = float(torch.rand((), generator=generator)) < 0.5
        x = uniform(*INPUTS, (self.k_shot + self.k_query, 1), generator)
        clean = _sine(x, generator) if is_sine else _line(x, generator)
        y = clean + self.noise * torch.randn(x.shape, generator=generator)
        return divided(x, y, self.k_shot, f"{'sine' if is_sine else 'line'} {index}")


def _sine(x: Tensor, generator: torch.Generator) -> Tensor:
    amplitude = uniform(*AMPLITUDES, (1,), generator)
    phase = uniform(*PHASES, (1,), generator)
    return amplitude * torch.sin(x + phase)


def _line(x: Tensor, generator: torch.Generator) -> Tensor:
    slope = uniform(*SLOPES, (1,), generator)
    intercept = uniform(*INTERCEPTS, (1,), generator)
    return slope * x + intercept
