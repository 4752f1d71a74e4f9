"""Distributions over the weights of a network, and the divergence between two of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


def inverse_softplus(x: Tensor) -> Tensor:
    r"""The $\rho$ with $\mathrm{softplus}(\rho) = x$, for $x > 0$: $\rho = x + \log(1 - e^{-x})$."""
    return x + torch.log(-torch.expm1(-x))


class WeightDistribution(NamedTuple):
    r"""Diagonal Gaussian $q(\phi) = \prod_j N(\phi_j; \mu_j, \sigma_j^2)$ with $\sigma = \mathrm{softplus}(\rho)$.

    ``mu`` and ``rho`` are vectors of length D; ``plain`` holds the parameters that are not random, by name.
    In the letters of the method pages this is theta (as a prior) or lambda (as a posterior).
    """

    mu: Tensor
    rho: Tensor
    plain: dict[str, Tensor]

    @property
    def sigma(self) -> Tensor:
        """Standard deviations, shape (D,)."""
        return F.softplus(self.rho)

    def sample(self, noise: Tensor) -> Tensor:
        r"""Reparameterised draw $\phi = \mu + \sigma \epsilon$; noise of shape (..., D) gives phi of shape (..., D)."""
        if noise.ndim == 2 and len(noise) == 1:  # without broadcasting, whose backward pass would sum over one row
            return self.sample(noise[0]).unsqueeze(0)
        return self.mu + self.sigma * noise

    def kl_from(self, q: "WeightDistribution", phi: Tensor | None = None) -> Tensor:
        """KL(q || self), summed over weights, in closed form; ``phi`` is not needed and ignored."""
        return kl_divergence(q, self)

    def signal_to_noise(self) -> Tensor:
        r"""$|\mu_j| / \sigma_j$ for every weight (Blundell et al. 2015, section 5.1), shape (D,); zero where mu is."""
        return torch.where(self.mu == 0, 0.0, self.mu.abs() / self.sigma)

    def detached(self) -> "WeightDistribution":
        """The same numbers, copied, with no graph behind them."""
        plain = {name: value.detach().clone() for name, value in self.plain.items()}
        return WeightDistribution(self.mu.detach().clone(), self.rho.detach().clone(), plain)


def kl_divergence(q: WeightDistribution, p: WeightDistribution) -> Tensor:
    r"""$KL(q\|p) = \sum_j \log\frac{\sigma_{p,j}}{\sigma_{q,j}}
    + \frac{\sigma_{q,j}^2 + (\mu_{q,j}-\mu_{p,j})^2}{2\sigma_{p,j}^2} - \frac12$, **summed** over weights.

    Plain parameters are point values without a distribution and do not enter.
    """
    sigma_q, sigma_p = q.sigma, p.sigma
    return (torch.log(sigma_p / sigma_q) + (sigma_q**2 + (q.mu - p.mu) ** 2) / (2 * sigma_p**2) - 0.5).sum()


@dataclass(frozen=True)
class Layout:
    """Where each named tensor sits in the flat vector phi."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [prod(shape) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        """D, the length of phi."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector (D,) by name and in their own shapes."""
        pieces = flat.split(self.sizes)
        return {name: piece.view(shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse of ``split``."""
        return torch.cat([named[name].reshape(-1) for name in self.names])
