"""Every product, lead time and method, the headline, and what adapting is worth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.benchmark import Context
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.worlds.continued import continued, headline_of
from benchmarks.worlds.costs import costs
from benchmarks.worlds.flows import PLAIN, TREND, flows
from benchmarks.worlds.products import Archive, afternoons, himawari, real_products, simulated
from benchmarks.worlds.settings import Settings
from benchmarks.worlds.worth import worth_of_inputs
from metaprior.solar.maps.nowcast.backtest import FLOW, OURS, Sums, baselines, score_forecast, score_points
from metaprior.solar.maps.nowcast.forecaster import PRIOR, Nowcaster
from metaprior.solar.maps.nowcast.inputs import LEADS
from metaprior.solar.maps.nowcast.nowcasting import (
    FEW_DAYS,
    Made,
    adapted_to,
    calibrated,
    checked_on,
    is_first_light,
)

Floats = NDArray[np.float64]
WIDE, TRAINED = "nowcast, fitted spread", "nowcast, trained spread"
AFTERNOON_CADENCES = (5, 15)

NOTES = (
    "zero-shot: the networks were trained on other simulated worlds alone; spreads are fitted to earlier moments of "
    "the same archive, the baselines' to the scored moments themselves, which favours them",
    "flow: the better of Proesmans and Lucas-Kanade (pysteps) at each product and lead time; trend: the best of both "
    "with the change of the frame's mean brightness added or multiplied at each step; own_flow: RMSE of the nowcast's "
    "own flow divided by that of the better of pysteps'",
    "coverage of the 90 % interval; single: lowest and highest of single moments; trained: without any fitted factor, "
    "as for an archive of a single sequence; later: without moments of first light, where the command says that bands "
    "may not hold",
    "rmse_ratio_flow, crps_ratio_flow, crps_ratio_flow_trend: worst product and lead time; coverage_low, "
    "coverage_high: lowest and highest product and lead time with fitted spreads",
    "worth of inputs: by how many per cent the CRPS rises without motion, without the sun, without earlier days, of "
    "the same networks, which have learned to do without the last two (not without motion)",
    "costs: CPU seconds of `metaprior nowcast` on 30 frames of 256 x 256, start included; flow_ms: CPU milliseconds "
    "of a flow of 128 x 128 pixels on one thread, from four frames (Proesmans: two)",
    "adapt_gain: % of CRPS below zero-shot, archive of days, the given number of earlier windows; adapt_worst: % of "
    "the worst product of all, among them single simulated afternoons",
    "continued_crps: the first network of the prior after further training on the training days of Himawari-9, on the "
    "test tasks of `python -m benchmarks solar`, in units of the frames; the validation days choose the learning rate "
    "and set the spread",
)


class Scored(NamedTuple):
    """Scores of all moments of a product by method, one ``Sums`` for each moment, and the units of the archives.

    ``first_light`` tells at which moments the command says that bands may not hold, because it is first light.
    """

    sums: dict[str, list[Sums]]
    units: list[float]
    first_light: list[bool]

    def mean(self, method: str, what: str) -> Floats:
        """Return the mean over moments by lead time; errors count in units of their archive."""
        power = {"squared": 2, "crps": 1, "covered": 0}[what]
        parts = [getattr(one, what) / unit**power for one, unit in zip(self.sums[method], self.units, strict=True)]
        return np.asarray(np.nanmean(parts, 0))

    def rmse(self, method: str) -> Floats:
        """Return the root mean squared error by lead time."""
        return np.sqrt(self.mean(method, "squared"))


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every product."""
    names = [*real_names(context), *(f"simulated worlds, {cadence} min" for cadence in context.settings.cadences)]
    found = dict(zip(names, context.map(zero_shot, [(name,) for name in names]), strict=True))
    rows = [row for name in names for row in _rows(name, found[name])]
    learned = context.map(adapted_rows, [(name,) for name in _adapted_names(context)])
    worth = context.map(worth_row, [(name,) for name in names])
    trained = continued(context, prior_of(context))
    headline = _headline(rows, learned) | headline_of(trained)
    every = [*rows, *learned, *_trainings(context, found), *worth, *trained, costs(context)]
    return BenchmarkResult(headline, every, list(NOTES))


