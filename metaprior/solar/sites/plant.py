"""The power of one plant on a regular grid of time: the value that readers, checks, simulator and forecaster share.

Intervals are named by their begin, in UTC; the power of an interval is its mean. A value that was not recorded is NaN,
and a recorded value that should not be used has a ``doubt`` other than zero (``metaprior.solar.sites.checks``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Times = NDArray[np.datetime64]
Number = TypeVar("Number", np.float64, np.uint8)

HOUR = 3600
UNITS = ("W", "kW", "MW", "share")
"""Units of power; "share" is the share of the capacity."""

BASE = "base"
"""Column of ``Plant.future`` with a base forecast of the power, in the plant's unit; the others have own units."""


@dataclass(frozen=True, eq=False, repr=False)
class Plant:
    """The power of one plant on a regular grid of time, and what is known about it.

    Args:
        name: Name of the plant.
        start: Begin of the first interval, in UTC.
        step: Length of an interval in seconds, 60 to 3600 and a divisor of 3600.
        power: Mean power of each interval in ``unit``, (T,); NaN where nothing was recorded. T may be 0.
        doubt: 0 where the power is usable, else 1 + the index of the reason in ``checks.DOUBTS``, (T,).
        unit: "W", "kW", "MW" or "share" (of the capacity).
        capacity: Nameplate capacity in ``unit`` (AC limit or DC peak, as the owner states it).
        capacity_estimated: Whether the capacity was estimated from the power.
        latitude: Degrees north.
        longitude: Degrees east.
        tilt: Degrees from horizontal.
        azimuth: Degrees clockwise from north.
        stamp: "begin" or "end": what a stamp of the plant's table names of its interval. Records count begins all the
            same; forecasts for the user name hours as the table does.
        zone_known: False if the stamps had no time zone and none was stated; ``start`` then counts the clock's time.
        future: Columns that are known in advance, on the grid of the power and at least T long: a base forecast of
            the power (``"base"``, in ``unit``) and weather.
    """

    name: str
    start: np.datetime64
    step: int
    power: Floats
    doubt: NDArray[np.uint8]
    unit: str = "kW"
    capacity: float | None = None
    capacity_estimated: bool = False
    latitude: float | None = None
    longitude: float | None = None
    tilt: float | None = None
    azimuth: float | None = None
    stamp: Literal["begin", "end"] = "begin"
    zone_known: bool = True
    future: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", np.datetime64(self.start).astype("datetime64[s]"))
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, got {self.unit!r}")
        if not 60 <= self.step <= HOUR or HOUR % self.step:
            raise ValueError(f"step must be 60 to 3600 seconds and divide 3600, got {self.step}")
        if self.power.ndim != 1 or self.power.shape != self.doubt.shape:
            raise ValueError(f"power and doubt must be (T,), got {self.power.shape} and {self.doubt.shape}")
        if self.capacity is not None and not (np.isfinite(self.capacity) and self.capacity > 0):
            raise ValueError(f"capacity of {self.name} must be a positive number, got {self.capacity!r}")
        for name, column in self.future.items():
            if column.ndim != 1 or len(column) < len(self.power):
                raise ValueError(f"future[{name!r}] must have at least {len(self)} values, got shape {column.shape}")

    def __len__(self) -> int:
        return len(self.power)

    def __repr__(self) -> str:
        """Return name, capacity and extent."""
        extent = f"{len(self)} intervals of {self.step // 60} min from {self.start}"
        return f"Plant({self.name!r}, capacity {self.capacity} {self.unit}, {extent})"

    @property
    def place(self) -> tuple[float, float] | None:
        """Latitude and longitude; None unless both and the zone of the stamps are known."""
        if self.latitude is None or self.longitude is None or not self.zone_known:
            return None
        return self.latitude, self.longitude

    @property
    def end(self) -> np.datetime64:
        """The end of the last interval of power."""
        return self.start + np.timedelta64(len(self) * self.step, "s")

    @property
    def times(self) -> Times:
        """The begins of the intervals of power, (T,)."""
        return self.times_until(len(self))

    @property
    def usable(self) -> Floats:
        """The power with NaN where it is doubtful, (T,)."""
        return np.where(self.doubt == 0, self.power, np.nan)

    def times_until(self, count: int) -> Times:
        """Return the begins of the first ``count`` intervals, which may reach beyond the power."""
        return self.start + np.arange(count) * np.timedelta64(self.step, "s")

    def between(self, start: np.datetime64 | None = None, end: np.datetime64 | None = None) -> Self:
        """Return the plant with the intervals that begin in [start, end) alone.

        Columns that are known in advance are kept to their last value, beyond ``end``.
        """
        first = 0 if start is None else self.index(start)
        last = len(self) if end is None else self.index(end)
        first = min(first, len(self))
        last = min(max(last, first), len(self))
        return replace(
            self,
            start=self.start + np.timedelta64(first * self.step, "s"),
            power=self.power[first:last],
            doubt=self.doubt[first:last],
            future={name: column[first:] for name, column in self.future.items()},
        )

    def followed_by(self, later: "Plant") -> Self:
        """Return the plant with the intervals of a later record of it, which count where both have one.

        Raises:
            ValueError: The records do not fit together: another unit or step, or a grid that is shifted.
        """
        shift = int((later.start - self.start) / np.timedelta64(1, "s"))
        if (later.unit, later.step) != (self.unit, self.step) or shift % self.step or shift < 0:
            raise ValueError(
                f"a later record of {self.name} must be in {self.unit} with intervals of {self.step} s on the same "
                f"grid, and not begin before it, got {later.unit}, {later.step} s, from {later.start}"
            )
        first = shift // self.step
        count = max(len(self), first + len(later))
        power, doubt = np.full(count, np.nan), np.zeros(count, np.uint8)
        for begin, record in ((0, self), (first, later)):
            power[begin : begin + len(record)] = record.power
            doubt[begin : begin + len(record)] = record.doubt
        future = {name: _joined(self.future.get(name), column, first, count) for name, column in later.future.items()}
        kept = {name: _joined(column, None, first, count) for name, column in self.future.items() if name not in future}
        return replace(self, power=power, doubt=doubt, future=kept | future)

    def until(self, end: np.datetime64) -> Self:
        """Return the plant with a record that goes on to ``end``, without power after its own end.

        A plant without any power starts at ``end``.
        """
        missing = self.index(end) - len(self)
        if not len(self):
            return replace(self, start=end, future={name: column[missing:] for name, column in self.future.items()})
        if missing <= 0:
            return self
        return replace(
            self,
            power=np.pad(self.power, (0, missing), constant_values=np.nan),
            doubt=np.pad(self.doubt, (0, missing)),
            future={name: _joined(column, None, 0, len(self) + missing) for name, column in self.future.items()},
        )

    def index(self, time: np.datetime64) -> int:
        """Return the number of the first interval that begins at ``time`` or later; 0 for times before the start."""
        seconds = int((np.datetime64(time).astype("datetime64[s]") - self.start) / np.timedelta64(1, "s"))
        return max(0, -(-seconds // self.step))

    def share(self) -> Self:
        """Return the plant in shares of its capacity, the base forecast included.

        Raises:
            ValueError: The capacity is not known.
        """
        if self.unit == "share" and self.capacity in (None, 1.0):
            return replace(self, capacity=1.0)
        if self.capacity is None:
            raise ValueError(
                f"the capacity of {self.name} must be known to compute shares of it. Try read_power, which estimates "
                "it from the power, or dataclasses.replace(plant, capacity=...)."
            )
        capacity = self.capacity
        future = {name: column / capacity if name == BASE else column for name, column in self.future.items()}
        return replace(self, power=self.power / capacity, unit="share", capacity=1.0, future=future)

    def hourly(self) -> Self:
        """Return the plant in hours: the mean of the usable intervals of each hour.

        Hours are full hours of UTC, but for intervals that do not fit them, as hours of a zone with half hours do not.
        An hour is NaN unless at least half of it is usable; it then has the largest doubt of its intervals. Columns
        that are known in advance are averaged where they are not NaN.
        """
        per_hour = HOUR // self.step
        seconds = int(self.start.astype("datetime64[s]").astype(np.int64))
        before = seconds % HOUR // self.step
        hour = self.start - np.timedelta64(before * self.step, "s")
        usable = _hours(self.usable, per_hour, before, np.nan)
        enough = np.isfinite(usable).sum(axis=1) >= per_hour / 2
        doubt = np.where(enough, 0, _hours(self.doubt, per_hour, before, 0).max(axis=1)).astype(np.uint8)
        return replace(
            self,
            start=hour,
            step=HOUR,
            power=np.where(enough, _mean(usable), np.nan),
            doubt=doubt,
            future={name: _mean(_hours(column, per_hour, before, np.nan)) for name, column in self.future.items()},
        )


def _joined(earlier: Floats | None, later: Floats | None, first: int, count: int) -> Floats:
    """Return a column of two records, the later one from interval ``first`` on, at least ``count`` long."""
    parts = [(0, earlier), (first, later)]
    ends = [begin + len(part) for begin, part in parts if part is not None]
    column = np.full(max(count, *ends), np.nan)
    for begin, part in parts:
        if part is not None:
            column[begin : begin + len(part)] = part
    return column


def usual_peak(values: Floats) -> float:
    """Return the 99 % quantile of positive values, of those that are not far above most others; 0 without any.

    A few impossible values do not move it, and one in ten of them hardly does.
    """
    positive = values[values > 0]
    if not len(positive):
        return 0.0
    most, nearly_all = np.quantile(positive, [0.9, 0.99])
    return float(np.quantile(positive[positive <= 1.5 * min(nearly_all, 2.5 * most)], 0.99))


def _hours(values: NDArray[Number], per_hour: int, before: int, fill: float) -> NDArray[Number]:
    """Return the values as (hours, intervals of an hour), the first hour with ``before`` intervals of ``fill``."""
    after = -(before + len(values)) % per_hour
    return np.pad(values, (before, after), constant_values=fill).reshape(-1, per_hour)


def _mean(rows: Floats) -> Floats:
    """Return the mean of the finite values of each row, NaN where there is none."""
    finite = np.isfinite(rows)
    count = finite.sum(axis=1)
    return np.where(count > 0, np.where(finite, rows, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)
