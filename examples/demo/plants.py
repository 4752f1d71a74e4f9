"""The part about plants: forecasts of new plants from their first days, by five methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from examples.demo.settings import PlantSettings
from metaprior.solar.sites.backtest import LEVELS, Backtest, Case, Method, adapted, backtest, baseline
from metaprior.solar.sites.backtest.networks import fine_tuned, pooled
from metaprior.solar.sites.backtest.scores import RESOLUTION
from metaprior.solar.sites.forecaster import POOLED, SiteForecaster
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.report.day_forecasts import DAY, DayForecasts, day_forecasts, midnights
from metaprior.solar.sites.simulator import Fleet, simulate_fleet
from metaprior.solar.sites.training import simulated_tasks, train_prior
from metaprior.text_table import Row

PACKAGED, TRAINED = "prior of the package", "prior trained here"
TUNED, NETWORK, SMART = "network, fine-tuned", "one network for all", "smart persistence"
METHODS = (PACKAGED, TRAINED, TUNED, NETWORK, SMART)


class Scored(NamedTuple):
    """The backtest of some methods, and a row for each plant, method, number of days and level of an interval.

    ``intervals`` has the columns ``plant, method, days, level, inside, width``: the share of the hours inside the
    central interval, and its mean width in % of the capacity.
    """

    result: Backtest
    intervals: pd.DataFrame


@dataclass(frozen=True, eq=False)
class PlantOutcome:
    """What the part about plants gives: the plants, the scores of all methods, the prior that was trained."""

    fleet: Fleet
    scored: Scored
    trained: SiteForecaster
    settings: PlantSettings

    @property
    def result(self) -> Backtest:
        """The backtest of all methods."""
        return self.scored.result

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Means over plants of the share inside and of the width, by method, days and level."""
        return self.scored.intervals.groupby(["method", "days", "level"])[["inside", "width"]].mean()

    def gains(self) -> pd.Series:
        """Return by how much the days that are told lower the RMSE of each plant, ascending: a share, by name."""
        rows = self.result.rows[(self.result.rows["by"] == "all") & (self.result.rows["method"] == PACKAGED)]
        rmse = rows.pivot_table("rmse", "plant", "days")
        return (1 - rmse[self.settings.told_days] / rmse[0]).sort_values(kind="stable")

    @property
    def typical(self) -> str:
        """The name of the plant of median gain."""
        gains = self.gains()
        return str(gains.index[len(gains) // 2])


def fleet_of(settings: PlantSettings) -> Fleet:
    """Return simulated plants that no training has seen; the same in every process."""
    return simulate_fleet(settings.plants, settings.record_days, seed=settings.seed)


def train(settings: PlantSettings, *, progress: bool) -> SiteForecaster:
    """Return a small prior, trained as the one of the package is, from fewer plants and with fewer steps."""
    tasks = simulated_tasks(settings.training_plants, seed=0)
    return SiteForecaster(train_prior(tasks, steps=settings.steps, progress=progress))


def score_others(settings: PlantSettings) -> Scored:
    """Return the scores of what needs no training: the prior and the network of the package, smart persistence."""
    prior, network = SiteForecaster.pretrained(), SiteForecaster.pretrained(POOLED)
    methods = {
        PACKAGED: adapted(prior),
        TUNED: fine_tuned(network),
        NETWORK: pooled(network),
        SMART: baseline("smart persistence"),
    }
    return score(settings, methods, prior)


def score_trained(settings: PlantSettings, forecaster: SiteForecaster) -> Scored:
    """Return the scores of the prior that was trained here."""
    return score(settings, {TRAINED: adapted(forecaster)}, forecaster)


def score(settings: PlantSettings, methods: Mapping[str, Method], forecaster: SiteForecaster) -> Scored:
    """Return the scores of methods on the plants that no training has seen; their places are known."""
    rows: list[Row] = []
    recorded = {name: _recorded(name, method, rows.extend) for name, method in methods.items()}
    plants = fleet_of(settings).plants
    result = backtest(plants, forecaster, days=settings.days, weeks=settings.weeks, methods=recorded)
    return Scored(result, pd.DataFrame(rows))


def joined(parts: list[Scored]) -> Scored:
    """Return the scores of all methods, in the order of ``METHODS``."""
    rows = pd.concat([part.result.rows for part in parts])
    rows = rows.sort_values("method", key=lambda names: names.map(METHODS.index), kind="stable", ignore_index=True)
    return Scored(replace(parts[0].result, rows=rows), pd.concat([part.intervals for part in parts]))


def _recorded(name: str, method: Method, keep: Callable[[list[Row]], None]) -> Method:
    """Return the same method, whose intervals are kept on the way."""

    def recorded(case: Case, days: int) -> PowerForecast | None:
        found = method(case, days)
        if found is not None:
            keys = {"plant": case.plant.name, "method": name, "days": days}
            keep([{**keys, **row} for row in interval_rows(case.queries.power, found)])
        return found

    return recorded


def interval_rows(power: np.ndarray, forecast: PowerForecast) -> list[Row]:
    """Return ``level``, ``inside`` and ``width`` (%) of the central intervals between the quantiles of ``LEVELS``."""
    rows = []
    for number in range(len(LEVELS) // 2):
        low, high = forecast.quantiles[number], forecast.quantiles[-1 - number]
        inside = (power >= low - RESOLUTION) & (power <= high + RESOLUTION)
        level = round(LEVELS[-1 - number] - LEVELS[number], 2)
        rows.append({"level": level, "inside": float(inside.mean()), "width": 100 * float((high - low).mean())})
    return rows


def days_to_show(outcome: PlantOutcome) -> dict[str, DayForecasts]:
    """Return forecasts of the prior of the package for pictures, by what they show; a rule chooses plants and days."""
    prior, settings = SiteForecaster.pretrained(), outcome.settings
    plants = {plant.name: plant.share().hourly() for plant in outcome.fleet.plants}
    typical, least = outcome.typical, str(outcome.gains().index[0])
    shown = {
        f"{typical}, the plant of median gain, on its sunniest day": (typical, 1.0),
        f"{typical} on a duller day: a quarter of its days have less sun": (typical, 0.25),
        f"{least}, the plant that gained least, on its sunniest day": (least, 1.0),
    }
    found = {}
    for title, (name, rank) in shown.items():
        days = midnights(plants[name])
        days = days[days >= DAY * max(settings.days)]
        energy = [np.nansum(plants[name].usable[day : day + DAY]) for day in days.tolist()]
        chosen = days[np.argsort(energy, kind="stable")[round(rank * (len(days) - 1))]]
        found[title] = day_forecasts(prior, plants[name], int(chosen), settings.days)
    return found
