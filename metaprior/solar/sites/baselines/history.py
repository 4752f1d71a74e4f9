r"""What a forecast without a network may read: the support days, and the last day before it is issued.

Times are counted in intervals of the record. A forecast issued at index $i$ reads intervals before $i$ alone and
forecasts intervals $i, i + 1, \dots$: lead times 1, 2, ... A day is $K$ intervals, and the slot of an interval is its
index modulo $K$.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.sun_path import SunPath
from metaprior.solar.sites.sun_position import Floats, Times, sun_of_intervals

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """The power of a plant as shares of its capacity (T,), and what is known of the future (T or more).

    ``clear`` is the clear-sky irradiance in kW m-2 if the place is known, ``base`` a base forecast as shares.
    """

    shares: Floats
    per_day: int
    clear: Floats | None = None
    base: Floats | None = None


def record_of(
    shares: Floats, times: Times, *, ahead: int = 0, sun: SunPath | None = None, base: Floats | None = None
) -> Record:
    """Return the record of a plant with the clear sky of its place, ``ahead`` intervals beyond its end.

    Args:
        shares: Mean power of intervals as shares of the capacity, NaN where it is not known, (T,).
        times: Begins of the intervals, regular, (T,).
        ahead: Number of intervals after the end that are forecast.
        sun: The place; not known if None.
        base: A base forecast as shares, (T + ahead,) or more.
    """
    step = int((times[1] - times[0]) / np.timedelta64(1, "s"))
    clear = None
    if sun is not None:
        until = times[0].astype("datetime64[s]") + np.arange(len(shares) + ahead) * np.timedelta64(step, "s")
        clear = sun_of_intervals(until, step, sun.latitude, sun.solar_offset).clear_sky / 1000.0
    return Record(np.asarray(shares, np.float64), 86400 // step, clear, base)


@dataclass(frozen=True)
class History:
    """What N forecasts may read, with L lead times, R recent intervals and D support days of K slots.

    Args:
        recent: Shares of the R intervals before the issue, oldest first, (N, R); NaN where not known.
        recent_slot: Their slots, (N, R).
        target_slot: Slots of the forecast intervals, (N, L).
        days: Shares of the support days, (1, D, K) for all forecasts or (N, D, K); NaN where not known.
        recent_clear, target_clear, days_clear: Clear-sky irradiance in kW m-2 at the same intervals, if known.
        target_base, days_base: The base forecast at the same intervals, if there is one.
    """

    recent: Floats
    recent_slot: Ints
    target_slot: Ints
    days: Floats
    recent_clear: Floats | None = None
    target_clear: Floats | None = None
    days_clear: Floats | None = None
    target_base: Floats | None = None
    days_base: Floats | None = None

    @property
    def day_count(self) -> int:
        """The number of support days."""
        return int(self.days.shape[1])

    def rows(self, which: NDArray[np.bool_]) -> Self:
        """Return the history of some of the forecasts."""
        shared = {"days", "days_clear", "days_base"}
        parts = {name: value for name, value in vars(self).items() if value is not None}
        chosen = {name: value for name, value in parts.items() if name not in shared or len(value) == len(which)}
        return replace(self, **{name: value[which] for name, value in chosen.items()})


@dataclass(frozen=True)
class Rehearsal:
    """Forecasts within the support days whose targets (N, L) are known; NaN where they are not."""

    history: History
    targets: Floats


def history_at(record: Record, issue: Ints, begin: int | Ints, days: int, leads: int) -> History:
    """Return what N forecasts may read.

    Args:
        record: The plant.
        issue: Index of the first interval that each forecast does not know, (N,).
        begin: Index at which the support days begin, for all forecasts or for each, (N,).
        days: Number of support days.
        leads: Number of lead times.

    Raises:
        ValueError: Support days begin before the record or end after an issue.
    """
    per_day = record.per_day
    first = np.atleast_1d(np.asarray(begin, np.int64))
    if (first < 0).any() or (first + days * per_day > issue).any():
        late = int(np.max(first + days * per_day - issue))
        raise ValueError(
            f"support must begin at 0 or later and end before the issue, got begins from {int(first.min())} on and "
            f"{days} days that end up to {late} intervals after the issue. Try fewer days or later issues."
        )
    before, then = issue[:, None] + np.arange(-per_day, 0), issue[:, None] + np.arange(leads)
    support = _by_day(first, days, per_day)
    clear, base = record.clear, record.base
    return History(
        recent=_at(record.shares, before),
        recent_slot=before % per_day,
        target_slot=then % per_day,
        days=record.shares[support],
        recent_clear=None if clear is None else _at(clear, before),
        target_clear=None if clear is None else _at(clear, then),
        days_clear=None if clear is None else clear[support],
        target_base=None if base is None else _at(base, then),
        days_base=None if base is None else base[support],
    )


def left_out_days(record: Record, begin: int, days: int, leads: int) -> Rehearsal:
    """Return forecasts within the support days that do not read the days of their targets.

    One forecast is issued at every interval of the support days. Recent power is read from the support days alone, and
    targets are NaN where they lie beyond them.
    """
    end = begin + days * record.per_day
    alone = np.full(end, np.nan)
    alone[begin:] = record.shares[begin:end]
    issue = np.arange(begin, end)
    then = issue[:, None] + np.arange(leads)
    support = _by_day(np.array([begin]), days, record.per_day)
    left_out = ((then[:, :, None] - begin) // record.per_day == np.arange(days)).any(1)  # N, D
    history = replace(
        history_at(replace(record, shares=alone), issue, begin, 0, leads),
        days=np.where(left_out[:, :, None], np.nan, record.shares[support]),
        days_clear=None if record.clear is None else record.clear[support],
        days_base=None if record.base is None else record.base[support],
    )
    return Rehearsal(history, _at(alone, then))


def targets_at(record: Record, issue: Ints, leads: int) -> Floats:
    """Return what forecasts issued at ``issue`` (N,) should have said, (N, L); NaN beyond the record."""
    return _at(record.shares, issue[:, None] + np.arange(leads))


def _by_day(begin: Ints, days: int, per_day: int) -> Ints:
    """Return the indices of days from ``begin`` (N,) on, (N, days, slots): column k holds those with slot k."""
    within = (np.arange(per_day) - begin[:, None]) % per_day
    return np.asarray(begin[:, None, None] + np.arange(days)[:, None] * per_day + within[:, None, :])


def _at(values: Floats, index: Ints) -> Floats:
    """Return values at indices, NaN outside of the array."""
    inside = (index >= 0) & (index < len(values))
    return np.where(inside, values[np.where(inside, index, 0)], np.nan)
