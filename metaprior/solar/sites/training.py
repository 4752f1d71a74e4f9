"""The prior of the package: simulated plants as tasks, and the training that learns from them.

Nothing here reads a file. ``python -m metaprior.solar.sites.training FOLDER`` makes the prior again.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.adaptation.context.settings import Context
from metaprior.methods import MetaLearner
from metaprior.solar.sites.network import LIKELIHOOD, SiteNetwork
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.simulator.base import base_of
from metaprior.solar.sites.simulator.fleet import Fleet, simulate_fleet
from metaprior.solar.sites.tasks import SiteTasks

DAYS = 60
"""Length of a simulated record: 30 support days, a week of forecasts, and room for other seasons' moments."""
LOWEST_SUN = -1.0
"""Degrees of elevation in the middle of an hour above which it is forecast in training."""
LEADS = (*8 * tuple(range(1, 7)), *range(7, 49, 3))
"""Leads in training; the first six hours are what matters most."""
WITH_BASE, WITH_GAPS = 0.4, 0.4
"""Shares of the plants with a base forecast, and with missing hours."""


def simulated_tasks(plants: int, *, seed: int, days: int = DAYS) -> SiteTasks:
    """Return tasks of simulated plants, some with a base forecast, some with gaps in their records."""
    fleet = simulate_fleet(plants, days, seed=seed, clear_power=True)
    return SiteTasks(hours_of(fleet, seed=seed), fleet.elevation > LOWEST_SUN, leads=LEADS, seed=seed)


def hours_of(fleet: Fleet, *, seed: int) -> Hours:
    """Return the hours of a simulated fleet, with base forecasts and gaps in shares of the plants."""
    draw = np.random.default_rng((seed, 21))
    base, _ = base_of(fleet, seed=seed)
    base[draw.random(len(fleet)) >= WITH_BASE] = np.nan
    power = np.maximum(fleet.power, 0.0)
    for plant in np.flatnonzero(draw.random(len(fleet)) < WITH_GAPS):
        _add_gaps(power[plant], draw)
    places = np.array([(one.latitude, one.longitude) for one in fleet.parameters])
    first = fleet.start.astype("datetime64[h]").astype(np.int64)
    return Hours.from_arrays(first, power, places[:, 0], places[:, 1], np.pad(base, ((0, 0), (0, 1)), mode="edge"))


def _add_gaps(power: NDArray[np.float32], draw: np.random.Generator) -> None:
    """Make hours of a record missing: single ones, some hours, some days."""
    for longest, count in ((1, 20), (8, 6), (72, 2)):
        for begin in draw.integers(len(power), size=draw.integers(count + 1)):
            power[begin : begin + draw.integers(1, longest + 1)] = np.nan


def train_prior(
    tasks: SiteTasks, *, steps: int, meta_batch: int = 32, lr: float = 2e-3, seed: int = 0, progress: bool = True
) -> MetaLearner:
    """Return a learner of ``SiteNetwork`` after so many steps on the tasks."""
    torch.manual_seed(seed)
    learner = MetaLearner(SiteNetwork(), LIKELIHOOD, adaptation=Context(), standardize=False, seed=seed)
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
