"""Hours of plants as rows of numbers: what the network is given about an hour to forecast, and about a support hour.

A forecast is issued at the begin of an hour, from the hours before it; lead 1 is the hour that begins then. A row is
one hour of a plant, and its columns are those of ``COLUMNS``: the last hours of power, the sun over the plant where its
place is known, a base forecast where there is one. Nothing at or after the time of issue is read, except for the sun
and the base forecast, which are known in advance. Support rows are hours of the plant's own past with their power as
target, and have an age in days in place of recent power.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.solar.sites.plant import BASE, HOUR, Plant
from metaprior.solar.sites.sun_position import sun_of_intervals
from metaprior.solar.sites.weather import learned_base, other_weather, with_base
from metaprior.tasks.task import Examples

Singles = NDArray[np.float32]
Index = NDArray[np.int64]

RECENT = 6
"""Hours before the time of issue whose power is read."""

OFF_SCALE = 3.0
"""Factor between power and base forecast beyond which the latter is scaled: a wrong unit or a quantity of its own."""

_WIDTHS = {
    "lead": 1,  # hours from the time of issue to the end of the hour; 0 for support rows
    "hour": 1,  # of the day, 0 to 23, in the plant's stamps
    "age": 1,  # support rows: days from the hour to the end of the support
    "recent": RECENT,  # share of capacity, latest first; 0 where missing
    "recent_there": RECENT,
    "day": 2,  # mean power of the last 24 hours, and the share of them that is there
    "clear": 1,  # mean clear-sky irradiance of the hour in kW/m2; 0 where the place is not known, and so are the next
    "clear_around": 2,  # of the hours before and after it
    "sun": 3,  # direction: up, east, north
    "clear_recent": RECENT,
    "place": 1,  # whether the place is known
    "base": 1,  # base forecast in shares of capacity; 0 where there is none
    "base_recent": RECENT,
    "base_there": 1,
}
WIDTH = sum(_WIDTHS.values())
"""Numbers of a row."""


def _columns() -> dict[str, slice]:
    ends = np.cumsum(list(_WIDTHS.values())).tolist()
    return {name: slice(end - width, end) for (name, width), end in zip(_WIDTHS.items(), ends, strict=True)}


COLUMNS = _columns()
"""Where each part of a row is."""


@dataclass(frozen=True, eq=False)
class Hours:
    """Full hours of one plant or of several with records of equal length, arrays (plants, T) or as said.

    Args:
        first: The plants' first hours, counted from 1970 in UTC, (plants,).
        power: Share of capacity, NaN where it is missing or doubtful.
        clear: Mean clear-sky irradiance in kW/m2, at least T long; zeros where the place is not known.
        sun: Direction of the sun (up, east, north) in the middle of the hour, (plants, at least T, 3).
        place: Whether the place is known, (plants,).
        base: Base forecast in shares of capacity, NaN where there is none, at least T long.
        weather: Of one plant without a base forecast: columns from which one can be learned, (at least T, columns).
    """

    first: Index
    power: Singles
    clear: Singles
    sun: Singles
    place: NDArray[np.bool_]
    base: Singles
    weather: Singles | None = None

    @classmethod
    def of(cls, plant: Plant, *, hours_ahead: int = 0) -> "Hours":
        """Return the hours of a plant whose capacity is known, with sun and base forecast for hours ahead of them."""
        hourly = with_base(plant.share().hourly())
        count = len(hourly) + hours_ahead
        base = np.full(count + 1, np.nan, np.float32)
        given = hourly.future.get(BASE, base[:0])[: count + 1]
        base[: len(given)] = given
        first = hourly.start.astype("datetime64[h]").astype(np.int64)
        latitude, longitude = np.array(plant.place or (0.0, 0.0))[:, None]
        made = cls.from_arrays(np.array([first]), hourly.usable[None], latitude, longitude, base[None])
        made = made if plant.place else made.without_place()
        return replace(made, weather=other_weather(hourly))

    @classmethod
    def from_arrays(
        cls,
        first: Index,
        power: NDArray[np.floating],
        latitude: NDArray[np.floating],
        longitude: NDArray[np.floating],
        base: NDArray[np.floating] | None = None,
    ) -> "Hours":
        """Return the hours of plants whose places are known; ``base`` may be longer than ``power``, (plants, T + n)."""
        count = power.shape[1] + 1 if base is None else base.shape[1]
        times = (first[:, None] + np.arange(count)).astype("datetime64[h]").astype("datetime64[s]")
        seen = sun_of_intervals(times, HOUR, latitude, longitude / 15.0)
        up, turn = np.radians(seen.elevation), np.radians(seen.azimuth)
        sun = np.stack([np.sin(up), np.cos(up) * np.sin(turn), np.cos(up) * np.cos(turn)], -1)
        return cls(
            first,
            power.astype(np.float32),
            (seen.clear_sky / 1000.0).astype(np.float32),
            sun.astype(np.float32),
            np.ones(len(power), np.bool_),
            np.full((len(power), count), np.nan, np.float32) if base is None else base.astype(np.float32),
        )

    def without_place(self) -> "Hours":
        """Return the same hours of plants whose places are not known."""
        zeros, nowhere = np.zeros_like(self.clear), np.zeros_like(self.place)
        return replace(self, clear=zeros, sun=np.zeros_like(self.sun), place=nowhere)

    def without_base(self) -> "Hours":
        """Return the same hours without any base forecast."""
        return replace(self, base=np.full_like(self.base, np.nan))

    def with_learned_base(self, begin: int, end: int) -> "Hours":
        """Return the hours of one plant with a base forecast that the support hours teach, if there is weather."""
        if self.weather is None:
            return self
        base = np.full_like(self.base, np.nan)
        length = min(base.shape[1], len(self.weather))
        sky = self.clear[0] if self.place[0] else self._mean_profile(begin, end)
        base[0, :length] = learned_base(self.power[0], sky, self.weather[:length], begin, end)
        return replace(self, base=base)

    def base_factor(self, begin: int, end: int) -> float:
        """Return what the base forecast of one plant must be multiplied by to fit its power; 1 if it is not far off."""
        power, base = self.power[0, begin:end], self.base[0, begin:end]
        both = np.isfinite(power) & np.isfinite(base)
        square = float(np.square(base[both], dtype=np.float64).sum())
        factor = float(np.dot(power[both].astype(np.float64), base[both])) / square if square > 0 else 1.0
        return 1.0 if factor <= 0 or 1.0 / OFF_SCALE <= factor <= OFF_SCALE else factor

    def with_base_times(self, factor: float) -> "Hours":
        """Return the same hours with a multiple of the base forecast."""
        return self if factor == 1.0 else replace(self, base=np.float32(factor) * self.base)

    def dark_hours(self, begin: int, end: int, *, at_most: float) -> NDArray[np.bool_]:
        """Return at which hours of the day (24,) one plant's power was tiny and known, from ``begin`` to ``end``."""
        power, hour = self.power[0, begin:end], (self.first[0] + np.arange(begin, end)) % 24
        there = np.isfinite(power)
        counts = [np.bincount(hour[own], minlength=24) for own in (there, there & (power > at_most))]
        return np.asarray((counts[0] > 0) & (counts[1] == 0))

    def _mean_profile(self, begin: int, end: int) -> NDArray[np.float64]:
        """Return the mean power of the support hours at the same hour of the day, as long as the base forecast."""
        power = self.power[0, begin:end]
        there = np.isfinite(power)
        hour = (self.first[0] + np.arange(self.base.shape[1])) % 24
        own = hour[begin:end][there]
        mean = np.bincount(own, power[there], minlength=24) / np.maximum(np.bincount(own, minlength=24), 1)
        return np.asarray(mean[hour])

    def query_rows(self, plant: int, issue: Index, lead: Index) -> Singles:
        """Return rows (N, WIDTH) of forecasts that are issued at hours ``issue`` of a plant for leads >= 1, (N,)."""
        rows = self._hours_as_rows(plant, issue + lead - 1)
        before = issue[:, None] - 1 - np.arange(RECENT)
        recent, base = _at(self.power[plant], before), _at(self.base[plant], before)
        rows[:, COLUMNS["lead"]] = lead[:, None]
        rows[:, COLUMNS["recent"]] = np.where(np.isnan(recent), 0.0, recent)
        rows[:, COLUMNS["recent_there"]] = ~np.isnan(recent)
        rows[:, COLUMNS["day"]] = self._last_days(plant)[issue]
        rows[:, COLUMNS["clear_recent"]] = self.clear[plant, np.maximum(before, 0)]
        rows[:, COLUMNS["base_recent"]] = np.where(np.isnan(base), 0.0, base)
        return rows

    def support_rows(self, plant: int, begin: int, end: int) -> Singles:
        """Return rows of a plant's hours from ``begin`` to before ``end``, latest first, as support from ``end`` on."""
        hours = np.arange(begin, end)[::-1]
        rows = self._hours_as_rows(plant, hours)
        rows[:, COLUMNS["age"]] = (end - hours)[:, None] / 24.0
        return rows

    def support(self, plant: int, begin: int, end: int) -> Examples:
        """Return the support set of the hours from ``begin`` to before ``end``; missing power is NaN.

        The latest hours come first, so that the first 24 n examples are the last n days.
        """
        target = self.power[plant, begin:end, None][::-1]
        return Examples(torch.from_numpy(self.support_rows(plant, begin, end)), torch.from_numpy(target.copy()))

    def query(self, plant: int, issue: Index, lead: Index) -> Examples:
        """Return the query set of forecasts; power that is missing is NaN."""
        target = self.power[plant, issue + lead - 1, None]
        return Examples(torch.from_numpy(self.query_rows(plant, issue, lead)), torch.from_numpy(target))

    def _last_days(self, plant: int) -> Singles:
        """Return the mean power of the 24 hours before each hour, and the share of them that is there, (T + 1, 2)."""
        power = self.power[plant]
        there = ~np.isnan(power)
        sums = np.cumsum(np.stack([np.where(there, power, 0.0), there], 1), axis=0, dtype=np.float64)
        sums = np.concatenate([np.zeros((1, 2)), sums])
        total, count = (sums - sums[np.maximum(np.arange(len(sums)) - 24, 0)]).T
        return np.stack([total / np.maximum(count, 1.0), count / 24.0], 1).astype(np.float32)

    def _hours_as_rows(self, plant: int, hours: Index) -> Singles:
        """Return rows with what is known of the hours in advance."""
        rows = np.zeros((len(hours), WIDTH), np.float32)
        last = self.clear.shape[1] - 1
        base = self.base[plant, hours]
        rows[:, COLUMNS["hour"]] = ((self.first[plant] + hours) % 24)[:, None]
        rows[:, COLUMNS["clear"]] = self.clear[plant, hours, None]
        around = np.stack([np.maximum(hours - 1, 0), np.minimum(hours + 1, last)], 1)
        rows[:, COLUMNS["clear_around"]] = self.clear[plant, around]
        rows[:, COLUMNS["sun"]] = self.sun[plant, hours]
        rows[:, COLUMNS["place"]] = self.place[plant]
        rows[:, COLUMNS["base"]] = np.where(np.isnan(base), 0.0, base)[:, None]
        rows[:, COLUMNS["base_there"]] = ~np.isnan(base)[:, None]
        return rows


def _at(values: Singles, index: Index) -> Singles:
    """Return values at indices, NaN before the first."""
    return np.concatenate([[np.float32(np.nan)], values])[np.maximum(index + 1, 0)]
