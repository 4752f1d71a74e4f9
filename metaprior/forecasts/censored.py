"""Forecasts of values that a lower and an upper limit clip."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import ArrayLike
from metaprior.forecasts.families import MixtureForecast

AT_LIMIT = 1e-4
"""A target this close to a limit, in noise scales, is at the limit: units were changed, so numbers are rounded."""
FAR = 50.0
"""Scales beyond which a limit has no influence."""


@dataclass(frozen=True, repr=False)
class CensoredForecast(MixtureForecast):
    """A mixture of S Gaussians per target, clipped to limits: what lies beyond a limit is observed at it.

    Args:
        means: means of the Gaussians behind the limits, shape (S, N, ...).
        scales: their standard deviations, in a shape that broadcasts.
        lower: lower limits, in a shape that broadcasts; -inf for none.
        upper: upper limits; inf for none.
        weights: the components' weights; None for weight samples.
    """

    means: Tensor
    scales: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def samples(self) -> Tensor:
        """Mean of the clipped target in each component."""
        first, _ = self._moments()
        return torch.clamp(self.means + self.scales * first, self.lower, self.upper)

    @property
    def variances(self) -> Tensor:
        """Variance of the clipped target in each component."""
        first, second = self._moments()
        return self.scales.square() * (second - first.square()).clamp_min(0.0)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and mean square of a standard normal that is clipped like each component."""
        low, high = self._from_lower().clamp_min(-FAR), -self._to_upper().clamp_min(-FAR)
        at_low, at_high = torch.special.ndtr(low), torch.special.ndtr(-high)
        inside = (1 - at_low - at_high).clamp_min(0.0)
        density_low, density_high = _density(low), _density(high)
        first = low * at_low + high * at_high + density_low - density_high
        second = low.square() * at_low + high.square() * at_high + inside + low * density_low - high * density_high
        return first, second

    def component_cdf(self, values: Tensor) -> Tensor:
        """Return each component's probability at or below the values."""
        between = torch.special.ndtr((values - self.means) / self.scales)
        return torch.where(values >= self.upper, 1.0, torch.where(values >= self.lower, between, 0.0))

    def component_below(self, values: Tensor) -> Tensor:
        """Return each component's probability below the values: none at the lower limit, not all at the upper."""
        between = torch.special.ndtr((values - self.means) / self.scales)
        return torch.where(values > self.upper, 1.0, torch.where(values > self.lower, between, 0.0))

    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return each component's log density between the limits, log mass at a limit, and -inf beyond."""
        found = mixture.component_log_density(self.means, self.scales, values)
        at_lower, at_upper = log_normal_cdf(self._from_lower()), log_normal_cdf(self._to_upper())
        found = torch.where(values == self.lower, at_lower, torch.where(values == self.upper, at_upper, found))
        return torch.where((values < self.lower) | (values > self.upper), -torch.inf, found)

    def _from_lower(self) -> Tensor:
        return (self.lower - self.means) / self.scales

    def _to_upper(self) -> Tensor:
        return (self.means - self.upper) / self.scales

    def _values(self, targets: ArrayLike) -> Tensor:
        """Return targets; those within rounding of a limit are at it, the same for all components."""
        values, least = super()._values(targets), AT_LIMIT * self.scales.expand(self.means.shape).amin(0)
        for limit in (self.lower.amin(0), self.upper.amax(0)):
            values = torch.where((values - limit).abs() <= least, limit.to(values), values)
        return values

    def _bracket(self, level: Tensor) -> tuple[Tensor, Tensor]:
        low, high = super()._bracket(level)
        lower, upper = self.lower.amin(0), self.upper.amax(0)
        return torch.clamp(low, lower, upper), torch.clamp(high, lower, upper)

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
        """Return the forecast of ``loc + scale * target``, in the type of ``loc``."""
        means, lower, upper = (torch.addcmul(loc, part.to(loc), scale) for part in (self.means, self.lower, self.upper))
        return replace(self, means=means, scales=self.scales.to(loc) * scale, lower=lower, upper=upper)

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast with ``factor`` times the spread of the Gaussians behind the limits, which stay."""
        centre = mixture.average(self.means, self.weights)
        return replace(self, means=centre + factor * (self.means - centre), scales=self.scales * factor)


def log_normal_cdf(z: Tensor) -> Tensor:
    r"""Return $\log\Phi(z)$, exact in both tails; ``torch.special.log_ndtr`` has no rule for ``torch.vmap``."""
    left, right = z.clamp_max(-1.0), z.clamp_min(-1.0)
    below = (0.5 * torch.special.erfcx(-left * math.sqrt(0.5))).log() - 0.5 * left.square()
    return torch.where(z < -1, below, torch.log1p(-0.5 * torch.special.erfc(right * math.sqrt(0.5))))


def _density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
