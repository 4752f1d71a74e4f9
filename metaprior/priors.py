"""Priors over the random weights, for methods that do not learn one (a learned prior is a ``WeightDistribution``)."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from metaprior.checks import check_positive
from metaprior.weights import WeightDistribution


class Prior(Protocol):
    """Anything with a divergence from a posterior to it."""

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        """Return KL(q || self), **summed** over weights; ``phi``, (S, D), are samples of q, for estimates."""


def _keep_positive(prior: object, *names: str) -> None:
    """Store the named fields as plain floats; raise unless they are positive."""
    for name in names:
        value = float(getattr(prior, name))
        check_positive(name, value)
        object.__setattr__(prior, name, value)


@dataclass(frozen=True)
class NormalPrior:
    r"""$p(w) = \prod_j N(w_j; 0, s^2)$ with one standard deviation $s$ for all weights."""

    std: float = 1.0

    def __post_init__(self) -> None:
        _keep_positive(self, "std")

    def kl_from(self, q: WeightDistribution, phi: Tensor | None = None) -> Tensor:
        r"""Return $\sum_j \log\frac{s}{\sigma_j} + \frac{\sigma_j^2 + \mu_j^2}{2 s^2} - \frac12$, which is exact."""
        sigma = q.sigma
        # torch.dot, not (x**2).sum(): no temporary of length D, on the path of every training step.
        squares = torch.dot(q.mu, q.mu) + torch.dot(sigma, sigma)
        return len(sigma) * (math.log(self.std) - 0.5) - sigma.log().sum() + squares / (2 * self.std**2)


@dataclass(frozen=True)
class ScaleMixturePrior:
    r"""$p(w) = \prod_j \pi N(w_j; 0, s_1^2) + (1-\pi) N(w_j; 0, s_2^2)$ (Blundell et al. 2015, equation 7).

    A wide part for weights that matter and a narrow one that pulls the others to zero.
    """

    pi: float = 0.5
    std1: float = 1.0
    std2: float = math.exp(-6)

    def __post_init__(self) -> None:
        _keep_positive(self, "pi", "std1", "std2")
        if not 0 < self.pi < 1:
            raise ValueError(f"pi, the weight of the first part, must lie between 0 and 1, got {self.pi}")

    def log_prob(self, phi: Tensor) -> Tensor:
        """Return log p(phi), elementwise."""
        wide = math.log(self.pi) + _normal_log_density(phi, self.std1)
        narrow = math.log(1 - self.pi) + _normal_log_density(phi, self.std2)
        return torch.logaddexp(wide, narrow)

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        r"""Return the Monte Carlo estimate $-H(q) - \frac1S\sum_s \log p(\phi_s)$ from samples phi of q, shape (S, D).

        There is no closed form, but for the entropy $H(q) = \sum_j \log\sigma_j + \frac12\log 2\pi e$, so only the
        cross term is sampled: unbiased like the paper's $\log q(\phi) - \log p(\phi)$, with less variance.
        """
        entropy = q.sigma.log().sum() + 0.5 * math.log(2 * math.pi * math.e) * len(q.mu)
        return -entropy - self.log_prob(phi).sum() / len(phi)


def _normal_log_density(x: Tensor, std: float) -> Tensor:
    return -0.5 * (x / std) ** 2 - math.log(std * math.sqrt(2 * math.pi))
