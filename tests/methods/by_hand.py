"""The paper's objective for one weight and a learned noise scale, written out in plain numbers.

The network is f(x) = w x. Only the standard normal draws come from outside.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

Points = Sequence[tuple[float, float]]


class Theta(NamedTuple):
    """Mean and rho of the weight, rho of the noise, and log step sizes of the three."""

    mu: float
    rho: float
    noise: float
    log_lr_mu: float
    log_lr_rho: float
    log_lr_noise: float


class Lambda(NamedTuple):
    mu: float
    rho: float
    noise: float


def softplus(r: float) -> float:
    return math.log1p(math.exp(r))


def sigmoid(r: float) -> float:
    return 1 / (1 + math.exp(-r))


def nll(weight: float, scale: float, points: Points) -> float:
    return sum(0.5 * ((y - weight * x) / scale) ** 2 + math.log(scale) + 0.5 * math.log(2 * math.pi) for x, y in points)


def expected_nll(q: Lambda, points: Points, eps: Sequence[float]) -> float:
    return sum(nll(q.mu + softplus(q.rho) * e, softplus(q.noise), points) for e in eps) / len(eps)


def kl(q: Lambda, theta: Theta) -> float:
    s, prior = softplus(q.rho), softplus(theta.rho)
    return math.log(prior / s) + (s**2 + (q.mu - theta.mu) ** 2) / (2 * prior**2) - 0.5


def log_hyperprior(theta: Theta, a0: float, b0: float) -> float:
    """log N(mu; 0, 1) + log Gamma(tau; a0, rate b0)."""
    tau = softplus(theta.rho) ** -2
    normal = -0.5 * theta.mu**2 - 0.5 * math.log(2 * math.pi)
    return normal + a0 * math.log(b0) - math.lgamma(a0) + (a0 - 1) * math.log(tau) - b0 * tau


def inner_step(q: Lambda, theta: Theta, support: Points, eps: Sequence[float], kl_weight: float) -> Lambda:
    """A damped step of gradient descent on (E[nll] + kl_weight KL) / N."""
    count, s, scale, prior = len(support), softplus(q.rho), softplus(q.noise), softplus(theta.rho)
    by_mu = by_rho = by_noise = 0.0
    for e in eps:
        weight = q.mu + s * e
        slope = sum(-(y - weight * x) * x / scale**2 for x, y in support)
        by_mu += slope / len(eps)
        by_rho += slope * e / len(eps)
        by_noise += sum(1 / scale - (y - weight * x) ** 2 / scale**3 for x, y in support) / len(eps)
    by_mu = (by_mu + kl_weight * (q.mu - theta.mu) / prior**2) / count
    by_rho = (by_rho + kl_weight * (s / prior**2 - 1 / s)) / count * sigmoid(q.rho)
    by_noise = by_noise / count * sigmoid(q.noise)
    alpha = math.exp(theta.log_lr_mu)
    alpha /= 1 + alpha * kl_weight / (count * prior**2)
    return Lambda(
        q.mu - alpha * by_mu,
        q.rho - math.exp(theta.log_lr_rho) * by_rho,
        q.noise - math.exp(theta.log_lr_noise) * by_noise,
    )


class Outer(NamedTuple):
    """The four terms of the meta-loss."""

    nll_support: float
    nll_query: float
    kl: float
    hyperprior: float


def outer_terms(
    q: Lambda, theta: Theta, support: Points, query: Points, eps: Sequence[float], num_tasks: int, a0: float, b0: float
) -> Outer:
    count = len(support) + len(query)
    return Outer(
        expected_nll(q, support, eps) / count,
        expected_nll(q, query, eps) / count,
        kl(q, theta) / count,
        -log_hyperprior(theta, a0, b0) / (num_tasks * count),
    )
