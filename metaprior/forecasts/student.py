"""Forecasts that are mixtures of Student's t."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from metaprior.forecasts.families import MixtureForecast
from metaprior.forecasts.special import incomplete_beta, log_rising


def student_log_density(z: Tensor, scale: Tensor, freedom: Tensor) -> Tensor:
    r"""Return the log density of $t_\nu$ at $z = (y - f)/s$, for the scale s."""
    half = freedom / 2
    # log Gamma((nu + 1)/2) - log Gamma(nu/2) - log(nu pi)/2; log nu cancels, so that nu may be huge
    constant = log_rising(torch.full_like(half, 0.5), half) - 0.5 * math.log(2 * math.pi)
    return constant - scale.log() - (freedom + 1) / 2 * torch.log1p(z.square() / freedom)


@dataclass(frozen=True, repr=False)
class StudentTForecast(MixtureForecast):
    """A mixture of S Student's t per target.

    Args:
        means: centres of the components, shape (S, N, ...).
        scales: their scales, in a shape that broadcasts.
        freedom: their degrees of freedom, above 2, in a shape that broadcasts.
        weights: the components' weights; None for weight samples.
    """

    means: Tensor
    scales: Tensor
    freedom: Tensor

    @property
    def samples(self) -> Tensor:
        """The means."""
        return self.means

    @property
    def variances(self) -> Tensor:
        r"""$s^2 \nu/(\nu - 2)$."""
        return self.scales.square() * self.freedom / (self.freedom - 2)

    def component_cdf(self, values: Tensor) -> Tensor:
        """Return each component's probability at or below the values."""
        z = (values - self.means) / self.scales
        square, freedom = z.square(), self.freedom
        total = freedom + square
        tail = 0.5 * incomplete_beta(freedom / 2, torch.full_like(z, 0.5), freedom / total, square / total).to(z)
        return torch.where(z > 0, 1 - tail, tail)

    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return each component's log density of the values."""
        return student_log_density((values - self.means) / self.scales, self.scales, self.freedom)

    def rescaled(self, loc: Tensor, scale: Tensor) -> Self:
        """Return the forecast of ``loc + scale * target``, in the type of ``loc``."""
        means, scales = torch.addcmul(loc, self.means.to(loc), scale), self.scales.to(loc) * scale
        return replace(self, means=means, scales=scales, freedom=self.freedom.to(loc))

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast whose whole spread around its mean is multiplied by a factor."""
        return replace(self, means=self.mean + factor * (self.means - self.mean), scales=self.scales * factor)
