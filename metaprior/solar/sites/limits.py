r"""Forecasts of power within its limits: never negative, never above what the plant can give, zero at night.

A mixture of Gaussians Y knows no limits. The forecast is that of $\min(\max(Y, 0), c)$, whose quantiles are those of Y,
clipped, and whose mean has a closed form,

$$E = c - \sum_k w_k \big[H_k(c) - H_k(0)\big],\qquad
  H_k(y) = (y - m_k)\,\Phi\Big(\frac{y - m_k}{s_k}\Big) + s_k\,\varphi\Big(\frac{y - m_k}{s_k}\Big),$$

because $E = \int_0^c P(Y > y)\,dy$, and $H_k$ is an integral of the distribution function of a component.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaprior.forecasts import GaussianForecast

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PowerForecast:
    """Forecasts of N hours in shares of capacity: ``mean`` (N,) and ``quantiles`` (levels, N)."""

    mean: Floats
    quantiles: Floats


def within_limits(
    forecast: GaussianForecast, levels: tuple[float, ...], night: NDArray[np.bool_], limit: float
) -> PowerForecast:
    """Return the forecast of power between zero and ``limit``, which is exactly zero where it is night, (N,)."""
    components = forecast.components().part(slice(None))
    means, scales, weights = components
    assert weights is not None
    upper, lower = (_integral(bound, means, scales) for bound in (limit, 0.0))
    mean = limit - (weights * (upper - lower)).sum(0)
    quantiles = forecast.quantile(list(levels)).double().flatten(1).clamp(0.0, limit)
    return PowerForecast(np.where(night, 0.0, mean.clamp(0.0, limit).numpy()), np.where(night, 0.0, quantiles.numpy()))


def mixed(first: GaussianForecast, second: GaussianForecast, share: float) -> GaussianForecast:
    """Return the distribution that is ``second`` with probability ``share`` and ``first`` otherwise."""
    assert first.weights is not None
    assert second.weights is not None
    return GaussianForecast(
        torch.cat([first.means, second.means]),
        torch.cat([one.scales.expand_as(one.means) for one in (first, second)]),
        weights=torch.cat([(1.0 - share) * first.weights.flatten(1), share * second.weights.flatten(1)]),
    )


def _integral(bound: float, means: Tensor, scales: Tensor) -> Tensor:
    z = (bound - means) / scales
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    integral: Tensor = scales * (z * torch.special.ndtr(z) + density)
    return integral