def real_names(context: Context[Settings]) -> list[str]:
    """Return the names of the satellite products in the data folder."""
    return list(real_products(context.data, 1))


def archives_of(context: Context[Settings], name: str) -> list[Archive]:
    """Return the archives of a product."""
    if name.startswith("simulated"):
        return simulated(context.settings, int(name.split()[-2]))
    return real_products(context.data, context.settings.origins)[name]


def prior_of(context: Context[Settings]) -> Nowcaster:
    """Return the prior that is measured."""
    return Nowcaster.pretrained(Path(context.settings.prior) if context.settings.prior else PRIOR)


def worth_row(context: Context[Settings], name: str) -> Row:
    """Return what the inputs are worth on a product."""
    return worth_of_inputs(prior_of(context), name, archives_of(context, name))


def zero_shot(context: Context[Settings], name: str) -> Scored:
    """Return the scores of all methods on a product."""
    prior = prior_of(context)
    alone = [Nowcaster((network,), (1.0,), prior.factors) for network in prior.networks]
    sums: dict[str, list[Sums]] = {}
    points: dict[str, list[Any]] = {}
    targets, units, first_light = [], [], []
    for archive in archives_of(context, name):
        for position in archive.issues.tolist():
            window = archive.moments.batch(position)
            issued = archive.moments.times[position]
            fitted = calibrated(checked_on(prior, archive.moments, issued))
            methods = {WIDE: fitted, TRAINED: prior}
            methods |= {f"training {number}": one for number, one in enumerate(alone)}
            for method, forecaster in methods.items():
                sums.setdefault(method, []).append(score_forecast(forecaster.predict(window), window.targets))
            for method, point in (baselines(window) | flows(window)).items():
                points.setdefault(method, []).append(point / archive.unit)
            targets.append(window.targets / archive.unit)
            units.append(archive.unit)
            first_light.append(is_first_light(window))
    for method, each in points.items():
        if len(each) == len(targets):
            scored = score_points(each, targets)
            sums[method] = [_in_units(one, unit) for one, unit in zip(scored, units, strict=True)]
    return Scored(sums, units, first_light)


def _in_units(sums: Sums, unit: float) -> Sums:
    return Sums(sums.squared * unit**2, sums.absolute * unit, sums.crps * unit, sums.covered)


def _rows(name: str, scored: Scored) -> list[Row]:
    """Return one row for each lead time."""
    best = {what: _best(scored, PLAIN, what) for what in ("rmse", "crps")}
    trend = {what: _best(scored, (*PLAIN, *TREND), what) for what in ("rmse", "crps")}
    rmse, crps, own = scored.rmse(WIDE), scored.mean(WIDE, "crps"), scored.rmse(FLOW)
    covered, trained = scored.mean(WIDE, "covered"), scored.mean(TRAINED, "covered")
    single = np.array([one.covered for one in scored.sums[WIDE]])
    lit = single[~np.array(scored.first_light)]
    return [
        {
            "part": "zero-shot",
            "product": name,
            "step": lead + 1,
            "moments": len(scored.units),
            "crps": float(crps[lead]),
            "rmse_ratio_flow": float(rmse[lead] / best["rmse"][lead]),
            "crps_ratio_flow": float(crps[lead] / best["crps"][lead]),
            "rmse_ratio_flow_trend": float(rmse[lead] / trend["rmse"][lead]),
            "crps_ratio_flow_trend": float(crps[lead] / trend["crps"][lead]),
            "coverage": float(covered[lead]),
            "single_low": float(np.nanmin(single[:, lead])),
            "single_high": float(np.nanmax(single[:, lead])),
            "coverage_trained": float(trained[lead]),
            "first_light": sum(scored.first_light),
            "coverage_later": float(np.nanmean(lit[:, lead])),
            "own_flow": float(own[lead] / best["rmse"][lead]),
        }
        for lead in range(LEADS)
    ]


