"""A plant's power as days x times of day, and what is usual at each time of day: what the checks look at.

Days begin twelve hours before the middle of the power, so that a day is not cut by midnight of another zone. What is
usual comes from the power itself, from the days around each day; neither place nor time zone has to be known.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import HOUR, Floats, Plant, usual_peak

Bools = NDArray[np.bool_]

DAY = 24 * HOUR
STANDBY = 0.02
"""Consumption of a plant at night that is no defect, as a share of its scale."""
AROUND = 15
"""Days before and after a day that tell what is usual."""
COARSE = 900
"""Seconds: length of the times of day that are told apart; finer intervals share them."""


class Record:
    """The power of a plant by day and time of day, (D, N), NaN where nothing usable was recorded.

    Args:
        plant: The plant; what is doubtful already counts as missing.
    """

    def __init__(self, plant: Plant) -> None:
        values = plant.usable
        self.plant, self.step = plant, plant.step
        self.slots = DAY // plant.step
        self.scale, self.limit = _scale(plant, values)
        self._before = (_day_begin(plant, values, self.scale)) % self.slots
        self.days = -(-(self._before + len(values)) // self.slots)
        self.power = self.as_days(values, np.nan)

    def as_days(self, values: Floats, fill: float) -> Floats:
        """Return values of intervals (T,) as cells (D, N), with ``fill`` before the first and after the last one."""
        after = self.days * self.slots - self._before - len(values)
        return np.pad(values, (self._before, after), constant_values=fill).reshape(self.days, self.slots)

    def as_series(self, cells: Bools) -> Bools:
        """Return a mask of cells (D, N) as one of intervals (T,)."""
        return cells.reshape(-1)[self._before : self._before + len(self.plant)]

    def whole_days(self, days: Bools) -> Bools:
        """Return a mask of days (D,) as one of cells (D, N)."""
        return np.broadcast_to(days[:, None], self.power.shape)

    @property
    def begins(self) -> NDArray[np.datetime64]:
        """The begin of each day, (D,)."""
        first = self.plant.start - np.timedelta64(self._before * self.step, "s")
        return first + np.arange(self.days) * np.timedelta64(DAY, "s")

    @cached_property
    def plausible(self) -> Floats:
        """The power without values that no plant of this scale can have, (D, N)."""
        possible = (self.power >= -STANDBY * self.scale) & (self.power <= self.limit)
        return np.where(possible, self.power, np.nan)

    @cached_property
    def coarse(self) -> Floats:
        """The largest plausible power of each time of day of about 15 minutes or more, (D, C); -1 without any.

        Standby consumption counts as zero power: it is a value that is there.
        """
        group = max(size for size in range(1, max(1, COARSE // self.step) + 1) if self.slots % size == 0)
        filled = np.where(np.isnan(self.plausible), -1.0, np.maximum(self.plausible, 0.0))
        return np.asarray(filled.reshape(self.days, -1, group).max(axis=2))

    @cached_property
    def envelope(self) -> Floats:
        """The second largest power at this time of day in the days around, (D, N); the largest of one or two days."""
        return self._fine(usual_largest(self.coarse, AROUND, AROUND))

    @cached_property
    def lit(self) -> Bools:
        """Times of day between first and last light of the days around, with an hour and a half to spare, (D, N).

        First light is when three in ten of these days have at least 1 % of the scale. True everywhere for days around
        which there is no light at all.
        """
        light = self._share_with_light >= 0.3
        spare = round(1.5 * HOUR * light.shape[1] / DAY)
        first = np.maximum(light.argmax(axis=1) - spare, 0)
        last = light.shape[1] - 1 - light[:, ::-1].argmax(axis=1) + spare
        number = np.arange(light.shape[1])
        inside = (number >= first[:, None]) & (number <= last[:, None])
        inside[~light.any(axis=1)] = True
        return self._fine(inside) > 0

    @cached_property
    def usually_light(self) -> Bools:
        """Times of day at which at least half of the days around have 1 % of the scale, (D, N)."""
        return self._fine(self._share_with_light >= 0.5) > 0

    @cached_property
    def _share_with_light(self) -> Floats:
        """Share of the days around with at least 1 % of the scale at this time of day, (D, C)."""
        have = self.coarse >= 0
        return np.asarray(_around(self.coarse > 0.01 * self.scale) / np.maximum(_around(have), 1))

    @cached_property
    def bright(self) -> Bools:
        """Cells at whose time of day the days around reach a fifth of the scale, (D, N)."""
        return np.asarray(self.envelope >= 0.2 * self.scale)

    @cached_property
    def zero(self) -> float:
        """The power up to which a plant does not produce: 0.1 % of the scale above what its meter shows at night."""
        dark = self.plausible[~self.lit & np.isfinite(self.plausible)]
        return max(0.0, float(np.median(dark)) if len(dark) else 0.0) + 0.001 * self.scale

    @cached_property
    def top(self) -> float:
        """The largest plausible power, but for one in a thousand of the positive values."""
        positive = self.plausible[self.plausible > 0]
        return float(np.quantile(positive, 0.999)) if len(positive) else 0.0

    @cached_property
    def clipping(self) -> float | None:
        """The limit at which the power is cut off; None if it reaches its largest values too rarely for a plateau."""
        high = self.plausible >= 0.6 * self.top
        flat = self.plausible >= 0.99 * self.top
        on_days = flat.sum(axis=1) * self.step >= HOUR
        clipped = on_days.sum() >= 5 and flat.sum() >= 0.08 * high.sum()
        return self.top if clipped else None

    def _fine(self, coarse: NDArray[np.generic]) -> Floats:
        return np.repeat(coarse, self.slots // coarse.shape[1], axis=1)


def usual_largest(values: Floats, before: int, after: int) -> Floats:
    """Return the second largest of the days from ``before`` to ``after`` each day; the largest if fewer than three."""
    largest = np.full_like(values, -1.0)
    second = np.full_like(values, -1.0)
    count = np.zeros(values.shape, np.int16)
    for shift in range(-before, after + 1):
        into, out = _shifted(len(values), shift)
        other, first = values[out], largest[into]
        np.maximum(second[into], np.minimum(first, other), out=second[into])
        np.maximum(first, other, out=largest[into])
        count[into] += other >= 0
    return np.where(count >= 3, second, largest)


def _shifted(length: int, shift: int) -> tuple[slice, slice]:
    """Return the places that have a neighbour ``shift`` places later, and the places of these neighbours."""
    return slice(max(0, -shift), max(0, length - max(0, shift))), slice(max(0, shift), max(0, length + min(0, shift)))


def _around(cells: Bools) -> NDArray[np.int64]:
    """Return the number of true cells at this time of day in the days around each day."""
    total = np.concatenate([np.zeros((1, cells.shape[1]), np.int64), cells.cumsum(axis=0)])
    day = np.arange(len(cells))
    return np.asarray(total[np.minimum(day + AROUND + 1, len(cells))] - total[np.maximum(day - AROUND, 0)])


def _scale(plant: Plant, values: Floats) -> tuple[float, float]:
    """Return the size of a plant's power, and the value above which power is impossible.

    The size is the capacity, or the 99 % quantile of the positive values where it is unknown or does not fit them.
    """
    high = usual_peak(values)
    capacity = plant.capacity
    if capacity is None or plant.capacity_estimated or not 0.15 * capacity < high < 1.3 * capacity:
        return (high or capacity or 1.0), 1.5 * (high or capacity or 1.0)
    return capacity, 1.3 * capacity


def _day_begin(plant: Plant, values: Floats, scale: float) -> int:
    """Return the number of intervals by which days begin before the first value."""
    slots = DAY // plant.step
    since_midnight = int((plant.start - plant.start.astype("datetime64[D]")) / np.timedelta64(1, "s"))
    angle = 2 * np.pi * (since_midnight + (np.arange(len(values)) + 0.5) * plant.step) / DAY
    weight = np.where(np.isnan(values), 0.0, np.clip(values, 0.0, scale))  # what is missing has no weight
    noon = np.angle((weight * np.exp(1j * angle)).sum()) % (2 * np.pi) if weight.any() else np.pi
    begin = round((noon - np.pi) / (2 * np.pi) * slots)
    return since_midnight // plant.step - begin
