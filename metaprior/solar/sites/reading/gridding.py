"""The entries of one plant on a regular grid: duplicates, cadence, begin or end of intervals, means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.findings import NO_ROWS, Rows
from metaprior.solar.sites.plant import HOUR, Floats
from metaprior.solar.sites.reading.stamps import DAY, Grid, Seconds, find_grid

STRAY = 730 * DAY
"""Entries that are separated from the others by a longer gap have a wrong date."""


class Tell(Protocol):
    """Tells the user something about one plant."""

    def __call__(self, kind: str, message: str, rows: Rows = NO_ROWS, count: int = 0) -> None:
        """Add a finding."""


LATEST_CHANGE = 4 * HOUR
"""Time of day before which clocks are set back."""
MOSTLY = 0.4
"""Share of rows with conflicting stamps from which a table is taken for one of several plants."""


@dataclass(frozen=True)
class Entries:
    """Entries of one plant, sorted by time: row of the table, seconds of UTC and of the clock, power, other columns."""

    row: Rows
    utc: Seconds
    clock: Seconds
    power: Floats
    known: Mapping[str, Floats]

    def __getitem__(self, which: NDArray[np.bool_] | slice) -> "Entries":
        known = {name: values[which] for name, values in self.known.items()}
        return Entries(self.row[which], self.utc[which], self.clock[which], self.power[which], known)


@dataclass(frozen=True)
class Gridded:
    """Means on a grid.

    Args:
        start: Seconds of UTC at the begin of the first interval.
        step: Length of an interval in seconds.
        power: Mean of the entries of each interval, NaN without any, (T,).
        conflict: Intervals with entries of the same stamp that differ, (T,).
        row: Row of the table of the first entry of each interval, -1 without any, (T,).
        known: Means of the other columns, at least T long.
        stamp: Whether stamps are at the "begin" or at the "end" of their intervals.
    """

    start: int
    step: int
    power: Floats
    conflict: NDArray[np.bool_]
    row: Rows
    known: Mapping[str, Floats]
    stamp: Literal["begin", "end"]


def on_grid(entries: Entries, stamps: str, tell: Tell) -> Gridded:
    """Return the means of the entries of a plant on a regular grid.

    Args:
        entries: At least one entry.
        stamps: "begin", "end" or "auto".
        tell: Called with everything that the user should know.
    """
    entries = _without_strays(entries, tell)
    differing = _duplicates(entries, tell)
    new = np.diff(entries.utc, prepend=entries.utc[0] - 1) > 0
    grid = find_grid(entries.utc[new], entries.clock[new])
    end = stamps == "end" or (stamps == "auto" and _looks_like_ends(entries.clock, grid.step, tell))
    interval = grid.index(entries.utc, end=end)
    _tell_grid(grid, interval[new], tell)
    recorded = np.isfinite(entries.power)
    first = int(interval[recorded][0]) if recorded.any() else int(interval[0])
    interval = interval - first
    count = int(interval[recorded][-1]) + 1 if recorded.any() else 0
    after = interval >= count
    if after.any():
        told = "without power after the last power" + (" are the future" if entries.known else "")
        tell(
            "future rows",
            f"{after.sum()} rows {told}",
            entries.row[after] if not entries.known else NO_ROWS,
            int(after.sum()),
        )
    total = max(count, int(interval[-1]) + 1) if entries.known else count
    row = np.full(count, -1)
    inside = (interval >= 0) & (interval < count)
    row[interval[inside][::-1]] = entries.row[inside][::-1]
    conflict = np.zeros(count, bool)
    conflict[interval[differing & inside]] = True
    return Gridded(
        int(first * grid.step + grid.anchor),
        grid.step,
        _means(interval, entries.power, count),
        conflict,
        row,
        {name: _means(interval, values, total) for name, values in entries.known.items()},
        "end" if end else "begin",
    )


def _means(interval: Seconds, values: Floats, count: int) -> Floats:
    """Return the mean of the finite values of each interval, NaN without any."""
    use = np.isfinite(values) & (interval >= 0) & (interval < count)
    number = np.bincount(interval[use], minlength=count)
    total = np.bincount(interval[use], values[use], minlength=count)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _without_strays(entries: Entries, tell: Tell) -> Entries:
    """Return the longest part of a record that no gap of years interrupts."""
    part = np.cumsum(np.diff(entries.utc, prepend=entries.utc[0]) > STRAY)
    if part[-1] == 0:
        return entries
    keep = part == np.bincount(part).argmax()
    told = f"{(~keep).sum()} rows are more than two years away from the others and were left out"
    tell("stray date", told, entries.row[~keep])
    return entries[keep]


def _duplicates(entries: Entries, tell: Tell) -> NDArray[np.bool_]:
    """Return which entries have the stamp of another one and another power, and tell of all that have its stamp."""
    again = np.diff(entries.utc, prepend=entries.utc[0] - 1) == 0
    if not again.any():
        return np.zeros(len(again), bool)
    starts = np.flatnonzero(~again)
    low = np.fmin.reduceat(entries.power, starts)
    high = np.fmax.reduceat(entries.power, starts)
    differ = np.repeat(low < high, np.diff(np.append(starts, len(again))))
    if (again & ~differ).any():
        same = again & ~differ
        tell("duplicate", f"{same.sum()} rows repeat a stamp and its power; each is used once", entries.row[same])
    if differ.any():
        told = f"{differ.sum()} rows have stamps that occur several times with different power"
        tell("conflict", told, entries.row[differ])
        if differ.mean() > MOSTLY:
            raise ValueError(
                f"stamps of one plant must differ, got {differ.sum():,} of {len(differ):,} rows with another's stamp. "
                "Try columns={'site': '...'} to name the column that tells plants apart, or call it 'site'."
            )
    return np.asarray(differ)


def hour_that_occurs_twice(entries: Entries, step: int) -> np.datetime64 | None:
    """Return the first stamp of a single hour of the night whose stamps all occur twice, or None.

    So do those of a clock that is set back at the end of daylight-saving time, on tables without zones.
    """
    again = np.unique(entries.clock[1:][np.diff(entries.clock) == 0])
    whole = len(again) * step == HOUR and again[-1] - again[0] == HOUR - step
    return again[0].astype("datetime64[s]") if whole and again[0] % DAY < LATEST_CHANGE else None


def _looks_like_ends(clock: Seconds, step: int, tell: Tell) -> bool:
    """Return whether a record goes from one step after a midnight to a midnight, as stamps of ends do."""
    ends = bool(clock[0] % DAY == step and clock[-1] % DAY == 0 and clock[-1] - clock[0] >= DAY - step)
    if ends:
        tell("stamps", "stamps are ends of intervals, as the first is one step after midnight and the last at midnight")
    else:
        tell("stamps assumed", "stamps are taken as the begins of intervals")
    return ends


def _tell_grid(grid: Grid, interval: Seconds, tell: Tell) -> None:
    length = {60: "1 minute", 3600: "1 hour"}.get(grid.step, f"{grid.step // 60} minutes")
    shared = len(interval) - len(np.unique(interval))
    tell("cadence", f"intervals of {length}")
    if not grid.regular or shared:
        tell("irregular", f"stamps are irregular and were averaged over intervals of {length}", NO_ROWS, max(shared, 1))
    elif grid.phase and 2 * grid.phase == grid.step:
        tell("centre", "stamps are the centres of intervals")
    elif grid.phase:
        tell(
            "phase",
            f"stamps lie {grid.phase} seconds inside their intervals, which begin at full multiples of {length}",
        )
