r"""Equal mixtures of Gaussians, many at once: what a score by lead time asks of each pixel's forecast.

A mixture is a pair of tensors ``means`` and ``scales``, both (S, M) in double precision: S components for each of M
values, $F(x) = \frac1S\sum_s \Phi\big((x - \mu_s)/\sigma_s\big)$. Nothing here allocates more than a few times
``means``, so that a caller who comes with small parts stays in a core's cache.

``crps`` is ``scores.crps`` with each pair of components looked at once, and ``quantiles`` is
``GaussianForecast.quantile`` by Newton's method instead of bisection: for a test of millions of pixels both are the
difference between seconds and minutes. Tests hold them to the slow ones.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

STEP_TOLERANCE = 1e-4
"""The last step, in standard deviations of the mixture: a bound of the error after a bisection, and after a step of
Newton's, which shrink quadratically, far above it."""

MOST_STEPS = 100
"""More than bisection from the widest bracket would need; nobody gets there."""


def cumulative(means: Tensor, scales: Tensor, values: Tensor) -> Tensor:
    """F at each value: (S, M), (S, M), (M,) -> (M,)."""
    below: Tensor = torch.special.ndtr((values - means) / scales)
    return below.mean(0)


def log_density(means: Tensor, scales: Tensor, values: Tensor) -> Tensor:
    """Logarithm of the mixture's density at each value: (M,)."""
    parts = -0.5 * ((values - means) / scales).square() - scales.log()
    return torch.logsumexp(parts, 0) - math.log(len(means)) - 0.5 * math.log(2 * math.pi)


def variance(means: Tensor, scales: Tensor) -> Tensor:
    """Of each mixture: (M,); the spread of the means with S - 1 in the denominator, as ``GaussianForecast.std`` has."""
    return means.var(0) + scales.square().mean(0)


def crps(means: Tensor, scales: Tensor, values: Tensor) -> Tensor:
    r"""Continuous ranked probability score of each value: (M,).

    $\frac1S\sum_s A(y - \mu_s, \sigma_s^2) - \frac{1}{2S^2}\sum_{s,r} A(\mu_s - \mu_r, \sigma_s^2 + \sigma_r^2)$
    (Grimit et al. 2006), $A(m, v) = E|m + \sqrt v\,\epsilon|$. The sum over pairs is symmetric and its diagonal is
    $A(0, 2\sigma^2) = 2\sigma/\sqrt\pi$, so pairs at distance 1, 2, ... S - 1 are all that is left.
    """
    samples, squares = len(means), scales.square()
    pairs = torch.zeros_like(values)
    for distance in range(1, samples):
        apart = means[distance:] - means[:-distance]
        pairs += _mean_absolute(apart, squares[distance:] + squares[:-distance]).sum(0)
    diagonal = scales.sum(0) * (2 / math.sqrt(math.pi))
    return _mean_absolute(values - means, squares).mean(0) - (2 * pairs + diagonal) / (2 * samples**2)


def _mean_absolute(mean: Tensor, square: Tensor) -> Tensor:
    r"""$A(m, v)$, the mean of the absolute value of a normal variable."""
    scale = square.sqrt()
    z = mean / scale
    return mean * torch.erf(z * math.sqrt(0.5)) + scale * torch.exp(-0.5 * z * z) * math.sqrt(2 / math.pi)


def quantiles(means: Tensor, scales: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles of each mixture at each level, (Q, M), right to 1e-4 of its standard deviation.

    Newton's method from the quantile of a normal with the mixture's moments. The root is kept in a bracket, at first
    the smallest and the largest of the components' own quantiles; a step that leaves it becomes a bisection. Between
    components that lie far apart F can be flat at exactly such a level: any point of that plateau may come back.
    """
    p = torch.tensor(levels, dtype=means.dtype, device=means.device)[:, None]  # (Q, 1)
    z = torch.special.ndtri(p)
    parts = means + z[:, None] * scales  # (Q, S, M)
    low, high = parts.amin(1), parts.amax(1)
    std = variance(means, scales).sqrt()
    x = torch.clamp(means.mean(0) + z * std, low, high)
    moved = high - low
    inverse = math.sqrt(0.5) / scales
    settled = torch.zeros_like(x, dtype=torch.bool)
    for _ in range(MOST_STEPS):
        following = torch.where(settled, x, _newton(means, inverse, p, x, low, high, moved))
        moved = torch.where(settled, moved, (following - x).abs())
        settled = moved <= STEP_TOLERANCE * std
        x = following
        if bool(settled.all()):
            break
    return x


def _newton(means: Tensor, inverse: Tensor, p: Tensor, x: Tensor, low: Tensor, high: Tensor, moved: Tensor) -> Tensor:
    r"""The next x (Q, M); ``low`` and ``high`` move with what is learned at this one; ``inverse`` is $1/\sqrt2\sigma$.

    A step more than half as long as the last one (``moved``) is not converging: bisection, which always does.
    """
    w = (x[:, None] - means).mul_(inverse)  # (Q, S, M)
    excess = 0.5 + 0.5 * torch.erf(w).mean(1) - p
    density = w.square_().neg_().exp_().mul_(inverse).mean(1) / math.sqrt(math.pi)
    torch.where(excess > 0, x, high, out=high)
    torch.where(excess > 0, low, x, out=low)
    step = excess / density  # infinite or NaN where the density has vanished: a bisection too
    newton = x - step
    good = (newton >= low) & (newton <= high) & (step.abs() <= moved / 2)
    return torch.where(good, newton, (low + high) / 2)
