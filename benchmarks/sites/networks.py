"""Trained networks: the prior and one pooled network without profile; settings of fine-tuning by validation."""

import time
from typing import NamedTuple

import numpy as np

from benchmarks.sites.fleets import validation_plants
from benchmarks.sites.settings import Settings
from metaprior.methods import MetaLearner
from metaprior.solar.sites.backtest import Place, backtest
from metaprior.solar.sites.backtest.networks import Tuning, fine_tuned
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.tasks import SiteTasks
from metaprior.solar.sites.training import (
    PLANTS,
    POOLED_STEPS,
    SPREAD,
    STEPS,
    pooled_tasks,
    simulated_tasks,
    train_prior,
)

PLACES: tuple[Place, ...] = ("unknown", "known")


class Networks(NamedTuple):
    """What a training gives: forecasters, and CPU seconds and steps of both."""

    prior: SiteForecaster
    pooled: SiteForecaster
    seconds: dict[str, float]
    steps: dict[str, int]


def train(settings: Settings, seed: int) -> Networks:
    """Return a prior and a pooled network, trained as those of the package are, with about the same CPU time."""
    tasks = simulated_tasks(settings.training_plants or PLANTS, seed=seed)
    steps = {"prior": settings.steps or STEPS, "pooled": settings.steps or POOLED_STEPS}
    prior, prior_seconds = _trained(tasks, steps["prior"], seed)
    pooled, pooled_seconds = _trained(pooled_tasks(tasks), steps["pooled"], seed)
    return Networks(prior, pooled, {"prior": prior_seconds, "pooled": pooled_seconds}, steps)


def _trained(tasks: SiteTasks, steps: int, seed: int) -> tuple[SiteForecaster, float]:
    started = time.process_time()
    learner: MetaLearner = train_prior(tasks, steps=steps, seed=seed, progress=False)
    learner.calibration_ = SPREAD
    return SiteForecaster(learner), time.process_time() - started


def best_tunings(forecaster: SiteForecaster, settings: Settings) -> dict[int, Tuning]:
    """Return steps and learning rate with the lowest RMSE on simulated validation plants, by number of support days."""
    plants, days = validation_plants(settings), [count for count in settings.days if count]
    errors = []
    for tuning in settings.tunings:
        method = {"fine-tuned": fine_tuned(forecaster, dict.fromkeys(days, tuning))}
        found = [
            backtest(plants, forecaster, days=days, weeks=settings.validation_weeks, methods=method, place=place)
            for place in PLACES
        ]
        errors.append(sum(part.table().to_numpy()[0] for part in found))
    best = np.argmin(errors, axis=0)
    return {count: settings.tunings[number] for count, number in zip(days, best.tolist(), strict=True)}
