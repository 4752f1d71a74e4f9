"""The problems, and the best forecast that is possible on each: that of the exact posterior under the true prior."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.adaptation.exact import Curve, Particles
from benchmarks.adaptation.ways import Recipe, blob_recipes, curve_recipes
from metaprior.evaluation import Adapt
from metaprior.forecasts import GaussianForecast
from metaprior.noise import task_generator, uniform
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.task import Tasks, check_index
from metaprior.tasks.waves import AMPLITUDES, INTERCEPTS, PHASES, SLOPES, SineOrLine, Sinusoids

NOISE, LINE_NOISE = 0.1, 0.3
FREQUENCIES = (0.5, 2.0)


@dataclass(frozen=True)
class Problem:
    """Tasks with real-valued targets, and how each way learns them.

    Args:
        name: as tables show it.
        tasks: returns the source of tasks with a seed, ``k_shot`` support and ``k_query`` query examples.
        recipes: the learner of each way.
        exact: adapts by the exact posterior under the prior that tasks are drawn from.
        inputs: numbers in x.
        tuned_lr: step sizes among which that of a fine-tuned network is chosen.
        most_shots: largest number of support examples.
        frames: whether x and y are images.
    """

    name: str
    tasks: Callable[[int, int, int], Tasks]
    recipes: Mapping[str, Recipe]
    exact: Adapt | None = None
    inputs: int = 1
    tuned_lr: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    most_shots: int = 20
    frames: bool = False

    @property
    def process(self) -> bool:
        """Whether the neural process can learn it."""
        return not self.frames


def between(limits: tuple[float, float], u: Tensor) -> Tensor:
    """Return the numbers at the shares u of a range."""
    return limits[0] + (limits[1] - limits[0]) * u


def wave(u: Tensor, x: Tensor, frequency: Tensor | float = 1.0) -> Tensor:
    """Return sine waves at x (N,) for amplitude and phase by u (P, 2 or more): (P, N)."""
    amplitude, phase = between(AMPLITUDES, u[:, :1]), between(PHASES, u[:, 1:2])
    return amplitude * torch.sin(frequency * x + phase)


def wave_of_any_frequency(u: Tensor, x: Tensor) -> Tensor:
    """Return sine waves whose frequency is given by the third column of u."""
    return wave(u, x, between(FREQUENCIES, u[:, 2:3]))


def wave_or_line(u: Tensor, x: Tensor) -> Tensor:
    """Return sine waves where the third column of u is below one half, and straight lines elsewhere."""
    line = between(SLOPES, u[:, :1]) * x + between(INTERCEPTS, u[:, 1:2])
    return torch.where(u[:, 2:3] < 0.5, wave(u, x), line)


@dataclass(frozen=True)
class LinearGaussian:
    r"""Endless tasks $y = w^T(1, x) + s\,\epsilon$ with $w \sim N(w_0, L L^T)$ and $x \sim U[-2, 2]^3$.

    All of the prior's numbers are drawn once, from a seed of their own, and the posterior of w is a Gaussian.
    """

    k_shot: int = 5
    k_query: int = 10
    seed: int = 0
    noise: float = LINE_NOISE
    inputs: int = 3

    @cached_property
    def prior(self) -> tuple[Tensor, Tensor]:
        """The mean w_0 of shape (4, 1) and the factor L (4, 4), in float64."""
        generator = torch.Generator().manual_seed(0)
        size, kind = self.inputs + 1, torch.float64
        mean = torch.randn(size, 1, generator=generator, dtype=kind)
        return mean, torch.randn(size, size, generator=generator, dtype=kind)

    def __getitem__(self, index: int) -> mp.Task:
        """Return the task with this index."""
        check_index(index)
        generator = task_generator("linear Gaussian", self.seed, index)
        mean, factor = self.prior
        w = mean + factor @ torch.randn(len(mean), 1, generator=generator, dtype=mean.dtype)
        x = uniform(-2.0, 2.0, (self.k_shot + self.k_query, self.inputs), generator)
        clean = _with_one(x) @ w
        y = clean + self.noise * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
        return mp.Task.split(x, y.float(), self.k_shot, f"linear {index}")

    def adapted(self, support: mp.Examples | None, steps: int = 0) -> "LinearPosterior":
        """Return the exact posterior, N(w_0 + L m, L A^-1 L^T) with A = I + L^T X^T X L / s^2."""
        mean, factor = self.prior
        if support is None:
            return LinearPosterior(mean, factor @ factor.mT, self.noise)
        x, y = _with_one(support.x), support.y.double()
        design = x @ factor / self.noise
        covariance = torch.linalg.inv(torch.eye(len(mean), dtype=mean.dtype) + design.mT @ design)
        move = covariance @ design.mT @ ((y - x @ mean) / self.noise)
        return LinearPosterior(mean + factor @ move, factor @ covariance @ factor.mT, self.noise)


@dataclass(frozen=True)
class LinearPosterior:
    """A Gaussian over the weights of a linear function, with known noise."""

    mean: Tensor
    covariance: Tensor
    noise: float

    def predict(self, x: Tensor, **_: Any) -> GaussianForecast:
        """Return the exact forecast: one Gaussian."""
        rows = _with_one(x)
        variance = ((rows @ self.covariance) * rows).sum(1, keepdim=True) + self.noise**2
        return GaussianForecast((rows @ self.mean)[None], variance.sqrt()[None], weights=torch.ones(1))


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x.double()], dim=1)


def _particles(curve: Curve, dimensions: int, noise: float) -> Adapt:
    return Particles(curve, dimensions, noise).adapted  # type: ignore[return-value]


PROBLEMS = {
    "sinusoid": Problem(
        "sinusoids",
        lambda seed, k_shot, k_query: Sinusoids(k_shot, k_query, NOISE, seed),
        curve_recipes(inputs=1, components=4),
        _particles(wave, 2, NOISE),
    ),
    "frequency": Problem(
        "sinusoids of unknown frequency",
        lambda seed, k_shot, k_query: Sinusoids(k_shot, k_query, NOISE, seed, FREQUENCIES),
        curve_recipes(inputs=1, components=4),
        _particles(wave_of_any_frequency, 3, NOISE),
    ),
    "sine_or_line": Problem(
        "sine or line",
        lambda seed, k_shot, k_query: SineOrLine(k_shot, k_query, LINE_NOISE, seed),
        curve_recipes(inputs=1, components=4),
        _particles(wave_or_line, 3, LINE_NOISE),
    ),
    "linear": Problem(
        "linear Gaussian",
        lambda seed, k_shot, k_query: LinearGaussian(k_shot, k_query, seed),
        curve_recipes(inputs=LinearGaussian.inputs, components=1),
        LinearGaussian().adapted,  # type: ignore[arg-type]
        inputs=LinearGaussian.inputs,
    ),
    "blobs": Problem(
        "drifting blobs",
        lambda seed, k_shot, k_query: DriftingBlobs(k_shot=k_shot, k_query=min(k_query, 10), seed=seed),
        blob_recipes(width=8),
        tuned_lr=(1e-7, 1e-6, 3e-6),
        most_shots=10,
        frames=True,
    ),
}
"""The problems by name of their part."""
