"""How accurate will it be for me? Forecasts of the past weeks of plants, each from the days before it alone.

    result = backtest(read_power("power.csv"), SiteForecaster.pretrained())
    print(result.answer())
    print(result.table())           # methods x days of support
    result.rows                     # by plant, method, days; and by lead, hour, season, week

Scores are of daylight hours, in % of the capacity. Every method is scored on the same hours.
"""

from metaprior.solar.sites.backtest.methods import ADAPTED, LEVELS, Method, adapted, baseline
from metaprior.solar.sites.backtest.queries import DAYS, Case, Place, Queries, case_of
from metaprior.solar.sites.backtest.result import Backtest
from metaprior.solar.sites.backtest.rolling import backtest, usual_methods
from metaprior.solar.sites.backtest.scores import GROUPS, MEASURES

__all__ = [
    "ADAPTED",
    "DAYS",
    "GROUPS",
    "LEVELS",
    "MEASURES",
    "Backtest",
    "Case",
    "Method",
    "Place",
    "Queries",
    "adapted",
    "backtest",
    "baseline",
    "case_of",
    "usual_methods",
]
