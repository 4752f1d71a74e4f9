r"""Scores of forecasts in % of the capacity, for all hours and by groups of them.

With the error $e = \hat p - p$ of the mean: root mean squared error, mean absolute error and mean (bias) of $e$. The
CRPS is approximated by the pinball losses of 19 quantiles, the same for all methods,

$$\mathrm{CRPS} \approx \frac{2}{19} \sum_{k=1}^{19} \bigl(\tau_k - [p < q_k]\bigr)(p - q_k),\qquad \tau_k = k / 20,$$

and coverage is the share of hours with $q_1 \le p \le q_{19}$, to ``RESOLUTION``.
"""

import numpy as np

from metaprior.solar.sites.backtest.methods import LEVELS
from metaprior.solar.sites.backtest.queries import SEASONS, Ints, Queries
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.sun_position import Floats
from metaprior.text_table import Row

MEASURES = ("rmse", "mae", "bias", "crps", "coverage")
"""Columns with scores: % of the capacity, and for coverage % of the hours in the 90 % interval."""
GROUPS = ("all", "lead", "hour", "season", "week")
"""What scores are grouped by: nothing, lead time in hours, hour of the day (mean solar time), season, query week."""
RESOLUTION = 1e-3
"""Share of the capacity by which power may lie outside of an interval and count as covered: what meters resolve."""


def score_rows(queries: Queries, forecast: PowerForecast) -> list[Row]:
    """Return a row of ``MEASURES`` for every group: ``by`` is one of ``GROUPS``, ``group`` the value."""
    values = _values(queries.power, forecast)
    of_group = {
        "all": np.zeros(len(queries), np.int64),
        "lead": queries.lead,
        "hour": queries.hour,
        "season": queries.season,
        "week": queries.week,
    }
    return [row for by in GROUPS for row in _rows(by, of_group[by], values)]


def _values(power: Floats, forecast: PowerForecast) -> Floats:
    """Return squared, absolute and plain error, CRPS and whether the hour is covered, (5, N)."""
    error = forecast.mean - power
    above = power - forecast.quantiles
    levels = np.array(LEVELS)[:, None]
    crps = 2.0 * np.maximum(levels * above, (levels - 1.0) * above).mean(0)
    low, high = forecast.quantiles[0] - RESOLUTION, forecast.quantiles[-1] + RESOLUTION
    return np.stack([error**2, np.abs(error), error, crps, (power >= low) & (power <= high)])


def _rows(by: str, group: Ints, values: Floats) -> list[Row]:
    found, index = np.unique(group, return_inverse=True)
    count = np.bincount(index)
    means = np.stack([np.bincount(index, one) for one in values]) / count
    means[0] = np.sqrt(means[0])
    return [
        {
            "by": by,
            "group": SEASONS[value] if by == "season" else "all" if by == "all" else int(value),
            "hours": int(count[number]),
            **dict(zip(MEASURES, (100.0 * means[:, number]).tolist(), strict=True)),
        }
        for number, value in enumerate(found.tolist())
    ]
