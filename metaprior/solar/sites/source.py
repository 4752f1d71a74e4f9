"""The source of a run's tasks from plants, which are divided by purpose: those to test on are never trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.runs.sources import Purpose, TaskSource
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import read_power
from metaprior.solar.sites.rows import Hours
from metaprior.solar.sites.task_settings import LEAST_DAYS, SitesTasks
from metaprior.solar.sites.tasks import DAY, SUPPORT_DAYS, SiteTasks
from metaprior.solar.sites.training import LEADS, LOWEST_SUN, simulated_tasks
from metaprior.solar.sites.weather import usable_weather
from metaprior.tasks.task import Task, Tasks
from metaprior.text_table import counted

HELD_OUT = 0.15
"""Share of the plants to validate on, and of those to test on."""
ROOM = 9 * DAY + 1
"""Hours of a record behind the support: a week in which forecasts are issued, and the longest lead."""
SCORED_DAYS = 30
"""Support days of tasks that are scored, as far as records go."""
TRIES = 50
"""Draws after which a plant is said to have too little power."""
LIT = 0.01
"""Share of capacity above which an hour of the day counts as light, where the place is not known."""


@dataclass(frozen=True, eq=False)
class PlantTasks:
    """Endless tasks of plants with records of their own lengths.

    Args:
        plants: Tasks of each plant.
        least: Support hours with power that a task must have.
        seed: Seed of the choice of plants.
    """

    plants: Sequence[SiteTasks]
    least: int
    seed: int

    def __getitem__(self, index: int) -> Task:
        """Return a task whose query has power; draws without any are repeated."""
        draw = np.random.default_rng((self.seed, index, 7))
        for _ in range(TRIES):
            plant = self.plants[int(draw.integers(len(self.plants)))]
            task = plant[int(draw.integers(2**62))]
            enough = int(torch.isfinite(task.support.y).sum()) >= self.least
            if enough and torch.isfinite(task.query.y).any():
                return task
        raise ValueError(f"plants must have power on most of their days, got none in {TRIES} draws. Try other plants.")


class SiteSource(TaskSource):
    """Plants by purpose."""

    examples_per_shot = DAY
    file = "plants.json"
    heading = "unseen plants, in shares of the capacity; a shot is a day"

    def __init__(self, settings: SitesTasks, plants: Mapping[Purpose, Sequence[SiteTasks]], facts: Any) -> None:
        super().__init__(settings.seed)
        self.plants, self.facts = plants, facts
        self.summary = ", ".join(f"{counted(len(facts[purpose]), 'plant')} to {purpose}" for purpose in plants)

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """Return tasks of the plants of this purpose; those that are scored have at least a week of support."""
        return PlantTasks(self.plants[purpose], 0 if purpose == "train" else 7 * DAY, self.seed_of(purpose))

    def describe(self) -> dict[str, Any]:
        """Return the plants of each purpose, and a digest of their power."""
        return dict(self.facts)


def simulated_source(settings: SitesTasks) -> SiteSource:
    """Return a source of simulated plants; each purpose has plants of its own."""
    few = max(3, round(HELD_OUT * settings.plants))
    counts: dict[Purpose, int] = {"train": settings.plants - 2 * few, "val": few, "test": few}
    plants: dict[Purpose, list[SiteTasks]] = {}
    for number, (purpose, count) in enumerate(counts.items()):
        made = simulated_tasks(count, seed=settings.seed + 1_000_003 * number, days=settings.days)
        plants[purpose] = [_of_purpose(made.hours, made.daylight, purpose, LEADS)]
    facts = {purpose: [f"simulated {i}" for i in range(counts[purpose])] for purpose in plants}
    return SiteSource(settings, plants, facts | {"digest": _digest(plants)})


def fleet_source(settings: SitesTasks) -> SiteSource:
    """Return a source of the plants of a table, divided by the seed.

    Raises:
        ValueError: Fewer than three plants have a record that is long enough.
    """
    table = read_power(settings.path, sites=settings.sites, unit=settings.unit, zone=settings.zone)
    long = long_enough(table.plants)
    if len(long) < 3:
        raise ValueError(
            f"{settings.path} must have at least three plants with {LEAST_DAYS} days of power, to train, to validate "
            f"and to test, got {len(long)}. Try a table of more plants, or the packaged prior."
        )
    order = [long[i] for i in np.random.default_rng((settings.seed, 3)).permutation(len(long))]
    few = max(1, round(HELD_OUT * len(order)))
    parts: dict[Purpose, list[Plant]] = {
        "train": order[2 * few :],
        "val": order[few : 2 * few],
        "test": order[:few],
    }
    plants = {
        purpose: [_of_plant(usable_weather(plant, settings.weather), purpose) for plant in parts[purpose]]
        for purpose in parts
    }
    facts = {purpose: sorted(plant.name for plant in parts[purpose]) for purpose in parts}
    return SiteSource(settings, plants, facts | {"digest": _digest(plants)})


def long_enough(plants: Sequence[Plant]) -> list[Plant]:
    """Return the plants whose records are long enough to be trained, validated or tested on."""
    return [plant for plant in plants if len(plant) * plant.step >= LEAST_DAYS * DAY * 3600]


def _of_plant(plant: Plant, purpose: Purpose) -> SiteTasks:
    hours = Hours.of(plant, hours_ahead=DAY)
    length = hours.power.shape[1]
    if hours.place[0]:
        light = hours.sun[:, :length, 0] > np.sin(np.radians(LOWEST_SUN))
    else:
        lit = ~hours.dark_hours(0, length, at_most=LIT)
        light = lit[(hours.first[0] + np.arange(length)) % DAY][None]
    return _of_purpose(hours, light, purpose, LEADS if np.isfinite(hours.base).any() else range(1, 7))


def _of_purpose(hours: Hours, light: NDArray[np.bool_], purpose: Purpose, leads: Sequence[int]) -> SiteTasks:
    """Return tasks with support days of many numbers for training, and of one number to score."""
    most = (hours.power.shape[1] - ROOM) // DAY
    if purpose != "train":
        return SiteTasks(hours, light, days=(min(SCORED_DAYS, most),), leads=range(1, 7))
    return SiteTasks(hours, light, days=[days for days in SUPPORT_DAYS if days <= most], leads=leads)


def _digest(plants: Mapping[Purpose, Sequence[SiteTasks]]) -> str:
    power = sha256()
    for purpose in sorted(plants):
        for one in plants[purpose]:
            power.update(one.hours.power.tobytes())
    return power.hexdigest()[:16]
