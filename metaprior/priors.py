"""Priors over the random weights, for methods that do not learn one (a learned prior is a ``WeightDistribution``); and
priors over theta, the parameters of a learned prior."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from metaprior.checks import keep_positive
from metaprior.weights import WeightDistribution


class Prior(Protocol):
    """Anything with a divergence from a posterior to it."""

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        """Return KL(q || self), **summed** over weights; ``phi``, (S, D), are samples of q, for estimates."""


@dataclass(frozen=True)
class NormalPrior:
    r"""$p(w) = \prod_j N(w_j; 0, s^2)$ with one standard deviation $s$ for all weights."""

    std: float = 1.0

    def __post_init__(self) -> None:
        keep_positive(self)

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
        keep_positive(self)
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


@dataclass(frozen=True)
class NormalGammaHyperprior:
    r"""$p(\theta) = N(\mu; 0, I) \prod_{l=1}^{D} \mathrm{Gamma}(\tau_l; a_0, b_0)$ (Ravi & Beatson 2019, section 3.3).

    $\tau_l = 1/\sigma_l^2$ are the precisions, $a_0$ the shape and $b_0$ the **rate**. It is a density over
    $(\mu, \tau)$: as in the paper, no Jacobian of $\tau(\rho)$ is added. The default values are the paper's.
    """

    a0: float = 2.0
    b0: float = 0.2

    def __post_init__(self) -> None:
        keep_positive(self)

    def log_prob(self, theta: WeightDistribution) -> Tensor:
        r"""Return $\log p(\theta)$, summed over weights."""
        log_tau = -2 * theta.sigma.log()
        normal = -0.5 * (theta.mu**2).sum() - 0.5 * math.log(2 * math.pi) * len(theta.mu)
        normaliser = self.a0 * math.log(self.b0) - math.lgamma(self.a0)
        gamma = (normaliser + (self.a0 - 1) * log_tau - self.b0 * log_tau.exp()).sum()
        return normal + gamma


@dataclass(frozen=True)
class GaussianHyperprior:
    r"""$p(\theta) = \prod_j N(\mu_j; 0, \kappa^2)\,N(\log\sigma_j; \log c, \omega^2)$:
    every weight's prior has a mean of about zero and a scale of about $c$.

    ``mean_std`` is $\kappa$, ``scale`` is $c$, ``log_scale_std`` is $\omega$ (1: the scale is within a factor 7 of $c$
    in 95 of 100 cases).
    """

    mean_std: float = 1.0
    scale: float = 0.1
    log_scale_std: float = 1.0

    def __post_init__(self) -> None:
        keep_positive(self)
