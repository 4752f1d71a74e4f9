"""Which hours of a plant's record are forecast in a backtest: weeks spread over it, each with support days before it.

Forecasts are issued at every hour of a query week, for every lead time; those whose hour has daylight and recorded
power are scored. The support days of a week end where it begins, whatever their number, so all numbers of days are
scored on the same hours. A record that is too short for the largest numbers of days is backtested with the others, and
one that is too short for a week with the days that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import BASE, HOUR, Plant
from metaprior.solar.sites.sun_path import SunPath, plant_sun_path
from metaprior.solar.sites.sun_position import Floats, sun_of_intervals
from metaprior.solar.sites.weather import with_base

Ints = NDArray[np.int64]
Place = Literal["given", "known", "unknown"]
"""What methods are told about the place: as stated; as stated, else estimated from the whole record; nothing."""

DAY, WEEK = 24, 168
DAYS = (0, 1, 3, 7, 14, 30)
"""Numbers of support days that are compared."""
SUPPORT_SHARE = 2 / 3
"""Share of the record that the support days before the first week may take."""
FEWEST_DAYS = 2
SEASONS = ("winter", "spring", "summer", "autumn")


@dataclass(frozen=True, eq=False)
class Queries:
    """The N forecasts of a plant that are scored, arrays (N,).

    Args:
        origin: Hour of the record at which the query week begins and the support ends.
        issue: Hour at whose begin the forecast is issued.
        lead: 1 for the hour that begins then.
        power: Recorded mean power of the forecast hour, as a share of the capacity.
        week: Number of the query week.
        hour: Hour of the day in mean solar time, 0 to 23.
        season: Index in ``SEASONS``.
    """

    origin: Ints
    issue: Ints
    lead: Ints
    power: Floats
    week: Ints
    hour: Ints
    season: Ints

    def __len__(self) -> int:
        return len(self.issue)

    @cached_property
    def origins(self) -> Ints:
        """The begins of the query weeks with anything to score, ascending."""
        return np.unique(self.origin)


@dataclass(frozen=True, eq=False)
class Case:
    """One plant in a backtest.

    Args:
        plant: Hours of the plant in shares of its capacity, with its place if methods may know it.
        sun: The same place; None if methods must not know it.
        queries: What is forecast.
        days: The numbers of support days for which the record is long enough.
        leads: Number of lead times.
        weeks: Length of all query weeks together, in weeks.
    """

    plant: Plant
    sun: SunPath | None
    queries: Queries
    days: tuple[int, ...]
    leads: int
    weeks: float

    @property
    def has_base(self) -> bool:
        """Whether there is a base forecast."""
        return BASE in self.plant.future and bool(np.isfinite(self.plant.future[BASE]).any())


def case_of(plant: Plant, days: Sequence[int], weeks: int, leads: int, place: Place) -> Case | str:
    """Return what is forecast of a plant, or why nothing is.

    Args:
        plant: The plant; its capacity must be known.
        days: Numbers of support days.
        weeks: Largest number of query weeks.
        leads: Number of lead times.
        place: What methods are told about the place.
    """
    hours = plant.share().hourly()
    if len(hours) < FEWEST_DAYS * DAY:
        return f"{plant.name}: {len(hours)} hours of power are too few, {FEWEST_DAYS} days are needed"
    possible = tuple(count for count in sorted(set(days)) if count * DAY <= SUPPORT_SHARE * len(hours))
    if not possible:
        return f"{plant.name}: {len(hours) / DAY:.0f} days of power are too few for {min(days)} days of support"
    path = plant_sun_path(plant)
    first = max(DAY, DAY * possible[-1])
    begins, length = query_weeks(len(hours), first, weeks)
    queries = _queries(hours, path, begins, length, leads)
    if not len(queries):
        return f"{plant.name}: no usable power by day after the first {first // DAY} days"
    told = plant.place is not None if place == "given" else place == "known"
    north, east = (float(path.latitude), 15.0 * float(path.solar_offset)) if told else (None, None)
    placed = with_base(replace(hours, latitude=north, longitude=east, zone_known=told))
    return Case(placed, path if told else None, queries, possible, leads, length * len(queries.origins) / WEEK)


def query_weeks(hours: int, first: int, weeks: int) -> tuple[Ints, int]:
    """Return the begins of up to ``weeks`` query weeks from hour ``first`` on, which do not overlap, and their length.

    The length is a week, or what is left after ``first`` if that is less. A single week is the last one.
    """
    left = hours - first
    length = min(WEEK, left)
    count = min(weeks, left // length)
    begins = np.linspace(first, hours - length, count).astype(np.int64) if count > 1 else np.array([hours - length])
    return begins, length


def _queries(hours: Plant, path: SunPath, begins: Ints, length: int, leads: int) -> Queries:
    """Return the forecasts of the query weeks whose hours have daylight and power."""
    week, after, lead = np.meshgrid(np.arange(len(begins)), np.arange(length), np.arange(1, leads + 1), indexing="ij")
    origin = begins[week]
    issue = origin + after
    then = issue + lead - 1
    seen = sun_of_intervals(hours.times, HOUR, path.latitude, path.solar_offset)
    scored = np.isfinite(hours.usable) & (np.asarray(seen.elevation).reshape(-1) > 0)
    chosen = (then < len(hours)) & scored[np.minimum(then, len(hours) - 1)]
    then = then[chosen]
    times = hours.times[then]
    clock = times.astype("datetime64[h]").astype(np.int64) % 24 + 0.5 + float(path.solar_offset)
    month = times.astype("datetime64[M]").astype(np.int64) % 12
    season = (month + 1) // 3 % 4 + (2 if path.latitude < 0 else 0)
    return Queries(
        origin[chosen],
        issue[chosen],
        lead[chosen],
        hours.usable[then],
        week[chosen],
        np.floor(clock % 24).astype(np.int64),
        season % 4,
    )
