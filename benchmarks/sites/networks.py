"""Trained networks: the prior, one pooled network without profile, and that network fine-tuned on the support days."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.sites.fleets import validation_plants
from benchmarks.sites.settings import Settings
from metaprior.methods import MetaLearner
from metaprior.solar.sites.backtest import LEVELS, Case, Method, Place, adapted, backtest
from metaprior.solar.sites.forecaster import DARK, SiteForecaster
from metaprior.solar.sites.limits import PowerForecast, within_limits
from metaprior.solar.sites.network import LIKELIHOOD, SiteNetwork, SupportProfile
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.tasks import DAY, SiteTasks
from metaprior.solar.sites.training import PLANTS, SPREAD, STEPS, simulated_tasks, train_prior

BATCH = 256
"""Forecasts in a step of fine-tuning."""
TRIAL_STEPS = 40
PLACES: tuple[Place, ...] = ("unknown", "known")
Tuning = tuple[int, float]
"""Steps of Adam, and their learning rate."""
AS_IT_IS: Tuning = (0, 0.0)


class Networks(NamedTuple):
    """What a training gives: forecasters, and CPU seconds and steps of both."""

    prior: SiteForecaster
    pooled: SiteForecaster
    seconds: dict[str, float]
    steps: dict[str, int]


def train(settings: Settings, seed: int) -> Networks:
    """Return a prior trained as that of the package is, and a network without profile with the same CPU time."""
    steps = settings.steps or STEPS
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*targets are missing")  # gaps that were simulated on purpose
        tasks = simulated_tasks(settings.training_plants or PLANTS, seed=seed)
        plain = replace(tasks, days=(0,))
        paces = [_seconds(tried, min(TRIAL_STEPS, steps), seed)[1] for tried in (tasks, plain)]
        prior, seconds = _seconds(tasks, steps, seed)
        pooled_steps = max(steps, round(steps * paces[0] / paces[1]))
        pooled, pooled_seconds = _seconds(plain, pooled_steps, seed)
    for learner in (prior, pooled):
        learner.calibration_ = SPREAD
    return Networks(
        SiteForecaster(prior),
        SiteForecaster(pooled),
        {"prior": seconds, "pooled": pooled_seconds},
        {"prior": steps, "pooled": pooled_steps},
    )


def _seconds(tasks: SiteTasks, steps: int, seed: int) -> tuple[MetaLearner, float]:
    started = time.process_time()
    learner = train_prior(tasks, steps=steps, seed=seed, progress=False)
    return learner, time.process_time() - started


def pooled(forecaster: SiteForecaster) -> Method:
    """Return the method of a network that reads no support days: its forecasts are those of 0 days."""
    without = adapted(forecaster)
    return lambda case, days: without(case, 0)


def fine_tuned(learner: MetaLearner, tunings: Mapping[int, Tuning]) -> Method:
    """Return the method of a pooled network whose weights are all fine-tuned by Adam on the support days of each week.

    It learns from forecasts of the hours that were lit, issued in the support days with what they had before; the loss
    is that of its training. Without support days it is the pooled network.

    Args:
        learner: The pooled network.
        tunings: Steps and learning rate by number of support days.
    """

    def method(case: Case, days: int) -> PowerForecast:
        queries, hours = case.queries, Hours.of(case.plant, hours_ahead=DAY)
        mean, quantiles = np.empty(len(queries)), np.empty((len(LEVELS), len(queries)))
        for origin in queries.origins.tolist():
            own = queries.origin == origin
            issue, lead = queries.issue[own], queries.lead[own]
            module, lit = _tuned(learner, hours, origin - DAY * days, origin, case.leads, tunings.get(days, AS_IT_IS))
            with torch.no_grad():
                outputs = module(torch.from_numpy(hours.query_rows(0, issue, lead)), torch.zeros(SupportProfile.size))
            then = issue + lead - 1
            night = hours.clear[0, then] <= 0 if hours.place[0] else ~lit[(hours.first[0] + then) % DAY]
            found = within_limits(LIKELIHOOD.forecast(outputs.expand(2, -1, -1), {}), LEVELS, night, 1.0)
            mean[own], quantiles[:, own] = found.mean, found.quantiles
        return PowerForecast(mean, quantiles)

    return method


def _tuned(
    learner: MetaLearner, hours: Hours, begin: int, end: int, leads: int, tuning: Tuning
) -> tuple[SiteNetwork, np.ndarray]:
    """Return the network after fine-tuning, and which hours of the day may be lit, (24,)."""
    module = SiteNetwork()
    module.load_state_dict({name: value.clone() for name, value in learner.theta_.plain.items()})
    power = hours.power.copy()
    power[:, :begin] = np.nan  # a plant that was connected then
    alone = replace(hours, power=power)
    clock = (hours.first[0] + np.arange(begin, end)) % DAY
    lit = np.ones(DAY, np.bool_)
    for hour in range(DAY):
        values = power[0, begin:end][clock == hour]
        values = values[np.isfinite(values)]
        lit[hour] = not len(values) or values.max() > DARK
    issue, lead = (part.ravel() for part in np.meshgrid(np.arange(begin, end), np.arange(1, leads + 1), indexing="ij"))
    then = issue + lead - 1
    chosen = then < end
    issue, lead, then = issue[chosen], lead[chosen], then[chosen]
    chosen = np.isfinite(power[0, then]) & lit[(hours.first[0] + then) % DAY]
    if not chosen.any() or not tuning[0]:
        return module, lit
    support = alone.query(0, issue[chosen], lead[chosen])
    draw = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=tuning[1])
    for _ in range(tuning[0]):
        some = torch.randint(len(support.x), (min(BATCH, len(support.x)),), generator=draw)
        outputs = module(support.x[some], torch.zeros(SupportProfile.size))
        optimizer.zero_grad()
        LIKELIHOOD.elementwise_nll(outputs, support.y[some], {}).mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    return module, lit


def best_tunings(forecaster: SiteForecaster, settings: Settings) -> dict[int, Tuning]:
    """Return steps and learning rate with the lowest RMSE on simulated validation plants, by number of support days."""
    plants, days = validation_plants(settings), [count for count in settings.days if count]
    errors = []
    for tuning in settings.tunings:
        method = {"fine-tuned": fine_tuned(forecaster.learner, dict.fromkeys(days, tuning))}
        found = [
            backtest(plants, forecaster, days=days, weeks=settings.validation_weeks, methods=method, place=place)
            for place in PLACES
        ]
        errors.append(sum(part.table().to_numpy()[0] for part in found))
    best = np.argmin(errors, axis=0)
    return {count: settings.tunings[number] for count, number in zip(days, best.tolist(), strict=True)}
