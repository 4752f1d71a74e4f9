"""Sine waves of different amplitude and phase: the regression tasks of Finn et al. 2017."""

from dataclasses import dataclass

import torch

from metaprior.tasks.arguments import check_counts, check_index, check_noise, divided, generator_of, uniform
from metaprior.tasks.task import Task

AMPLITUDES = (0.1, 5.0)
PHASES = (0.0, torch.pi)
INPUTS = (-5.0, 5.0)


@dataclass(frozen=True)
class Sinusoids:
    r"""$y = A\sin(x + b) + s\,\epsilon$ with $A \sim U[0.1, 5]$, $b \sim U[0, \pi]$ for a task and $x \sim U[-5, 5]$.

    An endless source; x and y have the shape (k, 1). ``noise`` is $s$, zero in the publication.

    Finn, Abbeel, Levine 2017, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", section 5.1. (A
    phase that is subtracted gives the same waves turned by half a circle about the origin, so problems as hard.)
    """

    k_shot: int = 5
    k_query: int = 10
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(k_shot=self.k_shot, k_query=self.k_query)
        check_noise(self.noise)

    def __getitem__(self, index: int) -> Task:
        """The wave with this index, 0 or more."""
        check_index(index)
        generator = generator_of("sinusoids", self.seed, index)
        amplitude = uniform(*AMPLITUDES, (1,), generator)
        phase = uniform(*PHASES, (1,), generator)
        x = uniform(*INPUTS, (self.k_shot + self.k_query, 1), generator)
        y = amplitude * torch.sin(x + phase) + self.noise * torch.randn(x.shape, generator=generator)
        return divided(x, y, self.k_shot, f"sinusoid {index}")
