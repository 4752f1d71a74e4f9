"""Every method on every fleet, the headline, and the limits over trainings."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from benchmarks.common.benchmark import Context
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.sites import networks
from benchmarks.sites.fleets import (
    NO_BASE,
    POWER,
    QUALITIES,
    real_plants,
    simulated_plants,
    weather_panels,
    with_base,
)
from benchmarks.sites.networks import PLACES
from benchmarks.sites.settings import Settings
from benchmarks.sites.whole_record import trees_on_whole_record
from metaprior.solar.sites.backtest import ADAPTED, MEASURES, Method, adapted, backtest, baseline
from metaprior.solar.sites.backtest.methods import BASELINES
from metaprior.solar.sites.backtest.networks import POOLED, TUNED, fine_tuned, pooled
from metaprior.solar.sites.forecaster import POOLED as POOLED_FOLDER
from metaprior.solar.sites.forecaster import PRIOR, SiteForecaster
from metaprior.solar.sites.plant import Plant

REAL, SIMULATED, PANELS = "real plants", "simulated fleet", "12 US panels"
WITHOUT, WEATHER = "without", "weather"
WHOLE = "boosted trees, whole record"
SMART, BLEND, SCALED = "smart persistence", "blend", "scaled base"
BASELINE_ROUND = -1
WORST = {"ratio_smart_worst": max, "coverage_low": min, "coverage_high": max}
WORST |= {"coverage_plant_low": min, "coverage_plant_high": max}
"""Of these the worst training counts; of the others the mean over trainings."""
HEADLINE = ("gain_3", "gain_7", "gain_known_3", "gain_known_7", "gain_finetuned_3", *WORST)

NOTES = (
    "hourly, leads 1 to 6 h, hours with the sun above the horizon, weeks spread over each record, forecasts issued at "
    "every hour of a week, support days directly before it; scores of a plant, then the mean over plants",
    "in % of the capacity as read_power gives it; coverage: % of hours in the 90 % interval, 0.1 % of the capacity "
    "outside of it counts as inside; CRPS from the quantiles 0.05, 0.10, ... 0.95 of every method",
    "place unknown: neither place nor zone is given to a method; known: that of the table, else an estimate from the "
    "plant's whole record",
    f"{ADAPTED}: with 0 days it is the same prior, not adapted; trained on simulated plants alone",
    f"{POOLED}: the same network trained without support days, with the same CPU time; {TUNED}: all weights by Adam on "
    "the support days, steps and learning rate for each number of days chosen on simulated validation plants",
    f"{WHOLE}: learned from every hour of the plant outside of the query weeks, before and after them",
    "gain_3, gain_7: % of RMSE below 0 days, place unknown; gain_known_*: place known; gain_finetuned_3: % of RMSE "
    "below the fine-tuned network at 3 days, with or without place, whichever is less",
    "ratio_smart_worst: RMSE divided by that of smart persistence with the same days and place, worst plant, place and "
    "number of days from 1 on; coverage_*: lowest and highest of 1 to 30 days and both places",
    "of ratio_smart_worst and coverage_* the worst training counts, of the others the mean over trainings",
    "base forecasts: made from the true power of each real plant (smoothed, noisy, times a factor); place known",
    "ratio_base_*: RMSE with a base forecast divided by that without, mean over plants; ratio_scaled_*: divided by "
    "that of the base forecast times a factor from the support days",
    "12 US panels: five to seven readings a day between 10 and 16 h; their measured weather (humidity, temperature, "
    "visibility, pressure, ceiling, wind) counts as forecast, which makes ratio_weather_* too good; place known",
)


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on every fleet."""
    trainings = context.settings.trainings
    rounds = [BASELINE_ROUND, *range(max(trainings, 1))]
    found = context.map(one_round, [(number,) for number in rounds])
    scores = pd.concat([scores for scores, _ in found], ignore_index=True)
    about = [row for _, rows in found for row in rows]
    real = scores[(scores["fleet"] == REAL) & (scores["base"] == NO_BASE)]
    notes = list(NOTES)
    if real.empty:
        notes.append(f"real plants are left out: {context.data / POWER} does not exist")
    each = [statistics_of(real, number) | base_statistics(scores, number) for number in rounds[1:]]
    limits = [_limits(name, [one[name] for one in each]) for name in each[0]]
    headline = {str(row["what"]): float(row["value"]) for row in limits if row["what"] in HEADLINE}
    return BenchmarkResult(headline, [*limits, *_tables(scores), *_per_plant(real), *about], notes)


