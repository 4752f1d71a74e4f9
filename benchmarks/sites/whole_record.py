"""Boosted trees that have seen all of a plant's record outside the query weeks: what years of own data are worth."""

import numpy as np

from metaprior.solar.sites.backtest import LEVELS, Case
from metaprior.solar.sites.backtest.queries import DAY, WEEK
from metaprior.solar.sites.baselines.history import History, Rehearsal, history_at, record_of, targets_at
from metaprior.solar.sites.baselines.spread import with_spread
from metaprior.solar.sites.baselines.trees import BoostedTrees
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.sun_position import Floats

SUPPORT = 14
"""Days before each issue whose envelope and mean the trees read."""


def trees_on_whole_record(case: Case, days: int) -> PowerForecast | None:
    """Return the forecasts of trees that learned from every hour of the record that is not in a query week.

    The number of support days does not matter; forecasts are given for 7 days alone, with which they are compared.
    """
    if days != 7:
        return None
    plant, queries = case.plant, case.queries
    record = record_of(plant.usable, plant.times, ahead=case.leads, sun=case.sun)
    support = min(SUPPORT, int(queries.origins[0]) // DAY)
    hidden = np.zeros(len(plant) + case.leads, np.bool_)
    for origin in queries.origins.tolist():
        hidden[origin : origin + WEEK + case.leads] = True
    issue = np.arange(DAY * support, len(plant))
    targets = targets_at(record, issue, case.leads)
    targets[hidden[issue[:, None] + np.arange(case.leads)]] = np.nan
    learned = np.isfinite(targets).any(1)
    if not learned.any():
        return None
    issue, targets = issue[learned], targets[learned]
    history = history_at(record, issue, issue - DAY * support, support, case.leads)
    asked, row = np.unique(queries.issue, return_inverse=True)
    future = history_at(record, asked, asked - DAY * support, support, case.leads)
    found = with_spread(_trees, future, Rehearsal(history, targets))
    column = queries.lead - 1
    return PowerForecast(found.mean[row, column], found.quantile(LEVELS)[row, column].T)


def _trees(history: History, rehearsal: Rehearsal | None) -> tuple[Floats, Floats | None]:
    """Return forecasts of trees that learned from the rehearsal, and those of its weeks from every other week."""
    assert rehearsal is not None
    targets = rehearsal.targets
    days = len(targets) / DAY
    odd = np.arange(len(targets)) // WEEK % 2 == 1
    trees = BoostedTrees(days=days).fit(rehearsal.history, targets)
    if not odd.any():
        return trees(history), None
    crossed = np.empty_like(targets)
    for half in (odd, ~odd):
        others = BoostedTrees(days=days / 2).fit(rehearsal.history.rows(~half), targets[~half])
        crossed[half] = others(rehearsal.history.rows(half))
    return trees(history), crossed
