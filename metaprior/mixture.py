r"""Mixtures of Gaussians, many at once: distribution function, quantiles, density and CRPS.

$$F(x) = \sum_s w_s\, \Phi\Big(\frac{x - \mu_s}{\sigma_s}\Big)$$

``means`` and ``scales`` have shape (S, M): S components for each of M values. ``weights`` (S, 1) or (S, M) sum to one
over the components, which are then the whole distribution; None are S samples from it, each of weight 1/S. Nothing here
allocates more than a few times ``means``, so a caller who passes small parts stays in a core's cache.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

STEP_TOLERANCE = 1e-4
"""Largest last step of ``quantiles``, in standard deviations of the mixture: it bounds the error after a bisection, and
after one of Newton's steps, which shrink quadratically, the error is far below it."""

MOST_STEPS = 100
"""More steps than bisection from the widest bracket would need."""


class Components(NamedTuple):
    """Mixtures of M targets: means and scales (S, M), weights (S, 1) or (S, M) or None."""

    means: Tensor
    scales: Tensor
    weights: Tensor | None

    def part(self, targets: slice) -> "Components":
        """Return the mixtures of some targets, in double precision."""
        weights = self.weights if self.weights is None or self.weights.shape[1] == 1 else self.weights[:, targets]
        doubled = None if weights is None else weights.detach().double()
        return Components(self.means[:, targets].detach().double(), self.scales[:, targets].detach().double(), doubled)


def average(values: Tensor, weights: Tensor | None, axis: int = 0) -> Tensor:
    """Return the mean of the components' values over their axis."""
    return values.mean(axis) if weights is None else (weights * values).sum(axis)


def cumulative(means: Tensor, scales: Tensor, values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return F at each value: (S, M), (S, M), (M,) -> (M,)."""
    return average(torch.special.ndtr((values - means) / scales), weights)


def component_log_density(means: Tensor, scales: Tensor, values: Tensor) -> Tensor:
    """Return the logarithm of each component's density at each value, (S, M)."""
    return -0.5 * ((values - means) / scales).square() - scales.log() - 0.5 * math.log(2 * math.pi)


def log_average(log_densities: Tensor, weights: Tensor | None) -> Tensor:
    """Return the logarithm of the mean of the components' densities."""
    if weights is None:
        return torch.logsumexp(log_densities, 0) - math.log(len(log_densities))
    return torch.logsumexp(log_densities + weights.log(), 0)


def log_density(means: Tensor, scales: Tensor, values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the logarithm of the mixture's density at each value, (M,)."""
    return log_average(component_log_density(means, scales, values), weights)


def spread(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the variance of the components' values; for samples with S - 1 in its denominator."""
    return values.var(0) if weights is None else average((values - average(values, weights)).square(), weights)


def variance(means: Tensor, scales: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the variance of each mixture, (M,)."""
    return spread(means, weights) + average(scales.square(), weights)


def crps(means: Tensor, scales: Tensor, values: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return the continuous ranked probability score of each value, (M,).

    $$\mathrm{CRPS}(F, y) = \int (F(t) - 1[t \ge y])^2 dt = \sum_s w_s A(y - \mu_s, \sigma_s^2)
    - \frac12\sum_{s,r} w_s w_r A(\mu_s - \mu_r, \sigma_s^2 + \sigma_r^2)$$

    (Grimit et al. 2006), $A(m, v) = E|m + \sqrt v\,\epsilon|$. The sum over pairs is symmetric and its diagonal is
    $A(0, 2\sigma^2) = 2\sigma/\sqrt\pi$, so only pairs at distance 1, 2, ... S - 1 are computed, each once.
    """
    samples, squares = len(means), scales.square()
    pairs = torch.zeros_like(values)
    for distance in range(1, samples):
        apart = _mean_absolute(means[distance:] - means[:-distance], squares[distance:] + squares[:-distance])
        pairs += (apart if weights is None else weights[distance:] * weights[:-distance] * apart).sum(0)
    diagonal = (scales if weights is None else weights.square() * scales).sum(0) * (2 / math.sqrt(math.pi))
    both = (2 * pairs + diagonal) / (2 * (samples**2 if weights is None else 1))
    return average(_mean_absolute(values - means, squares), weights) - both


def _mean_absolute(mean: Tensor, square: Tensor) -> Tensor:
    r"""Return $A(m, v)$, the mean of the absolute value of a normal variable."""
    scale = square.sqrt()
    z = mean / scale
    return mean * torch.erf(z * math.sqrt(0.5)) + scale * torch.exp(-0.5 * z * z) * math.sqrt(2 / math.pi)


def quantiles(
    means: Tensor,
    scales: Tensor,
    levels: Sequence[float],
    weights: Tensor | None = None,
    *,
    tolerance: float = STEP_TOLERANCE,
) -> Tensor:
    """Return the quantiles of each mixture at each level, (Q, M), right to ``tolerance`` standard deviations of it.

    Newton's method from the quantile of a normal with the mixture's moments. The root is kept in a bracket, at first
    the smallest and the largest of the components' own quantiles; a step that leaves it becomes a bisection. Between
    components that lie far apart F can be flat at exactly such a level: any point of that plateau may be returned.
    """
    p = torch.tensor(levels, dtype=means.dtype, device=means.device)[:, None]  # (Q, 1)
    z = torch.special.ndtri(p)
    parts = means + z[:, None] * scales  # (Q, S, M)
    low, high = parts.amin(1), parts.amax(1)
    std = variance(means, scales, weights).sqrt()
    x = torch.clamp(average(means, weights) + z * std, low, high)
    moved = high - low
    inverse = math.sqrt(0.5) / scales
    settled = torch.zeros_like(x, dtype=torch.bool)
    for _ in range(MOST_STEPS):
        following = torch.where(settled, x, _newton(means, inverse, weights, p, x, low, high, moved))
        moved = torch.where(settled, moved, (following - x).abs())
        settled = moved <= tolerance * std
        x = following
        if bool(settled.all()):
            break
    return x


def _newton(
    means: Tensor,
    inverse: Tensor,
    weights: Tensor | None,
    p: Tensor,
    x: Tensor,
    low: Tensor,
    high: Tensor,
    moved: Tensor,
) -> Tensor:
    r"""Return the next x, (Q, M), and narrow the bracket in place; ``inverse`` is $1/\sqrt2\sigma$.

    A step more than half as long as the last one (``moved``) is not converging: it becomes a bisection, which does.
    """
    w = (x[:, None] - means).mul_(inverse)  # (Q, S, M)
    excess = 0.5 + 0.5 * average(torch.erf(w), weights, 1) - p
    density = average(w.square_().neg_().exp_().mul_(inverse), weights, 1) / math.sqrt(math.pi)
    torch.where(excess > 0, x, high, out=high)
    torch.where(excess > 0, low, x, out=low)
    step = excess / density  # infinite or NaN where the density has vanished: a bisection too
    newton = x - step
    good = (newton >= low) & (newton <= high) & (step.abs() <= moved / 2)
    return torch.where(good, newton, (low + high) / 2)
