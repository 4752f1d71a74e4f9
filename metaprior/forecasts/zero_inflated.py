"""Forecasts of values at or above zero, of which some are exactly zero."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior import mixture
from metaprior.forecasts.families import MixtureForecast
from metaprior.forecasts.inversion import invert_cdf

FAR = 12.0
"""Standard deviations of the logarithm beyond which no quantile lies."""


def zero_inflated_log_density(logits: Tensor, means: Tensor, scales: Tensor, values: Tensor) -> Tensor:
    """Return the log mass of zeros, and the log density of positive values, whose logarithm is Gaussian."""
    zero = values <= 0
    logarithm = torch.where(zero, 1.0, values).log()
    positive = F.logsigmoid(-logits) - logarithm + mixture.component_log_density(means, scales, logarithm)
    return torch.where(zero, F.logsigmoid(logits), positive)


@dataclass(frozen=True, repr=False)
class ZeroInflatedForecast(MixtureForecast):
    """A mixture of S components per target: exactly zero, or else a value whose logarithm is Gaussian.

    Args:
        logits: logit of the probability of a zero, shape (S, N, ...).
        means: mean of the logarithm of a value that is not zero, in a shape that broadcasts.
        scales: standard deviation of that logarithm.
        weights: the components' weights; None for weight samples.
    """

    logits: Tensor
    means: Tensor
    scales: Tensor

    @property
    def zeros(self) -> Tensor:
        """Probability of a zero, (N, ...)."""
        return mixture.average(self.logits.sigmoid(), self.weights)

    @property
    def samples(self) -> Tensor:
        r"""$(1 - p_0)\,e^{m + s^2/2}$."""
        return (F.logsigmoid(-self.logits) + self.means + self.scales.square() / 2).exp()

    @property
    def variances(self) -> Tensor:
        r"""$(1 - p_0)\,e^{2m + s^2}(e^{s^2} - 1 + p_0)$."""
        square = self.scales.square()
        spread = torch.expm1(square) + self.logits.sigmoid()
        return (F.logsigmoid(-self.logits) + 2 * self.means + square).exp() * spread

    def component_cdf(self, values: Tensor) -> Tensor:
        """Return each component's probability at or below the values."""
        return torch.where(values < 0, 0.0, self._at_logarithm(values.log()))

    def component_below(self, values: Tensor) -> Tensor:
        """Return each component's probability below the values: that of a zero is not below zero."""
        return torch.where(values <= 0, 0.0, self._at_logarithm(values.log()))

    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return each component's log mass of zero, or log density of positive values; -inf below zero."""
        found = zero_inflated_log_density(self.logits, self.means, self.scales, values)
        return torch.where(values < 0, -torch.inf, found)

    def _at_logarithm(self, logarithm: Tensor) -> Tensor:
        """Return each component's cdf at the exponential of a number, -inf for zero itself."""
        inside = torch.special.ndtr((logarithm - self.means) / self.scales)
        reached: Tensor = self.logits.sigmoid() + (-self.logits).sigmoid() * inside
        return reached

    def _quantiles(self, levels: Tensor, tolerance: float) -> Tensor:
        """Return the quantiles; the search is for their logarithms, because values may differ by powers of ten."""
        scales = self.scales.expand(self.samples.shape)
        found = invert_cdf(
            lambda values: mixture.average(self._at_logarithm(values.unsqueeze(1)), self.weights, 1),
            (self.means - FAR * scales).amin(0).expand(len(levels), *self.mean.shape),
            (self.means + FAR * scales).amax(0).expand(len(levels), *self.mean.shape),
            levels,
            tolerance * scales.amin(0),
        )
        quantiles: Tensor = torch.where(self.zeros >= levels, 0.0, found.exp())
        return quantiles

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
        """Return the forecast of ``scale * target``, in the type of ``loc``; a ``loc`` would move the zeros."""
        if not bool((loc == 0).all()):
            raise ValueError(f"loc must be 0, because a zero must stay a zero, got {loc.flatten().tolist()}")
        logits, scales = self.logits.to(loc), self.scales.to(loc)
        return replace(self, logits=logits, means=self.means.to(loc) + scale.log(), scales=scales)

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast with ``factor`` times the spread of the logarithms; zeros are as probable as before."""
        centre = mixture.average(self.means.expand(self.logits.shape), self.weights)
        return replace(self, means=centre + factor * (self.means - centre), scales=self.scales * factor)