def one_round(context: Context[Settings], number: int) -> tuple[pd.DataFrame, list[Row]]:
    """Return the scores of all baselines, or those of the networks of one training, and how they were trained."""
    settings = context.settings
    if number == BASELINE_ROUND:
        forecaster = SiteForecaster.__new__(SiteForecaster)  # baselines do not ask it
        methods: dict[str, Method] = {name: baseline(name) for name in BASELINES}
        scores = _scores(context.data, settings, forecaster, methods | {WHOLE: trees_on_whole_record}, {SCALED})
        return scores.assign(training=number), []
    about: list[Row] = []
    if settings.trainings:
        trained = networks.train(settings, number)
        forecaster = trained.prior
        tunings = networks.best_tunings(trained.pooled, settings)
        methods = {
            ADAPTED: adapted(forecaster),
            POOLED: pooled(trained.pooled),
            TUNED: fine_tuned(trained.pooled, tunings),
        }
        chosen = {"tuned": "; ".join(f"{k} days: {steps} steps, lr {lr:g}" for k, (steps, lr) in tunings.items())}
        about = [
            {"part": "trainings", "training": number, "network": name, "steps": trained.steps[name]}
            | {"cpu_seconds": trained.seconds[name]}
            | (chosen if name == "pooled" else {})
            for name in trained.steps
        ]
    else:
        forecaster = SiteForecaster.pretrained(Path(settings.prior) if settings.prior else PRIOR)
        network = SiteForecaster.pretrained(POOLED_FOLDER)
        methods = {ADAPTED: adapted(forecaster), POOLED: pooled(network), TUNED: fine_tuned(network)}
    return _scores(context.data, settings, forecaster, methods, {ADAPTED}).assign(training=number), about


def _scores(
    data: Path, settings: Settings, forecaster: SiteForecaster, methods: dict[str, Method], with_bases: set[str]
) -> pd.DataFrame:
    """Return the scores of methods on all fleets, and of some of them with base forecasts."""
    real = real_plants(data)
    parts = []

    def add(plants: list[Plant], fleet: str, base: str = NO_BASE, **given: Any) -> None:
        result = backtest(plants, forecaster, **given)
        if len(result.rows):
            parts.append(result.rows[result.rows["by"] == "all"].assign(fleet=fleet, base=base))

    without = {name: method for name, method in methods.items() if name != SCALED}
    for place in PLACES:
        if real:
            add(real, REAL, days=settings.days, weeks=settings.weeks, methods=without, place=place)
        add(
            simulated_plants(settings),
            SIMULATED,
            days=settings.days,
            weeks=settings.simulated_weeks,
            methods={name: method for name, method in without.items() if name != WHOLE},
            place=place,
        )
    chosen = {name: method for name, method in methods.items() if name in with_bases}
    sets = {name: with_base(real, quality) for name, quality in QUALITIES.items()} if real else {}
    for name, plants in sets.items():
        add(plants, REAL, name, days=settings.base_days, weeks=settings.base_weeks, methods=chosen, place="known")
    if ADAPTED in with_bases:
        given: dict[str, Any] = {"days": settings.base_days, "weeks": settings.base_weeks, "methods": chosen}
        if real:
            add(real, REAL, WITHOUT, place="known", **given)
        panels = weather_panels(data)
        for base, use in ((WITHOUT, "never"), (WEATHER, "always")):
            if panels:
                add(panels, PANELS, base, place="known", weather=use, **given)
    return pd.concat(parts, ignore_index=True)


