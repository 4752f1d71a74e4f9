r"""The posterior q(theta; psi) over the prior itself.

Theta holds the means and log scales of the prior over weights, $\theta = (\mu, \log\sigma)$ with
$p(\phi|\theta) = \prod_j N(\phi_j; \mu_j, \sigma_j^2)$, and q is a Gaussian over theta:

$$q(\theta;\psi) = \prod_j N(\mu_j; m_j, s_j^2)\,N(\log\sigma_j; r_j, t_j^2),\qquad \psi = (m, s, r, t)$$

Every expectation in the objective has a closed form, because $\sigma_j$ is log-normal: $E[\log\sigma_j] = r_j$ and
$T_j := E[\sigma_j^{-2}] = e^{-2r_j + 2t_j^2}$. Training therefore never samples theta.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.priors import GaussianHyperprior
from metaprior.weights import WeightDistribution, inverse_softplus

LARGEST_NEWTON_STEP = 0.8
"""Bound on a Newton step in a log scale: up to 0.89 no step overshoots so far that the objective rises."""
SMALLEST_NEWTON_STEP = 1e-7
"""Sweeps end once no step is larger than this."""
FIRST_RELATIVE_STD = 0.1


class HyperPosterior(NamedTuple):
    """psi as four vectors of length D. Standard deviations of zero mean that theta is fixed."""

    mean: Tensor
    """m: expected mean of a weight's prior."""
    mean_std: Tensor
    """s: standard deviation of that mean."""
    log_scale: Tensor
    """r: expected log scale of a weight's prior."""
    log_scale_std: Tensor
    """t: standard deviation of that log scale."""

    @classmethod
    def around(cls, theta: WeightDistribution, relative_std: float = FIRST_RELATIVE_STD) -> "HyperPosterior":
        """Return a psi close to a given theta, to start from; with ``relative_std=0`` the point mass at theta."""
        sigma = theta.sigma.detach()
        doubt = torch.full_like(sigma, relative_std)
        return cls(theta.mu.detach().clone(), doubt * sigma, sigma.log(), doubt)

    @property
    def precision(self) -> Tensor:
        r"""Return $T = E[\sigma^{-2}]$, the precision with which the prior holds a posterior."""
        return torch.exp(2 * (self.log_scale_std**2 - self.log_scale))

    def kl_from(self, q: WeightDistribution, phi: Tensor | None = None) -> Tensor:
        r"""Return $E_{q(\theta)} KL(q_\lambda \| p(\cdot|\theta))$, summed over the last axis (q may be a stack):

        $$\sum_j r_j - \log\sigma_{q,j}
        + \tfrac12 T_j\big(\sigma_{q,j}^2 + (\mu_{q,j} - m_j)^2 + s_j^2\big) - \tfrac12$$
        """
        sigma = F.softplus(q.rho)
        square = sigma**2 + (q.mu - self.mean) ** 2 + self.mean_std**2
        return (self.log_scale - sigma.log() + 0.5 * self.precision * square - 0.5).sum(-1)

    def kl_to(self, hyperprior: GaussianHyperprior | WeightDistribution) -> float:
        r"""Return $KL(q(\theta;\psi) \| p(\theta))$, summed over all 2D parts of theta; 0 where theta is fixed."""
        if isinstance(hyperprior, WeightDistribution):
            return 0.0
        means = _kl_of_normals(self.mean, self.mean_std, 0.0, hyperprior.mean_std)
        centre = math.log(hyperprior.scale)
        scales = _kl_of_normals(self.log_scale, self.log_scale_std, centre, hyperprior.log_scale_std)
        return float(means + scales)

    def centre(self) -> WeightDistribution:
        r"""Return $N(m, T^{-1})$, the q that minimises ``kl_from``: the posterior of a task without data."""
        return WeightDistribution(self.mean.clone(), inverse_softplus(self.precision.rsqrt()))

    def sample(self, for_means: Tensor, for_scales: Tensor) -> WeightDistribution:
        """Return thetas, as priors over weights, from two tensors of standard normal noise of shape (..., D)."""
        mu = self.mean + self.mean_std * for_means
        sigma = torch.exp(self.log_scale + self.log_scale_std * for_scales)
        return WeightDistribution(mu, inverse_softplus(sigma))


