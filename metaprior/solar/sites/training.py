"""The prior of the package: simulated plants as tasks, the training that learns from them, and the spread of real ones.

Real days have other tails than simulated ones, so the spread is not fitted to simulated plants. ``SPREAD`` was fitted
to real ones with ``calibrate_on``; it is all that the prior knows of any real record.
``python -m metaprior.solar.sites.training FOLDER`` makes the prior again.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.adaptation.context.settings import Context
from metaprior.calibration import CalibrationByShots
from metaprior.methods import MetaLearner
from metaprior.solar.sites.forecaster import POOLED
from metaprior.solar.sites.network import LIKELIHOOD, SiteNetwork
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.simulator.base import base_of
from metaprior.solar.sites.simulator.fleet import Fleet, simulate_fleet
from metaprior.solar.sites.tasks import DAY, SiteTasks, weeks_of

DAYS = 60
"""Length of a simulated record: 30 support days, a week of forecasts, and room for other seasons' moments."""
LOWEST_SUN = -1.0
"""Degrees of elevation in the middle of an hour above which it is forecast in training."""
LEADS = (*8 * tuple(range(1, 7)), *range(7, 49, 3))
"""Leads in training; the first six hours are what matters most."""
PLANTS, STEPS, POOLED_STEPS = 6000, 15000, 17000
"""Simulated plants, training steps of the packaged prior, and steps of the pooled network in the same CPU time."""
CALIBRATION_DAYS = (0, 1, 3, 7, 14, 30)
"""Numbers of support days at which the spread is fitted to real plants."""
SPREAD = CalibrationByShots(
    tuple(DAY * days for days in CALIBRATION_DAYS),
    (1.0, 1.056, 1.056, 1.056, 1.0, 1.0),
    (0.88, 0.90, 0.90, 0.90, 0.89, 0.89),
    336,
)
"""Factors of the spread of the packaged prior by support hours, from ``calibrate_on`` 24 weeks of seven real plants
with and without their places; the same for three trainings."""
WITH_BASE, WITH_GAPS, SPARSE = 0.5, 0.4, 0.08
"""Shares of the plants with a base forecast, with missing hours, and with readings at some hours of the day alone."""


def simulated_tasks(plants: int, *, seed: int, days: int = DAYS) -> SiteTasks:
    """Return tasks of simulated plants, some with a base forecast, some with gaps in their records."""
    fleet = simulate_fleet(plants, days, seed=seed, clear_power=True)
    return SiteTasks(hours_of(fleet, seed=seed), fleet.elevation > LOWEST_SUN, leads=LEADS, seed=seed)


def pooled_tasks(tasks: SiteTasks) -> SiteTasks:
    """Return the same tasks without support days, from which a pooled network learns."""
    return replace(tasks, days=(0,))


def hours_of(fleet: Fleet, *, seed: int) -> Hours:
    """Return the hours of a simulated fleet, with base forecasts and gaps in shares of the plants."""
    draw = np.random.default_rng((seed, 21))
    base, _ = base_of(fleet, seed=seed)
    base[draw.random(len(fleet)) >= WITH_BASE] = np.nan
    power = np.maximum(fleet.power, 0.0)
    for plant in np.flatnonzero(draw.random(len(fleet)) < WITH_GAPS):
        _add_gaps(power[plant], draw)
    for plant in np.flatnonzero(draw.random(len(fleet)) < SPARSE):
        _thin_out(power[plant], fleet.elevation[plant], draw)
    places = np.array([(one.latitude, one.longitude) for one in fleet.parameters])
    first = fleet.start.astype("datetime64[h]").astype(np.int64)
    return Hours.from_arrays(first, power, places[:, 0], places[:, 1], np.pad(base, ((0, 0), (0, 1)), mode="edge"))


def _add_gaps(power: NDArray[np.float32], draw: np.random.Generator) -> None:
    """Make hours of a record missing: single ones, some hours, some days."""
    for longest, count in ((1, 20), (8, 6), (72, 2)):
        for begin in draw.integers(len(power), size=draw.integers(count + 1)):
            power[begin : begin + draw.integers(1, longest + 1)] = np.nan


def _thin_out(power: NDArray[np.float32], elevation: NDArray[np.floating], draw: np.random.Generator) -> None:
    """Keep a share of the hours while the sun is well up, as rarely read meters have them."""
    read = (elevation > draw.uniform(-0.1, 0.5) * elevation.max()) & (draw.random(len(power)) < draw.uniform(0.5, 1.0))
    power[~read] = np.nan


def train_prior(
    tasks: SiteTasks, *, steps: int, meta_batch: int = 32, lr: float = 3e-3, seed: int = 0, progress: bool = True
) -> MetaLearner:
    """Return a learner of ``SiteNetwork`` after so many steps on the tasks."""
    torch.manual_seed(seed)
    learner = MetaLearner(
        SiteNetwork(), LIKELIHOOD, adaptation=Context(), standardize=False, examples_per_shot=DAY, seed=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*targets.* are missing")  # gaps that were simulated on purpose
        learner.fit(
            tasks,
            epochs=10,
            tasks_per_epoch=steps * meta_batch // 10,
            meta_batch=meta_batch,
            lr=lr,
            scales_first=0.0,
            progress=progress,
        )
    return learner


def calibrate_on(learner: MetaLearner, hours: Sequence[Hours], *, weeks: int = 12) -> CalibrationByShots:
    """Return the factors of the spread by support days, fitted to weeks of real plants, with and without their places.

    Args:
        learner: A learner, which keeps its own calibration.
        hours: One plant each, with its place.
        weeks: Weeks of each plant.
    """
    tasks = [
        task
        for plant in hours
        for known in (plant, plant.without_place())
        for task in weeks_of(known, weeks=weeks, light=plant.sun[0, :, 0] > 0)
    ]
    fitted = learner.with_theta(learner.theta_).calibrate(tasks, CALIBRATION_DAYS, samples=2, progress=False)
    assert fitted.calibration_ is not None
    return fitted.calibration_


def main() -> None:
    """Train the prior of the package and its pooled network, and write them to the folder that is named."""
    parser = argparse.ArgumentParser(description="Train the prior of the package on simulated plants.")
    parser.add_argument("folder", help="where the prior is written")
    parser.add_argument("--plants", type=int, default=PLANTS, help=f"simulated plants ({PLANTS})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps ({STEPS})")
    parser.add_argument("--seed", type=int, default=0, help="seed of plants and training (0)")
    given = parser.parse_args()
    tasks = simulated_tasks(given.plants, seed=given.seed)
    for folder, own, steps in (
        (Path(given.folder), tasks, given.steps),
        (Path(given.folder) / POOLED.name, pooled_tasks(tasks), round(given.steps * POOLED_STEPS / STEPS)),
    ):
        learner = train_prior(own, steps=steps, seed=given.seed)
        learner.calibration_ = SPREAD
        learner.save(str(folder))


if __name__ == "__main__":
    main()
