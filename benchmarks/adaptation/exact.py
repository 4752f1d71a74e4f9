"""The exact posterior of a curve with few unknown parameters, by sequential Monte Carlo under the true prior."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import metaprior as mp
from metaprior.forecasts import GaussianForecast

Curve = Callable[[Tensor, Tensor], Tensor]
"""Values at inputs (N,) for parameters (P, D) that are uniform on the unit cube under the prior: (P, N)."""


@dataclass(frozen=True)
class Particles:
    """Draws from the posterior of a curve's parameters: likelihoods are tempered from 0 to 1, with moves between.

    Each temper halves the effective number of particles, which are then drawn anew and moved by Metropolis steps of
    random lengths, reflected at the faces of the cube. The noise is known.
    """

    curve: Curve
    dimensions: int
    noise: float
    count: int = 1000
    moves: int = 8
    kept: int = 200
    """Particles that a forecast is made of."""

    def adapted(self, support: mp.Examples | None, steps: int = 0) -> "KnownCurves":
        """Return the posterior given some examples; ``steps`` is ignored."""
        generator = torch.Generator().manual_seed(0)
        u = torch.rand(self.count, self.dimensions, generator=generator, dtype=torch.float64)
        if support is not None:
            u = self._moved_to(support, u, generator)
        order = torch.randperm(self.count, generator=generator)[: self.kept]
        return KnownCurves(self.curve, u[order], self.noise)

    def _moved_to(self, support: mp.Examples, u: Tensor, generator: torch.Generator) -> Tensor:
        x, y = support.x[:, 0].double(), support.y[:, 0].double()

        def losses(u: Tensor) -> Tensor:
            return (y - self.curve(u, x)).square().sum(1) / (2 * self.noise**2)

        temper, loss = 0.0, losses(u)
        while temper < 1:
            step = _next_step(loss, 1 - temper)
            temper += step
            chosen = _drawn_anew(torch.softmax(-step * loss, 0), generator)
            u, loss = u[chosen], loss[chosen]
            spread = u.std(0) + 1e-6
            for _ in range(self.moves):
                lengths = 10 ** (-2 * torch.rand(self.count, 1, generator=generator, dtype=u.dtype))
                step_of = spread * lengths * torch.randn(u.shape, generator=generator, dtype=u.dtype)
                proposed = 1 - ((u + step_of).remainder(2) - 1).abs()
                new = losses(proposed)
                accepted = torch.rand(self.count, generator=generator, dtype=u.dtype).log() < temper * (loss - new)
                u, loss = torch.where(accepted[:, None], proposed, u), torch.where(accepted, new, loss)
        return u


def _next_step(loss: Tensor, longest: float) -> float:
    """Return the temper step that halves the effective number of particles, or ``longest`` if that is shorter."""

    def share_left(step: float) -> float:
        weights = torch.softmax(-step * loss, 0)
        return 1 / float(len(loss) * weights.square().sum())

    if share_left(longest) >= 0.5:
        return longest
    low, high = 0.0, longest
    for _ in range(40):
        middle = math.sqrt(low * high) if low else high / 100
        low, high = (middle, high) if share_left(middle) >= 0.5 else (low, middle)
    return high


def _drawn_anew(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Return indices drawn by weight, at equal distances."""
    count = len(weights)
    places = (torch.arange(count) + torch.rand((), generator=generator)) / count
    return torch.searchsorted(weights.cumsum(0), places.to(weights)).clamp_max(count - 1)


@dataclass(frozen=True)
class KnownCurves:
    """Draws from a posterior of curves."""

    curve: Curve
    u: Tensor
    noise: float

    def predict(self, x: Tensor, **_: Any) -> GaussianForecast:
        """Return the forecast: a Gaussian of the known noise around each curve."""
        means = self.curve(self.u, x[:, 0].double())[..., None]
        return GaussianForecast(means, torch.full_like(means, self.noise))
