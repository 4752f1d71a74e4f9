r"""Forecasts from quantiles at a few levels: linear between them, exponential tails beyond them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from metaprior.forecasts.families import MixtureForecast


@dataclass(frozen=True, repr=False)
class QuantileForecast(MixtureForecast):
    r"""A mixture of S distributions per target, each known by its quantiles $q_1 < \dots < q_K$ at given levels.

    The distribution function is linear between them. The tails beyond the outermost two are exponential,
    $F(y) = p_1 e^{(y - q_1)/b}$, with the scale b that makes the density continuous there.

    Args:
        lowest: the quantile at the lowest level, shape (S, N, ...).
        gaps: distances from each quantile to the next, positive, shape (S, N, ..., K - 1).
        levels: the K levels, ascending.
        weights: the components' weights; None for weight samples.
    """

    lowest: Tensor
    gaps: Tensor
    levels: tuple[float, ...]

    @property
    def points(self) -> Tensor:
        """The quantiles of each component, (S, N, ..., K)."""
        return torch.cat([self.lowest.unsqueeze(-1), self.lowest.unsqueeze(-1) + self.gaps.cumsum(-1)], -1)

    @property
    def steps(self) -> Tensor:
        """Differences of the levels, (K - 1,)."""
        return self.gaps.new_tensor([after - before for before, after in pairwise(self.levels)])

    @property
    def tails(self) -> tuple[Tensor, Tensor]:
        """Scales of the lower and of the upper tail, (S, N, ...)."""
        slopes = self.gaps / self.steps
        return slopes[..., 0] * self.levels[0], slopes[..., -1] * (1 - self.levels[-1])

    @property
    def samples(self) -> Tensor:
        """Mean of each component."""
        return self.lowest + self._moments()[0]

    @property
    def variances(self) -> Tensor:
        """Variance of the target in each component."""
        first, second = self._moments()
        return second - first.square()

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and mean square of a component's distance from its lowest quantile."""
        points, (down, up) = self.points - self.lowest.unsqueeze(-1), self.tails
        before, after, last = points[..., :-1], points[..., 1:], points[..., -1]
        low, high = self.levels[0], 1 - self.levels[-1]
        first = -low * down + high * (last + up) + (self.steps * (before + after) / 2).sum(-1)
        squares = (before.square() + before * after + after.square()) / 3
        tails = 2 * low * down.square() + high * ((last + up).square() + up.square())
        return first, tails + (self.steps * squares).sum(-1)

    def component_cdf(self, values: Tensor) -> Tensor:
        """Return each component's probability at or below the values."""
        points, (down, up) = self.points, self.tails
        low, high, share = self._beyond(values, points)
        between = self.levels[0] + (self.steps * share).sum(-1)
        left, right = self.levels[0] * (-low / down).exp(), 1 - (1 - self.levels[-1]) * (-high / up).exp()
        return torch.where(low > 0, left, torch.where(high > 0, right, between))

    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return each component's log density, which is constant between two quantiles."""
        points, (down, up) = self.points, self.tails
        low, high, share = self._beyond(values, points)
        inside = (share < 1).long().argmax(-1, keepdim=True)  # the first gap that the value does not pass
        density = (self.steps / self.gaps).gather(-1, inside).squeeze(-1).log()
        left = (self.levels[0] / down).log() - low / down
        right = ((1 - self.levels[-1]) / up).log() - high / up
        return torch.where(low > 0, left, torch.where(high > 0, right, density))

    def _beyond(self, values: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return how far values lie below the lowest and above the highest quantile, and the share of each gap that
        lies below them."""
        low, high = (points[..., 0] - values).clamp_min(0.0), (values - points[..., -1]).clamp_min(0.0)
        return low, high, ((values.unsqueeze(-1) - points[..., :-1]) / self.gaps).clamp(0.0, 1.0)

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
        """Return the forecast of ``loc + scale * target``, in the type of ``loc``."""
        lowest = torch.addcmul(loc, self.lowest.to(loc), scale)
        return replace(self, lowest=lowest, gaps=self.gaps.to(loc) * scale.unsqueeze(-1))

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast whose whole spread around its mean is multiplied by a factor."""
        each = factor.unsqueeze(-1) if isinstance(factor, Tensor) and factor.ndim else factor
        return replace(self, lowest=self.mean + factor * (self.lowest - self.mean), gaps=self.gaps * each)

    def squeezed(self) -> Self:
        """Return the forecast without a trailing axis of length one, for targets that had none."""
        weights = None if self.weights is None else self.weights.squeeze(-1)
        return replace(self, lowest=self.lowest.squeeze(-1), gaps=self.gaps.squeeze(-2), weights=weights)


def ordered_points(outputs: Sequence[Tensor], least_gap: float) -> tuple[Tensor, Tensor]:
    """Return the lowest quantile, and the gaps (..., K - 1), from K outputs: the middle quantile, and raw gaps."""
    middle, *raw = outputs
    gaps = torch.nn.functional.softplus(torch.stack(raw, -1)) + least_gap
    return middle - gaps[..., : len(outputs) // 2].sum(-1), gaps
