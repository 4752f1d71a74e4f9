r"""The distribution of a pixel: two Gaussians of equal weight around the mean that the network gives.

$$p(y) = \tfrac12 N(y;\, \mu + d,\, s_1^2) + \tfrac12 N(y;\, \mu - d,\, s_2^2)$$

With $d = 0$ and unequal scales it has heavy tails, with $d \ne 0$ it is skewed or has two peaks: cloud or none. The
network has four outputs for each lead time, ($\mu$, d, raw $s_1$, raw $s_2$), and $s = \mathrm{softplus}(\text{raw}) +
s_{\min}$.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior import mixture
from metaprior.forecasts import GaussianForecast

OUTPUTS = 4
"""Outputs of the network for each lead time."""
LEAST_SCALE = 1e-3


def components(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and scales of the two Gaussians, each (2, N, L, H, W), from outputs (N, 4 L, H, W)."""
    mean, apart, *raw = outputs.chunk(OUTPUTS, 1)
    return torch.stack([mean + apart, mean - apart]), F.softplus(torch.stack(raw)) + LEAST_SCALE


class NowcastForecast(GaussianForecast):
    """A weighted mixture of networks, whose two Gaussians follow one another: components (2 K, N, L, H, W).

    ``epistemic`` is the spread between the means of the networks; ``aleatoric`` is everything else.
    """

    @cached_property
    def samples(self) -> Tensor:
        """The mean of each network, (K, N, L, H, W)."""
        pairs: Tensor = self.means.unflatten(0, (-1, 2))
        return pairs.mean(1)

    @cached_property
    def mean(self) -> Tensor:
        """The mean over networks."""
        return mixture.average(self.means, self.weights)

    @cached_property
    def epistemic(self) -> Tensor:
        """Standard deviation between networks."""
        assert self.weights is not None
        return mixture.spread(self.samples, self.weights.unflatten(0, (-1, 2)).sum(1)).sqrt()

    @cached_property
    def aleatoric(self) -> Tensor:
        """Standard deviation because the weather is uncertain, to each network."""
        within = (self.means.unflatten(0, (-1, 2)) - self.samples[:, None]).flatten(0, 1).square()
        return mixture.average(self.scales.square() + within, self.weights).sqrt()


def mixed(forecasts: Sequence[GaussianForecast], shares: Sequence[float]) -> NowcastForecast:
    """Return the mixture of forecasts of the same windows; one whose share is 0 is left out."""
    kept = [(one, share) for one, share in zip(forecasts, shares, strict=True) if share > 0]
    means, scales = torch.cat([one.means for one, _ in kept]), torch.cat([one.scales for one, _ in kept])
    weights = [share * one.weights.flatten() for one, share in kept if one.weights is not None]
    return NowcastForecast(means, scales, weights=torch.cat(weights))
