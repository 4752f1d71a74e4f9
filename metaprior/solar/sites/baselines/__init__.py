"""Forecasts of one plant without a network: what its support days and its last day tell, with their own spread.

    forecast("smart persistence", shares, times, issue, begin, days=7)      # BaselineForecast, (N, L)

Everything is in shares of the capacity. Nothing at or after an issue is read.
"""

import numpy as np
from numpy.typing import ArrayLike

from metaprior.solar.sites.baselines.history import (
    History,
    Record,
    Rehearsal,
    history_at,
    left_out_days,
    record_of,
    targets_at,
)
from metaprior.solar.sites.baselines.points import POINTS
from metaprior.solar.sites.baselines.spread import BaselineForecast, Method, by_itself, with_spread
from metaprior.solar.sites.baselines.trees import BoostedTrees, boosted_trees
from metaprior.solar.sites.sun_path import SunPath
from metaprior.solar.sites.sun_position import Floats, Times

__all__ = [
    "BASELINES",
    "BaselineForecast",
    "BoostedTrees",
    "History",
    "Record",
    "Rehearsal",
    "forecast",
    "history_at",
    "left_out_days",
    "record_of",
    "targets_at",
]

METHODS: dict[str, Method] = {name: by_itself(point) for name, point in POINTS.items()} | {
    "boosted trees": boosted_trees
}
BASELINES = tuple(METHODS)
"""Names that ``forecast`` knows. "scaled base" needs a base forecast."""


def forecast(
    name: str,
    shares: Floats,
    times: Times,
    issue: ArrayLike,
    support_begin: ArrayLike,
    days: int,
    *,
    leads: int = 6,
    sun: SunPath | None = None,
    base: Floats | None = None,
) -> BaselineForecast:
    """Return the forecasts of a baseline by name.

    Args:
        name: One of ``BASELINES``.
        shares: Mean power of the intervals of a plant as shares of its capacity, (T,); NaN where it is not known.
        times: Begins of the intervals, regular, (T,).
        issue: Index of the first interval that each forecast does not know, (N,). Lead time 1 is that interval.
        support_begin: Index at which the support days of each forecast begin, (N,) or one for all.
        days: Number of support days, 0 or more.
        leads: Number of lead times L.
        sun: The place, given or estimated; not known if None.
        base: A base forecast as shares, on the grid of the power and as far as is forecast.

    Returns:
        Normal distributions (N, L). Besides the support days, the day before each issue is read.

    Raises:
        ValueError: The name is unknown, the support reaches beyond an issue, or a base forecast is needed.
    """
    if name not in BASELINES:
        raise ValueError(f"name must be one of {', '.join(BASELINES)}, got {name!r}")
    record = record_of(shares, times, ahead=leads, sun=sun, base=base)
    issues = np.atleast_1d(np.asarray(issue, np.int64))
    begins = np.broadcast_to(np.asarray(support_begin, np.int64), issues.shape)
    mean, sd = np.empty((2, len(issues), leads))
    limit = 1.0
    for begin in np.unique(begins):
        own = begins == begin
        history = history_at(record, issues[own], int(begin), days, leads)
        rehearsal = left_out_days(record, int(begin), days, leads) if days > 1 else None
        some = with_spread(METHODS[name], history, rehearsal)
        mean[own], sd[own], limit = some.mean, some.sd, max(limit, some.limit)
    return BaselineForecast(mean, sd, limit)
