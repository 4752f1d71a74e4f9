"""Factors of the spread at each lead time, such that the 90 % interval holds 90 % of earlier frames."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.nowcast.inputs import LEADS

LEVEL = 0.9
NARROWEST, WIDEST = 0.4, 4.0
"""Limits of a factor."""
PRIOR_WINDOWS = 1.0
"""Windows that the trained spread counts as much as."""
ROUNDS = 20
"""Halvings of the range of a factor: it is right to 1e-5."""
PIXELS = 4000
"""Pixels of a window, evenly spread, by which its coverage is judged."""


def fitted_factors(forecasts: Sequence[GaussianForecast], targets: Sequence[Tensor]) -> tuple[float, ...]:
    """Return factors that make the mean coverage of windows ``LEVEL``, held towards 1 where windows are few.

    Args:
        forecasts: One window each, with their trained spread.
        targets: What happened, each (1, L, H, W), NaN where it is missing.
    """
    if not forecasts:
        return (1.0,) * LEADS
    return tuple(
        _factor([_thinned(one, target, lead) for one, target in zip(forecasts, targets, strict=True)])
        for lead in range(LEADS)
    )


def _thinned(forecast: GaussianForecast, target: Tensor, lead: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return means and scales (S, M) around the forecast's mean, and what happened, of some of the pixels."""
    happened = (target[:, lead] - forecast.mean[:, lead]).flatten()
    kept = happened.isfinite().nonzero()[:, 0]
    kept = kept[:: max(1, len(kept) // PIXELS)]
    means = (forecast.means[:, :, lead] - forecast.mean[:, lead]).flatten(1)[:, kept]
    assert forecast.weights is not None
    return (
        torch.stack([means, forecast.scales[:, :, lead].flatten(1)[:, kept]]),
        happened[kept],
        forecast.weights.flatten(1),
    )


def _factor(windows: Sequence[tuple[Tensor, Tensor, Tensor]]) -> float:
    """Return the factor with which the mean coverage of windows is ``LEVEL``."""
    seen = [window for window in windows if len(window[1])]
    if not seen:
        return 1.0
    low, high = math.log(NARROWEST), math.log(WIDEST)
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        factor = math.exp(middle)
        covered = torch.stack([_coverage(*window, factor) for window in seen]).mean()
        low, high = (middle, high) if float(covered) < LEVEL else (low, middle)
    return math.exp(low * len(seen) / (len(seen) + PRIOR_WINDOWS))


def _coverage(parts: Tensor, happened: Tensor, weights: Tensor, factor: float) -> Tensor:
    """Return the share of values inside the interval when distances from the mean are multiplied by a factor."""
    below = mixture.cumulative(parts[0], parts[1], happened / factor, weights)
    return ((below - 0.5).abs() < LEVEL / 2).to(happened.dtype).mean()
