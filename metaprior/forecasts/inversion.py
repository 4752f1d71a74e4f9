"""Quantiles of distributions without a closed form: one safeguarded root search."""

from collections.abc import Callable

import torch
from torch import Tensor

MOST_STEPS = 200
"""More steps than bisection of any bracket of doubles that is not absurd would need."""
ROUNDING = 4 * torch.finfo(torch.float64).eps


def invert_cdf(
    cdf: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, level: Tensor, tolerance: Tensor | float
) -> Tensor:
    """Return the smallest value in [low, high] at which the distribution function reaches ``level``.

    Chandrupatla's method (1997): inverse quadratic interpolation where that is safe, bisection elsewhere, so the root
    stays in a bracket. An atom at ``low`` or at ``high`` is returned exactly.

    Args:
        cdf: the distribution function, elementwise; it may have steps.
        low: lower ends, in double precision.
        high: upper ends; the function must reach the level there.
        level: levels between 0 and 1, in a shape that broadcasts.
        tolerance: largest distance to the quantile, in the shape of ``low`` or one number.
    """
    a, b = high, low
    above, below = cdf(a) - level, cdf(b) - level
    at_low = below >= 0
    b = torch.where(at_low, a, b)  # nothing is left to search: the bracket is one point
    c, beyond = a, above
    share = torch.full_like(a, 0.5)
    for _ in range(MOST_STEPS):
        narrow = tolerance + ROUNDING * torch.maximum(a.abs(), b.abs())
        if not bool(((b - a).abs() > narrow).any()):
            break
        x = a + share * (b - a)
        found = cdf(x) - level
        same = (found >= 0) == (above >= 0)
        c, beyond = torch.where(same, a, b), torch.where(same, above, below)
        b, below = torch.where(same, b, a), torch.where(same, below, above)
        a, above = x, found
        share = _next_share(a, b, c, above, below, beyond, 0.5 * narrow)
    return torch.where(at_low, low, torch.where(above >= 0, a, b))


def _next_share(a: Tensor, b: Tensor, c: Tensor, above: Tensor, below: Tensor, beyond: Tensor, least: Tensor) -> Tensor:
    """Return how far the next point lies on the way from the last one, a, to the other end of the bracket, b."""
    position, height = (a - b) / (c - b), (above - below) / (beyond - below)
    smooth = (height.square() < position) & ((1 - height).square() < 1 - position)
    quadratic = above / (below - above) * beyond / (below - beyond)
    quadratic = quadratic + (c - a) / (b - a) * above / (beyond - above) * below / (beyond - below)
    edge = (least / (b - a).abs()).clamp_max(0.5)
    share = torch.where(smooth & quadratic.isfinite(), quadratic, 0.5)
    return torch.maximum(torch.minimum(share, 1 - edge), edge)