def _kl_of_normals(mean: Tensor, std: Tensor, prior_mean: float, prior_std: float) -> Tensor:
    ratio = std / prior_std
    return (0.5 * (ratio**2 + ((mean - prior_mean) / prior_std) ** 2 - 1) - ratio.log()).sum()


class PosteriorSums(NamedTuple):
    r"""The sufficient statistics of M posteriors: M, $\sum_i \mu_i$ and $\sum_i \mu_i^2 + \sigma_i^2$, in float64."""

    tasks: int
    first: Tensor
    second: Tensor

    @classmethod
    def empty(cls, like: Tensor) -> "PosteriorSums":
        """Return the sums over no posterior, for weights as in ``like``."""
        zero = torch.zeros_like(like, dtype=torch.float64)
        return cls(0, zero, zero.clone())

    def updated(self, before: WeightDistribution | None, after: WeightDistribution | None) -> "PosteriorSums":
        """Return the sums with posteriors (B, D) replaced; ``before=None`` adds new ones, ``after=None`` removes."""
        (gone, old_first, old_second), (come, first, second) = _sums(before), _sums(after)
        first, second = self.first + (first - old_first), self.second + (second - old_second)
        return PosteriorSums(self.tasks + come - gone, first, second)


def _sums(stack: WeightDistribution | None) -> tuple[int, Tensor, Tensor]:
    if stack is None:
        return 0, torch.zeros(()), torch.zeros(())
    mu, sigma = stack.mu.detach().double(), stack.sigma.detach().double()
    return len(mu), mu.sum(0), (mu**2 + sigma**2).sum(0)


def fit_psi(psi: HyperPosterior, sums: PosteriorSums, hyperprior: GaussianHyperprior, sweeps: int) -> HyperPosterior:
    r"""Return the psi that minimises the objective for fixed posteriors, by coordinate descent from ``psi``.

    As a function of psi the objective is, for every weight, with $A = \sum_i \sigma_i^2 + (\mu_i - m)^2 + s^2$,

    $$M r + \tfrac12 A\,e^{-2r + 2t^2} + KL(q(\theta;\psi)\|p(\theta))$$

    The minima over m and over s have closed forms, and so has the one over t along a constant $T = e^{-2r + 2t^2}$
    (r follows t). The objective is convex in r, and a sweep takes one bounded Newton step. No part of a sweep can raise
    the objective. There is no learning rate and no mini-batch noise, because the sums are over **all** tasks (the
    incremental form of Neal & Hinton 1998, for the hierarchy of Hoffman et al. 2013).
    """
    m, s, r, t = (value.double() for value in psi)
    precision_of_mean, precision_of_scale = hyperprior.mean_std**-2, hyperprior.log_scale_std**-2
    count, usual = sums.tasks, math.log(hyperprior.scale)
    for _ in range(sweeps):
        rest = r - t**2
        held = torch.exp(-2 * rest)  # T
        gathered = held * count + precision_of_mean
        m, s = held * sums.first / gathered, gathered.rsqrt()
        spread = (sums.second - 2 * m * sums.first + count * (m**2 + s**2)).clamp_min(0.0)  # A; rounding, below zero
        square = _positive_root(2 * precision_of_scale, 2 * count + precision_of_scale * (2 * (rest - usual) + 1))
        t, r = square.sqrt(), rest + square
        pull = spread * held
        slope = count - pull + precision_of_scale * (r - usual)
        newton = (slope / (2 * pull + precision_of_scale)).clamp(-LARGEST_NEWTON_STEP, LARGEST_NEWTON_STEP)
        r = r - newton
        if float(newton.abs().max()) < SMALLEST_NEWTON_STEP:
            break
    return HyperPosterior(*(value.to(psi.mean) for value in (m, s, r, t)))


def _positive_root(a: float, b: Tensor) -> Tensor:
    """Return the v > 0 with a v^2 + b v = 1, without cancellation."""
    size = b.abs() + (b**2 + 4 * a).sqrt()
    return torch.where(b > 0, 2 / size, size / (2 * a))
