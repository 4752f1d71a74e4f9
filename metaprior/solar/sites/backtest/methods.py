"""Methods that a backtest compares: functions of a case and a number of support days, all with the same quantiles."""

from collections.abc import Callable

import numpy as np

from metaprior.solar.sites.backtest.queries import DAY, Case, Ints
from metaprior.solar.sites.baselines import forecast as baseline_forecast
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.plant import BASE

Method = Callable[[Case, int], PowerForecast | None]
"""Returns mean and the quantiles of ``LEVELS`` for the queries of a case with so many support days, as shares of the
capacity; None where the method has no forecast. Nothing of a query week may be read but the hours before each issue."""

LEVELS = tuple(np.round(np.arange(1, 20) / 20, 2).tolist())
"""Quantiles of all methods, 0.05 to 0.95: the CRPS and the 90 % interval are computed from them."""
ADAPTED = "prior, adapted"
"""The method of the package; with 0 days it is the prior as it is."""
BASELINES = ("persistence", "smart persistence", "climatology", "blend", "boosted trees", "scaled base")


def adapted(forecaster: SiteForecaster) -> Method:
    """Return the method of a prior that is adapted to the support days."""

    def method(case: Case, days: int) -> PowerForecast:
        plant = forecaster.adapt(case.plant, days=days, weather="always")[case.plant.name]
        return by_week(case, lambda issue, lead, origin: plant.forecast(issue, lead, LEVELS, end=origin))

    return method


def by_week(case: Case, forecast: Callable[[Ints, Ints, int], PowerForecast]) -> PowerForecast:
    """Return the forecasts of all queries from ``forecast(issue, lead, origin)``, called once for each query week."""
    queries = case.queries
    mean, quantiles = np.empty(len(queries)), np.empty((len(LEVELS), len(queries)))
    for origin in queries.origins.tolist():
        own = queries.origin == origin
        found = forecast(queries.issue[own], queries.lead[own], origin)
        mean[own], quantiles[:, own] = found.mean, found.quantiles
    return PowerForecast(mean, quantiles)


def baseline(name: str) -> Method:
    """Return the method of one of ``baselines.BASELINES``; "scaled base" has no forecast without a base forecast."""

    def method(case: Case, days: int) -> PowerForecast | None:
        if name == "scaled base" and not case.has_base:
            return None
        queries, plant = case.queries, case.plant
        issue, first, row = np.unique(queries.issue, return_index=True, return_inverse=True)
        found = baseline_forecast(
            name,
            plant.usable,
            plant.times,
            issue,
            queries.origin[first] - DAY * days,
            days,
            leads=case.leads,
            sun=case.sun,
            base=plant.future.get(BASE),
        )
        column = queries.lead - 1
        return PowerForecast(found.mean[row, column], found.quantile(LEVELS)[row, column].T)

    return method