def statistics_of(real: pd.DataFrame, training: int) -> dict[str, float]:
    """Return the headline and further comparisons of one training on the real plants."""
    rows = real[real["training"].isin([BASELINE_ROUND, training])]
    rmse = {key: own.set_index("plant")["rmse"] for key, own in rows.groupby(["place", "method", "days"])}
    cover = {key: own["coverage"] for key, own in rows[rows["method"] == ADAPTED].groupby(["place", "days"])}
    days = sorted({key[1] for key in cover} - {0})

    def mean(place: str, method: str, count: int) -> float:
        return float(rmse[place, method, count].mean()) if (place, method, count) in rmse else math.nan

    def gain(place: str, count: int, other: str, other_days: int) -> float:
        return 100.0 * (1.0 - mean(place, ADAPTED, count) / mean(place, other, other_days))

    def ratios(other: str, counts: list[int]) -> list[float]:
        return [mean(place, ADAPTED, k) / mean(place, other, k) for place in PLACES for k in counts]

    both = [(place, count) for place in PLACES for count in days if (place, count) in cover]
    worst = [rmse[p, ADAPTED, k].div(rmse[p, SMART, k]).max() for p, k in both if (p, SMART, k) in rmse]
    averages, singles = [cover[key].mean() for key in both], [one for key in both for one in cover[key]]
    found = {
        "gain_3": gain("unknown", 3, ADAPTED, 0),
        "gain_7": gain("unknown", 7, ADAPTED, 0),
        "gain_known_3": gain("known", 3, ADAPTED, 0),
        "gain_known_7": gain("known", 7, ADAPTED, 0),
        "gain_finetuned_3": float(np.min([gain(place, 3, TUNED, 3) for place in PLACES])),
        "ratio_smart_worst": max(worst, default=math.nan),
        "coverage_low": min(averages, default=math.nan),
        "coverage_high": max(averages, default=math.nan),
        "coverage_plant_low": min(singles, default=math.nan),
        "coverage_plant_high": max(singles, default=math.nan),
        "ratio_smart": max(ratios(SMART, days), default=math.nan),
        "ratio_blend": max(ratios(BLEND, days), default=math.nan),
        "ratio_finetuned": max(ratios(TUNED, days), default=math.nan),
        "ratio_whole_record_7": max(ratios(WHOLE, [7])),
    }
    for place in PLACES:
        found[f"coverage_0_{place}"] = float(cover[place, 0].mean()) if (place, 0) in cover else math.nan
        for count in (3, 7):
            each = [rmse[key] for key in ((place, ADAPTED, count), (place, ADAPTED, 0)) if key in rmse]
            worst_plant = 100.0 * (1.0 - each[0].div(each[1]).max()) if len(each) == 2 else math.nan
            found[f"gain_worst_plant_{count}_{place}"] = float(worst_plant)
    return found


def base_statistics(scores: pd.DataFrame, training: int) -> dict[str, float]:
    """Return what base forecasts and weather are worth to one training, as ratios of RMSE at 3 and 7 days."""
    rows = scores[scores["training"].isin([BASELINE_ROUND, training])]
    rmse = rows.groupby(["fleet", "base", "method", "days"])["rmse"].mean()

    def ratio(days: int, own: tuple[str, str, str], other: tuple[str, str, str]) -> float:
        return float(rmse.get((*own, days), math.nan) / rmse.get((*other, days), math.nan))

    found = {}
    for days in (3, 7):
        for base in QUALITIES:
            own = (REAL, base, ADAPTED)
            found[f"ratio_base_{days}, {base}"] = ratio(days, own, (REAL, WITHOUT, ADAPTED))
            found[f"ratio_scaled_{days}, {base}"] = ratio(days, own, (REAL, base, SCALED))
        found[f"ratio_weather_{days}"] = ratio(days, (PANELS, WEATHER, ADAPTED), (PANELS, WITHOUT, ADAPTED))
    return found


def _limits(name: str, values: list[float]) -> Row:
    value = WORST[name](values) if name in WORST else float(np.mean(values))
    return {
        "part": "real plants, over trainings",
        "what": name,
        "value": value,
        "low": min(values),
        "high": max(values),
    }


def _tables(scores: pd.DataFrame) -> list[Row]:
    """Return means over plants and trainings by fleet, base forecast, place, method and number of days."""
    keys = ["fleet", "base", "place", "method", "days"]
    means = scores.groupby(keys, sort=False)[list(MEASURES)].mean().reset_index()
    rows = []
    for row in means.to_dict("records"):
        fleet, base, place = (row.pop(name) for name in keys[:3])
        part = f"{fleet}, place {place}" if base == NO_BASE else f"{fleet}, with base forecasts"
        rows.append({"part": part, **({} if base == NO_BASE else {"base": base}), **row})
    return sorted(rows, key=lambda row: str(row["part"]))


def _per_plant(real: pd.DataFrame) -> list[Row]:
    """Return the scores of the adapted prior and of smart persistence on each real plant, means over trainings."""
    own = real[real["method"].isin([ADAPTED, SMART])]
    means = own.groupby(["plant", "place", "method", "days"], sort=False)[["rmse", "coverage"]].mean().reset_index()
    return [{"part": "each real plant", **row} for row in means.to_dict("records")]
