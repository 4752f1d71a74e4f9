"""Forecasts of an archive's own earlier moments, beside what needs no network: how far a forecast can be trusted."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaprior import mixture
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.calibrating import LEVEL, fitted_factors
from metaprior.solar.maps.nowcast.inputs import CANDIDATES, LEADS, prepare
from metaprior.text_table import Row

OURS, PERSISTENCE, SMART, FLOW, SUN = (
    "nowcast",
    "persistence",
    "smart persistence",
    "optical flow",
    "optical flow in the sun's light",
)
SPREADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Spreads of the normal distribution around a baseline that are tried, in root mean squared errors."""

Floats = NDArray[np.float64]


class Sums(NamedTuple):
    """Of one window and method by lead time, (L,): mean squared and absolute error, CRPS, and coverage (NaN: none)."""

    squared: Floats
    absolute: Floats
    crps: Floats
    covered: Floats


class Backtest(NamedTuple):
    """Scores of earlier moments.

    ``factors`` of the spread were fitted to them. ``scores`` has the sums of each method, a row for each moment;
    coverage of the nowcast is that with factors fitted to the other moments.
    """

    times: Times
    factors: tuple[float, ...]
    scores: dict[str, list[Sums]]
    minutes: float

    def rows(self) -> list[Row]:
        """Return the scores by method and lead time, as a page and a table take them; "all" is the mean over leads."""
        found = []
        for method, windows in self.scores.items():
            mean = _over(windows)
            reference = _over(self.scores[PERSISTENCE]).squared
            for lead in (*range(LEADS), slice(None)):
                minutes = "all" if isinstance(lead, slice) else round(self.minutes * (lead + 1), 2)
                squared = float(np.mean(mean.squared[lead]))
                found.append(
                    {
                        "method": method,
                        "lead_minutes": minutes,
                        "rmse": math.sqrt(squared),
                        "mae": float(np.mean(mean.absolute[lead])),
                        "crps": float(np.mean(mean.crps[lead])),
                        "skill_persistence": 1 - math.sqrt(squared / max(float(np.mean(reference[lead])), 1e-30)),
                        "coverage_90": float(np.mean(mean.covered[lead])) if method == OURS else None,
                    }
                )
        return found

    def by_method(self) -> list[Row]:
        """Return one row for each method: scores over all lead times, and the skill over persistence by lead time."""
        found: dict[str, Row] = {}
        for row in self.rows():
            own = found.setdefault(str(row["method"]), {"method": row["method"]})
            if row["lead_minutes"] == "all":
                own |= {name: row[name] for name in ("rmse", "crps", "coverage_90")}
            else:
                own[f"skill_{row['lead_minutes']:g}min"] = row["skill_persistence"]
        return list(found.values())

    def coverage(self) -> Floats:
        """Return the coverage of the 90 % interval by lead time."""
        return _over(self.scores[OURS]).covered


def _over(windows: Sequence[Sums]) -> Sums:
    """Return the means over windows by lead time; NaN where no window has a value."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice")
        return Sums(*(np.nanmean([getattr(one, name) for one in windows], 0) for name in Sums._fields))


def backtest(forecasts: Sequence[GaussianForecast], windows: Sequence[Batch], times: Times) -> Backtest:
    """Return the scores of forecasts with their trained spread, and the factors that correct it.

    Args:
        forecasts: One window each.
        windows: What was seen and what happened.
        times: When each forecast would have been issued.
    """
    targets = [window.targets for window in windows]
    factors = fitted_factors(forecasts, targets)
    points = [baselines(window) for window in windows]
    scores: dict[str, list[Sums]] = {OURS: []}
    for number, (forecast, target) in enumerate(zip(forecasts, targets, strict=True)):
        others = [k for k in range(len(windows)) if k != number]
        own = fitted_factors([forecasts[k] for k in others], [targets[k] for k in others])
        scores[OURS].append(score_forecast(forecast.widened(torch.tensor(own)[:, None, None]), target))
    for name in points[0] if points else ():
        scores[name] = score_points([one[name] for one in points], targets)
    minutes = float(windows[0].minutes[0]) if windows else math.nan
    return Backtest(times, factors, scores, minutes)


def baselines(window: Batch) -> dict[str, Tensor]:
    """Return forecasts without a network, each (1, L, H, W)."""
    prepared = prepare(window.frames, window.known, window.minutes)
    candidates = prepared.loc + prepared.scale * prepared.x[:, :CANDIDATES]
    last, moved, lit, still_lit = candidates.split((1, LEADS, LEADS, LEADS), 1)
    points = {PERSISTENCE: last.expand_as(moved), FLOW: moved}
    return points | {SMART: still_lit, SUN: lit} if bool(window.known.sine.isfinite().any()) else points


def score_forecast(forecast: GaussianForecast, target: Tensor) -> Sums:
    """Return the scores of a forecast of one window; target is (1, L, H, W), NaN where it is missing."""
    error = target - forecast.mean
    happened = torch.nan_to_num(target)
    crps = mixture.crps(forecast.means, forecast.scales, happened, forecast.weights)
    below = mixture.cumulative(forecast.means, forecast.scales, happened, forecast.weights)
    inside = ((below - 0.5).abs() < LEVEL / 2).to(target.dtype)
    return Sums(*(_mean(values, target) for values in (error.square(), error.abs(), crps, inside)))


def score_points(points: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Sums]:
    """Return the scores of point forecasts; their CRPS is that of the best normal distribution around them."""
    errors = [target - point for point, target in zip(points, targets, strict=True)]
    squared = np.array([_mean(error.square(), target) for error, target in zip(errors, targets, strict=True)])
    scale = torch.tensor(np.sqrt(np.nanmean(squared, 0)), dtype=torch.float32).clamp_min(1e-30)[:, None, None]
    tried = np.array(
        [
            [_mean(normal_crps(error, spread * scale), target) for error, target in zip(errors, targets, strict=True)]
            for spread in SPREADS
        ]
    )
    best = tried[np.nanmean(tried, 1).argmin(0), :, np.arange(LEADS)]  # (L, windows)
    unknown = np.full(LEADS, math.nan)
    return [
        Sums(squared[number], _mean(error.abs(), target), best[:, number], unknown)
        for number, (error, target) in enumerate(zip(errors, targets, strict=True))
    ]


def normal_crps(error: Tensor, scale: Tensor) -> Tensor:
    """Return the CRPS of normal distributions with these errors of their means."""
    return mixture.crps(torch.zeros_like(error)[None], scale.expand_as(error)[None], error)


def _mean(values: Tensor, target: Tensor) -> Floats:
    """Return the mean over the pixels with a target, by lead time, (L,); NaN where there is none."""
    present = target.isfinite()
    total = torch.where(present, values, torch.zeros_like(values)).double().sum((0, 2, 3))
    return np.asarray((total / present.sum((0, 2, 3))).numpy())
