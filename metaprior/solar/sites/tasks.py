"""Plants as tasks: support days of random number, and forecasts of the week after them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.solar.sites.rows import RECENT, Hours
from metaprior.tasks.task import Task

DAY = 24
SUPPORT_DAYS = (0, 0, 1, 1, 2, 3, 3, 4, 5, 7, 7, 10, 14, 21, 30)
"""Numbers of support days in training, each as likely as it is often here."""


@dataclass(frozen=True, eq=False)
class SiteTasks:
    """Endless tasks from the hours of plants; task number i is a function of the seed and i.

    A task is a plant, a moment, the days before it as support, and forecasts that are issued in the days after it.

    Args:
        hours: The plants.
        daylight: Where an hour is light enough to be forecast, (plants, T); hours without power are drawn last.
        days: Numbers of support days to draw from.
        leads: Leads to draw from.
        forecasts: Query rows of a task.
        query_days: Days after the support in which forecasts are issued.
        place: Share of tasks whose place is given, where it is known.
        seed: Seed of all draws.
    """

    hours: Hours
    daylight: NDArray[np.bool_]
    days: Sequence[int] = SUPPORT_DAYS
    leads: Sequence[int] = (1, 2, 3, 4, 5, 6)
    forecasts: int = 48
    query_days: int = 7
    place: float = 0.5
    seed: int = 0

    def __getitem__(self, index: int) -> Task:
        """Return a task."""
        draw = np.random.default_rng((self.seed, index))
        plant = int(draw.integers(len(self.hours.power)))
        days = int(draw.choice(self.days))
        latest = self.hours.power.shape[1] - DAY * self.query_days - max(self.leads)
        end = int(draw.integers(max(DAY * days, RECENT), latest))
        issue = end + draw.integers(DAY * self.query_days, size=4 * self.forecasts)
        lead = draw.choice(self.leads, size=4 * self.forecasts)
        then = issue + lead - 1
        wanted = self.daylight[plant, then] & np.isfinite(self.hours.power[plant, then])
        chosen = np.argsort(~wanted, kind="stable")[: self.forecasts]
        known = self.hours if draw.random() < self.place else self._placeless
        return Task(
            known.support(plant, end - DAY * days, end), known.query(plant, issue[chosen], lead[chosen]), f"{plant}"
        )

    @cached_property
    def _placeless(self) -> Hours:
        return self.hours.without_place()


def weeks_of(hours: Hours, *, weeks: int, light: NDArray[np.bool_], days: int = 30, leads: int = 6) -> list[Task]:
    """Return tasks of weeks of one plant, spread over its record: all forecasts of the week that are of light hours.

    Args:
        hours: The plant; place and base forecast are used as they are.
        weeks: Number of weeks; fewer if the record is too short for them.
        light: Which hours are light, at least as long as the record.
        days: Support days directly before each week.
        leads: Forecasts are of leads 1 to this.
    """
    length = hours.power.shape[1]
    first, last = DAY * days, length - 7 * DAY - leads
    ends = np.unique(np.linspace(first, last, weeks).astype(np.int64)) if last >= first else np.empty(0, np.int64)
    made = []
    for end in ends.tolist():
        issue, lead = np.divmod(np.arange(7 * DAY * leads), leads)
        issue, lead = end + issue, lead + 1
        shown = light[issue + lead - 1]
        task = Task(hours.support(0, end - DAY * days, end), hours.query(0, issue[shown], lead[shown]), f"hour {end}")
        made += [task] if torch.isfinite(task.query.y).any() else []
    return made
