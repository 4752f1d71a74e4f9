"""Gaussians around the output: with one noise scale, with scales from the network, and judged by the CRPS."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.checks import keep_positive
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods.likelihood import Likelihood, refuse_broadcast
from metaprior.likelihoods.location_scale import NETWORK, LocationScale, match_channels

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _gaussian_nll(mean: Tensor, scale: Tensor, targets: Tensor) -> Tensor:
    r"""Return $\frac12 (y_c - f_c)^2/s_c^2 + \log s_c + \frac12\log 2\pi$ for each target."""
    refuse_broadcast(targets, mean)
    return 0.5 * ((targets - mean) / scale) ** 2 + scale.log() + HALF_LOG_2PI


@dataclass(frozen=True)
class Gaussian(LocationScale):
    r"""$p(y|f) = \prod_c N(y_c; f_c, s_c^2)$, where the network gives the mean f.

    ``noise`` is a fixed standard deviation $s$ in the targets' own units, one number or one for each output channel. By
    default s is learned, one for all outputs or (``per_channel=True``) one for each channel (axis 1). Mean squared
    error is this likelihood with a fixed noise: see ``docs/conventions.md``.
    """

    def __post_init__(self) -> None:
        if self.noise == NETWORK:
            raise ValueError(
                "noise of a Gaussian must be a number or None, got 'network'. Try HeteroscedasticGaussian()."
            )
        super().__post_init__()

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density with the learned or the fixed noise."""
        return _gaussian_nll(outputs, self.scale(targets.ndim, parameters, outputs), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Return the mixture over weight samples with the same noise around each."""
        scale = self.scale(outputs.ndim - 1, parameters, outputs)
        return GaussianForecast(outputs, scale.reshape(*[1] * (outputs.ndim - scale.ndim), *scale.shape))


@dataclass(frozen=True)
class HeteroscedasticGaussian(Likelihood):
    r"""$p(y|f) = \prod_c N(y_c; f_c, s_c^2)$, where the network gives the mean f and the scale s.

    It has 2C output channels for C target channels (axis 1), means first, and $s = \mathrm{softplus}(\text{raw}) +
    s_{\min}$. ``min_scale``, in the units the network is trained in (standard deviations of the targets, if they are
    standardised), keeps a perfect fit from an infinite density.
    """

    min_scale: float = 1e-3

    continuous: ClassVar[bool] = True

    @property
    def outputs_per_target(self) -> int:
        """Two: a mean and a scale."""
        return 2

    def __post_init__(self) -> None:
        keep_positive(self)

    def mean_and_scale(self, outputs: Tensor, channel_axis: int) -> tuple[Tensor, Tensor]:
        """Return the two halves of the outputs' channels, the second as scales."""
        mean, raw = outputs.chunk(2, channel_axis)
        return mean, F.softplus(raw) + self.min_scale

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log density with the network's own scale."""
        return _gaussian_nll(*self.mean_and_scale(outputs, 1), targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        """Return the mixture over weight samples, each with its own mean and noise."""
        return GaussianForecast(*self.mean_and_scale(outputs, 2))

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return targets with half the outputs' channels, or raise."""
        return match_channels(self, targets, output_shape, "a mean and a scale")


@dataclass(frozen=True)
class CRPSGaussian(HeteroscedasticGaussian):
    r"""A Gaussian whose mean and scale the network gives, with the CRPS as its loss in place of $-\log p$:

    $$w\sum_c s_c\Big[z_c\,(2\Phi(z_c) - 1) + 2\varphi(z_c) - \frac{1}{\sqrt\pi}\Big],\qquad
      z_c = (y_c - f_c)/s_c$$

    A loss in place of a log-likelihood gives a generalised posterior (Bissiri, Holmes & Walker 2016). The CRPS of a
    Gaussian is proper, with the closed form of Gneiting & Raftery (2007), and its derivatives are bounded: the gradient
    of the likelihood grows with $1/s^2$, so few steps on few examples diverge where the network was too certain.
    ``weight`` is $w$, the nats that a unit of CRPS counts; the forecast is the same Gaussian (mixture).
    """

    weight: float = 10.0

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the weighted CRPS of each target."""
        mean, scale = self.mean_and_scale(outputs, 1)
        refuse_broadcast(targets, mean)
        z = (targets - mean) / scale
        density = torch.exp(-0.5 * z**2 - HALF_LOG_2PI)
        crps = scale * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))
        return self.weight * crps
