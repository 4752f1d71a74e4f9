r"""Special functions that torch lacks: ratios of gamma functions, and the incomplete beta function."""

import torch
from torch import Tensor

LARGE = 16.0
"""From here on Stirling's series of the gamma function is right to double precision."""
CONVERGED = 1e-12
MOST_TERMS = 20_000
"""Terms of a continued fraction: it takes about the square root of the larger parameter."""


def log_rising(x: Tensor, start: Tensor) -> Tensor:
    r"""Return $\log\Gamma(r + x) - \log\Gamma(r) - x\log r$ for the start r > 0, exact also where r is huge.

    The difference of two logarithms of gamma functions would lose all digits there. With $c(z)$, the correction of
    Stirling's series, it is $(r + x - \frac12)\log(1 + x/r) - x + c(r + x) - c(r)$.
    """
    small, large = start.clamp_max(LARGE), start.clamp_min(LARGE)
    directly = torch.lgamma(small + x) - torch.lgamma(small) - x * small.log()
    series = (large + x - 0.5) * torch.log1p(x / large) - x + _correction(large + x) - _correction(large)
    return torch.where(start > LARGE, series, directly)


def _correction(z: Tensor) -> Tensor:
    inverse = 1 / z
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))


def incomplete_beta(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """Return the regularised incomplete beta function I_x(a, b), in double precision; ``rest`` is 1 - x.

    Giving both x and 1 - x keeps the digits of whichever is small. NaN stays NaN.
    """
    a, b, x, rest = torch.broadcast_tensors(*(part.double() for part in (a, b, x, rest)))
    swapped = x * (a + b + 2) > a + 1  # the continued fraction converges quickly below the mean
    first, second = torch.where(swapped, b, a), torch.where(swapped, a, b)
    at, away = torch.where(swapped, rest, x), torch.where(swapped, x, rest)
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    log_beta = torch.lgamma(smaller) - log_rising(smaller, larger) - smaller * larger.log()
    powers = torch.special.xlogy(first, at) + torch.where(
        at < 0.5, torch.special.xlog1py(second, -at), torch.special.xlogy(second, away)
    )
    value = (powers - log_beta).exp() / first * _continued_fraction(first, second, at)
    return torch.where(swapped, 1 - value, value)


def _continued_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Return Lentz's evaluation of the continued fraction of the incomplete beta function."""
    c, d = torch.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = torch.ones_like(x)
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            change = change * d * c
        value = value * change
        if not bool(((change - 1).abs() > CONVERGED).any()):
            return value
    raise FloatingPointError(
        f"the incomplete beta function did not converge within {MOST_TERMS} terms for parameters up to "
        f"{float(torch.maximum(a, b).max()):.3g}. Try targets in larger units."
    )