def _best(scored: Scored, methods: Sequence[str], what: str) -> Floats:
    """Return the least score of methods at each lead time."""
    each = [scored.rmse(method) if what == "rmse" else scored.mean(method, "crps") for method in methods]
    return np.asarray(np.min(each, 0))


def _trainings(context: Context[Settings], found: dict[str, Scored]) -> list[Row]:
    """Return the scores of single networks, which are trainings with other seeds."""
    count = len(prior_of(context).networks)
    return [
        {
            "part": "single trainings",
            "product": name,
            "training": number,
            "rmse_ratio_flow": float(np.max(scored.rmse(method) / _best(scored, PLAIN, "rmse"))),
            "crps_ratio_flow": float(np.max(scored.mean(method, "crps") / _best(scored, PLAIN, "crps"))),
            "coverage_low": float(scored.mean(method, "covered").min()),
            "coverage_high": float(scored.mean(method, "covered").max()),
        }
        for name, scored in found.items()
        for number, method in ((number, f"training {number}") for number in range(count))
    ]


def _adapted_names(context: Context[Settings]) -> list[str]:
    days = [name for name in real_names(context) if name.startswith("Himawari")]
    return [*days, *(f"simulated afternoons, {cadence} min" for cadence in AFTERNOON_CADENCES)]


def adapted_rows(context: Context[Settings], name: str) -> Row:
    """Return what learning from earlier windows is worth on a product."""
    settings, prior = context.settings, prior_of(context)
    days = name.startswith("Himawari")
    if days:
        archives = [himawari(context.data, settings.adapted_origins)]
    else:
        archives = afternoons(settings, int(name.split()[-2]))
    before: list[Sums] = []
    after: list[Sums] = []
    for archive in archives:
        made: Made | None = None
        for position in archive.issues.tolist():
            issued = archive.moments.times[position]
            if made is None or not days:  # the windows of days stay the same, those of an afternoon are earlier ones
                learned = archive.moments.times[archive.issues[0]] if days else issued
                made = adapted_to(prior, archive.moments, learned, most=settings.learned, steps=settings.steps)
            assert made is not None
            window = archive.moments.batch(position)
            zero = calibrated(checked_on(prior, archive.moments, issued))
            for found, forecaster in ((before, zero), (after, calibrated(made))):
                found.append(_in_units(score_forecast(forecaster.predict(window), window.targets), 1 / archive.unit))
    scored = Scored({"before": before, OURS: after}, [1.0] * len(before), [])
    covered = scored.mean(OURS, "covered")
    ratios = [float(b.crps.mean() / a.crps.mean()) for a, b in zip(before, after, strict=True)]
    return {
        "part": f"adapted to {settings.learned} windows",
        "product": name,
        "moments": len(before),
        "crps": float(scored.mean(OURS, "crps").mean()),
        "crps_zero_shot": float(scored.mean("before", "crps").mean()),
        "gain": 100 * (1 - float(scored.mean(OURS, "crps").mean() / scored.mean("before", "crps").mean())),
        "worst_moment": 100 * (1 - max(ratios)),
        "rmse_ratio": float(np.mean(scored.rmse(OURS) / scored.rmse("before"))),
        "coverage_low": float(covered.min()),
        "coverage_high": float(covered.max()),
        "days": "several" if days else f"fewer than {FEW_DAYS}",
    }


def _headline(rows: Sequence[Row], learned: Sequence[Row]) -> dict[str, float]:
    ratios = ("rmse_ratio_flow", "crps_ratio_flow", "crps_ratio_flow_trend")
    headline = {name: max(float(row[name]) for row in rows) for name in ratios}
    headline["coverage_low"] = min(float(row["coverage"]) for row in rows)
    headline["coverage_high"] = max(float(row["coverage"]) for row in rows)
    days = [float(row["gain"]) for row in learned if row["days"] == "several"]
    headline |= {"adapt_gain": min(days)} if days else {}
    return headline | {"adapt_worst": min(float(row["gain"]) for row in learned)}
