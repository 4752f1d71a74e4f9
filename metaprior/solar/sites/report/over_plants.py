"""Uncertainty of backtests over plants: 95 % intervals of mean scores and of changes, by resampling the plants."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaprior.report.wording import Change
from metaprior.solar.sites.backtest import Backtest
from metaprior.solar.sites.report.pages import day_rows
from metaprior.text_table import Row

RESAMPLES = 2000
LIMITS = (0.025, 0.975)
Floats = NDArray[np.float64]


class Entry(NamedTuple):
    """What a score is of: a method with a number of support days."""

    method: str
    days: int


def change(result: Backtest, one: Entry, other: Entry, measure: str = "rmse") -> Change:
    """Return how much lower or higher the mean of a measure over plants is for one entry than for another.

    Both are resampled with the same plants, so that what makes a plant hard for both cancels.
    """
    scores = _by_plant(result, measure)
    ours, theirs = (scores[entry] for entry in (one, other))
    draws = _draws(len(ours))
    low, high = _limits(ours[draws].mean(1) / theirs[draws].mean(1) - 1)
    return Change(float(ours.mean() / theirs.mean() - 1), low, high)


def day_rows_with_limits(result: Backtest) -> list[Row]:
    """Return scores by days of data as ``day_rows`` does, with the limits of the RMSE and of the coverage."""
    rmse, coverage = (_by_plant(result, measure) for measure in ("rmse", "coverage"))
    rows = []
    for row in day_rows(result):
        entry = Entry(row["method"], row["shots"])
        draws = _draws(len(rmse[entry]))
        limits = {"rmse": _limits(rmse[entry][draws].mean(1)), "coverage_90": _limits(coverage[entry][draws].mean(1))}
        (low, high), (least, most) = limits.values()
        rows.append(
            {**row, "rmse_low": low, "rmse_high": high, "coverage_90_low": least / 100, "coverage_90_high": most / 100}
        )
    return rows


def _by_plant(result: Backtest, measure: str) -> dict[Entry, Floats]:
    """Return the scores of each entry, one for each plant, in the order of the plants."""
    rows = result.rows[result.rows["by"] == "all"]
    table = rows.pivot_table(measure, "plant", ["method", "days"], sort=True)
    return {Entry(*key): table[key].dropna().to_numpy() for key in table.columns}


def _draws(plants: int) -> NDArray[np.int64]:
    """Return which plants each resample has, (RESAMPLES, plants); the same for the same number of plants."""
    return np.random.default_rng(0).integers(plants, size=(RESAMPLES, plants))


def _limits(resampled: Floats) -> tuple[float, float]:
    low, high = np.quantile(resampled, LIMITS).tolist()
    return low, high
