r"""Mixtures of Gaussians, many at once: distribution function, quantiles, density and CRPS.

$$F(x) = \sum_s w_s\, \Phi\Big(\frac{x - \mu_s}{\sigma_s}\Big)$$

``means`` and ``scales`` have shape (S, M): S components for each of M values. ``weights`` (S, 1) or (S, M) sum to one
over the components, which are then the whole distribution; None are S samples from it, each of weight 1/S. Nothing here
allocates more than a few times ``means``, so a caller who passes small parts stays in a core's cache.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-7
"""Largest error of a quantile in standard deviations of the mixture, as the next step shows it, and of the probability
at it, as a share of the level (or of one minus the level)."""

SMALLEST_BRACKET = 1e-15
"""Width of the bracket of a quantile, in standard deviations of the mixture, that ends its search: components of a
smaller scale than this have no quantiles in double precision."""

MOST_STEPS = 200
"""More steps than a search needs that halves its bracket in every second one."""

NUMBERS_AT_ONCE, NUMBERS_AT_ONCE_ON_GPU = 2**17, 2**24
"""Numbers of components that are worked on together: a MiB, which a core's cache holds; a GPU wants more at once."""


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


def parts(means: Tensor, times: int = 1) -> Iterator[slice]:
    """Iterate over parts of the second axis of (S, N, ...) of a size that a core's cache holds ``times`` times."""
    at_once = NUMBERS_AT_ONCE if means.device.type == "cpu" else NUMBERS_AT_ONCE_ON_GPU
    size = max(1, at_once * means.shape[1] // max(1, times * means.numel()))
    for start in range(0, means.shape[1], size):
        yield slice(start, start + size)


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


def quantiles(means: Tensor, scales: Tensor, levels: Sequence[float], weights: Tensor | None = None) -> Tensor:
    """Return the quantiles of each mixture at each level, (Q, M), computed in double precision to ``TOLERANCE``.

    Between components that lie far apart F can be flat at exactly such a level: any point of that plateau may be
    returned. Targets are searched in parts that fit into a core's cache, all levels together.
    """
    found = torch.empty(len(levels), means.shape[1], dtype=torch.float64, device=means.device)
    whole = Components(means, scales, weights)
    for part in parts(means, len(levels)):
        found[:, part] = _quantiles_of(whole.part(part), levels)
    return found


def _quantiles_of(part: Components, levels: Sequence[float]) -> Tensor:
    """Return the quantiles of a few mixtures: their lower tails in units of mean 0 and variance 1 are searched.

    An upper quantile is the lower one of the mirrored mixture, so that probabilities keep their relative precision.
    """
    means, scales, weights = part
    weights = None if weights is None else weights / weights.sum(0)
    centre = average(means, weights)
    away = means - centre
    std = average(away.square().add_(scales.square()), weights).sqrt()
    std = torch.where(std == 0, 1.0, std)  # a single point: any unit does
    sides = [1.0 if level <= 0.5 else -1.0 for level in levels]
    p = torch.tensor([min(level, 1 - level) for level in levels], dtype=means.dtype, device=means.device)
    standard = away.div_(std)
    found = _lower_quantiles(
        torch.cat([side * standard for side in sides], 1),
        (std * math.sqrt(0.5) / scales).repeat(1, len(levels)),
        None if weights is None else weights.expand_as(means).repeat(1, len(levels)),
        p.repeat_interleave(means.shape[1]),
    )
    return torch.stack([centre + side * std * one for side, one in zip(sides, found.chunk(len(levels)), strict=True)])


def _lower_quantiles(means: Tensor, inverse: Tensor, weights: Tensor | None, p: Tensor) -> Tensor:
    r"""Return the quantiles at levels p <= 1/2, (K,), of mixtures (S, K) of mean 0 and variance 1.

    Halley's method for $\log F(x) = \log p$, from the quantile of a normal distribution. The root is kept in a bracket,
    at first that of Cantelli's inequality, $-\sqrt{(1-p)/p} \le x \le \sqrt{p/(1-p)}$. A step that leaves it, or is
    more than half as long as the last one, is not converging: it becomes a bisection, which does. Mixtures whose
    quantile is found leave the search. ``inverse`` is $1/\sqrt2\sigma$.
    """
    x, low, high = torch.special.ndtri(p), -((1 - p) / p).sqrt(), (p / (1 - p)).sqrt()
    found: Tensor = x.clone()
    place, moved = torch.arange(len(p), device=p.device), high - low
    settled = torch.zeros_like(place, dtype=torch.bool)
    for _ in range(MOST_STEPS):
        below, step = _halley(means, inverse, weights, p, x)
        excess = below - p
        low, high = torch.where(excess > 0, low, x), torch.where(excess > 0, x, high)
        good = (x - step >= low) & (x - step <= high) & (step.abs() <= moved / 2)
        following = torch.where(good, x - step, (low + high) / 2)
        moved = (following - x).abs()
        accurate = ((moved <= TOLERANCE) & (excess.abs() <= TOLERANCE * p)) | (excess == 0)
        settled = settled | accurate | (high - low <= SMALLEST_BRACKET) | x.isnan()
        x = torch.where(settled, x, following)
        found[place] = x
        left = ~settled
        count = int(left.sum())
        if count == 0:
            break
        if count <= len(p) / 2:
            place, p, x, low, high, moved, settled = (one[left] for one in (place, p, x, low, high, moved, settled))
            means, inverse = means[:, left], inverse[:, left]
            weights = None if weights is None else weights[:, left]
    return found


def _halley(means: Tensor, inverse: Tensor, weights: Tensor | None, p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return F at x, and how far Halley's step would lower x: infinite or NaN where the density has vanished."""
    u = (means - x).mul_(inverse)  # (S, K)
    below = average(torch.erfc(u), weights) / 2
    densities = u.square().neg_().exp_().mul_(inverse)
    density = average(densities, weights) / math.sqrt(math.pi)
    slope = average(densities.mul_(u).mul_(inverse), weights) * (2 / math.sqrt(math.pi))
    log_excess = torch.log(below / p)
    bend = (1 - 0.5 * log_excess * (slope * below / density.square() - 1)).clamp(0.5, 2.0)
    step: Tensor = log_excess * below / density / bend
    return below, step
