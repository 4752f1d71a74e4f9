r"""q(theta; psi): what is believed about the prior after having seen tasks.

Theta are the means and the log scales of the prior over weights, $\theta = (\mu, \log\sigma)$ with
$p(\phi|\theta) = \prod_j N(\phi_j; \mu_j, \sigma_j^2)$, and q is a Gaussian over it:

$$q(\theta;\psi) = \prod_j N(\mu_j; m_j, s_j^2)\,N(\log\sigma_j; r_j, t_j^2),\qquad \psi = (m, s, r, t)$$

Everything that the objective asks of q has a closed form, because $\sigma_j$ is log-normal:
$E[\log\sigma_j] = r_j$ and $T_j := E[\sigma_j^{-2}] = e^{-2r_j + 2t_j^2}$. So theta is never sampled in training.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.hyperprior import GaussianHyperprior
from metaprior.weights import WeightDistribution, inverse_softplus

LARGEST_NEWTON_STEP = 0.8
"""Of a logarithm of a scale; up to 0.89 no such step on the objective can overshoot so far that it rises."""
SMALLEST_NEWTON_STEP = 1e-7
"""Nothing changes any more."""
FIRST_RELATIVE_STD = 0.1


class HyperPosterior(NamedTuple):
    """psi, in four vectors of length D. Standard deviations of zero are a theta that is known."""

    mean: Tensor
    """m: expected mean of a weight's prior."""
    mean_std: Tensor
    """s: how well that is known."""
    log_scale: Tensor
    """r: expected logarithm of the scale of a weight's prior."""
    log_scale_std: Tensor
    """t: how well that is known."""

    @classmethod
    def known(cls, theta: WeightDistribution) -> "HyperPosterior":
        """A theta without any doubt."""
        nothing = torch.zeros_like(theta.mu)
        return cls(theta.mu.detach().clone(), nothing, theta.sigma.detach().log(), nothing.clone())

    @classmethod
    def around(cls, theta: WeightDistribution) -> "HyperPosterior":
        """A first psi: close to a theta, before any task is seen."""
        sigma = theta.sigma.detach()
        return cls(
            theta.mu.detach().clone(),
            FIRST_RELATIVE_STD * sigma,
            sigma.log(),
            torch.full_like(sigma, FIRST_RELATIVE_STD),
        )

    @property
    def precision(self) -> Tensor:
        r"""$T = E[\sigma^{-2}]$, what a posterior is held with."""
        return torch.exp(2 * (self.log_scale_std**2 - self.log_scale))

    def kl_from(self, q: WeightDistribution) -> Tensor:
        r"""$E_{q(\theta)} KL(q_\lambda \| p(\cdot|\theta))$, summed over weights (the last axis: q may be a stack):

        $$\sum_j r_j - \log\sigma_{q,j}
        + \tfrac12 T_j\big(\sigma_{q,j}^2 + (\mu_{q,j} - m_j)^2 + s_j^2\big) - \tfrac12$$
        """
        sigma = F.softplus(q.rho)
        square = sigma**2 + (q.mu - self.mean) ** 2 + self.mean_std**2
        return (self.log_scale - sigma.log() + 0.5 * self.precision * square - 0.5).sum(-1)

    def kl_to(self, hyperprior: GaussianHyperprior | WeightDistribution) -> float:
        r"""$KL(q(\theta;\psi) \| p(\theta))$, summed over all 2D parts of theta; zero for a theta that was given."""
        if isinstance(hyperprior, WeightDistribution):
            return 0.0
        means = _kl_of_normals(self.mean, self.mean_std, 0.0, hyperprior.mean_std)
        centre = math.log(hyperprior.scale)
        scales = _kl_of_normals(self.log_scale, self.log_scale_std, centre, hyperprior.log_scale_std)
        return float(means + scales)

    def centre(self) -> WeightDistribution:
        r"""$N(m, T^{-1})$: the q that minimises ``kl_from``, so the posterior of a task without data."""
        return WeightDistribution(self.mean.clone(), inverse_softplus(self.precision.rsqrt()))

    def sample(self, for_means: Tensor, for_scales: Tensor) -> WeightDistribution:
        """Thetas from standard normal noise, shape (..., D) each, as priors over weights."""
        mu = self.mean + self.mean_std * for_means
        sigma = torch.exp(self.log_scale + self.log_scale_std * for_scales)
        return WeightDistribution(mu, inverse_softplus(sigma))


def _kl_of_normals(mean: Tensor, std: Tensor, prior_mean: float, prior_std: float) -> Tensor:
    ratio = std / prior_std
    return (0.5 * (ratio**2 + ((mean - prior_mean) / prior_std) ** 2 - 1) - ratio.log()).sum()


class PosteriorSums(NamedTuple):
    r"""All that psi has to know of M posteriors: M, $\sum_i \mu_i$ and $\sum_i \mu_i^2 + \sigma_i^2$, in float64."""

    tasks: int
    first: Tensor
    second: Tensor

    @classmethod
    def nothing(cls, like: Tensor) -> "PosteriorSums":
        """Of no posterior, for weights as in ``like``."""
        zero = torch.zeros_like(like, dtype=torch.float64)
        return cls(0, zero, zero.clone())

    def without(self, one: WeightDistribution) -> "PosteriorSums":
        """With one posterior (D,) taken out."""
        first, second = _sums(WeightDistribution(one.mu.unsqueeze(0), one.rho.unsqueeze(0)))
        return PosteriorSums(self.tasks - 1, self.first - first, self.second - second)

    def changed(self, before: WeightDistribution | None, after: WeightDistribution) -> "PosteriorSums":
        """With stacks of posteriors (B, D) in place of what they were before; None: they are new."""
        first, second = _sums(after)
        if before is None:
            return PosteriorSums(self.tasks + len(after.mu), self.first + first, self.second + second)
        old_first, old_second = _sums(before)
        return PosteriorSums(self.tasks, self.first + (first - old_first), self.second + (second - old_second))


def _sums(stack: WeightDistribution) -> tuple[Tensor, Tensor]:
    mu, sigma = stack.mu.detach().double(), stack.sigma.detach().double()
    return mu.sum(0), (mu**2 + sigma**2).sum(0)


def refitted(psi: HyperPosterior, sums: PosteriorSums, hyperprior: GaussianHyperprior, sweeps: int) -> HyperPosterior:
    r"""Lower the objective by psi alone, all posteriors being as they are; coordinate by coordinate, exactly.

    By psi the objective is, for every weight, with $A = \sum_i \sigma_i^2 + (\mu_i - m)^2 + s^2$,

    $$M r + \tfrac12 A\,e^{-2r + 2t^2} + KL(q(\theta;\psi)\|p(\theta))$$

    Its minimum in m and in s, the others fixed, has a closed form, and so has the one in t along a constant
    $T = e^{-2r + 2t^2}$ (r goes with it); in r it is convex, and one bounded Newton step is taken in a sweep. None of
    these can raise it. There is no learning rate, and no noise of a mini-batch: sums are over **all** tasks (this is
    the incremental form of Neal & Hinton 1998, for the hierarchy of Hoffman et al. 2013).
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
    """The v > 0 with a v^2 + b v = 1, without cancellation."""
    size = b.abs() + (b**2 + 4 * a).sqrt()
    return torch.where(b > 0, 2 / size, size / (2 * a))
