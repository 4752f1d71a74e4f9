"""Priors over theta, the parameters of the prior over weights."""

import math
from dataclasses import dataclass

from torch import Tensor

from metaprior.checks import check_positive
from metaprior.weights import WeightDistribution


@dataclass(frozen=True)
class NormalGammaHyperprior:
    r"""$p(\theta) = N(\mu; 0, I) \prod_{l=1}^{D} \mathrm{Gamma}(\tau_l; a_0, b_0)$ (Ravi & Beatson 2019, section 3.3).

    $\tau_l = 1/\sigma_l^2$ are the precisions, $a_0$ the shape and $b_0$ the **rate**. It is a density over
    $(\mu, \tau)$: as in the paper, no Jacobian of $\tau(\rho)$ is added. The default values are the paper's.
    """

    a0: float = 2.0
    b0: float = 0.2

    def __post_init__(self) -> None:
        check_positive("a0", self.a0)
        check_positive("b0", self.b0)

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
        for name, value in vars(self).items():
            check_positive(name, value)
