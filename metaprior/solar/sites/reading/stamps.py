"""Time stamps: parse them, place their clock in UTC, and find the grid that they lie on.

A stamp is a number of seconds of its clock since 1970; ``MISSING`` where it cannot be parsed. Clocks that are set
forward and back (daylight-saving time) have an hour that does not exist and one that occurs twice.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

Seconds = NDArray[np.int64]
Bools = NDArray[np.bool_]

MISSING = np.iinfo(np.int64).min
STEPS = (60, 120, 180, 240, 300, 360, 600, 720, 900, 1200, 1800, 3600)
"""Lengths of intervals in seconds: 1 minute to 1 hour."""

WITH_OFFSET = re.compile(r"(?:Z|[+-]\d{2}:?\d{2}|[+-]\d{2})$")
DAY = 86400
DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y")
TIMES = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "")
FORMATS = ("%Y%m%d %H%M", "%Y%m%d %H:%M", "%Y%m%d%H%M", "%Y%m%d", *(date + time for date in DATES for time in TIMES))
"""Formats beside ISO 8601."""


@dataclass(frozen=True)
class Stamps:
    """Parsed stamps.

    Args:
        clock: Seconds of the clock since 1970; ``MISSING`` where a stamp cannot be parsed.
        utc: Seconds of UTC since 1970; ``MISSING`` where a stamp does not state its offset, too.
        zone: Name of the time zone of a column that has one; for messages.
        style: How stamps were read, if not as ISO 8601.
    """

    clock: Seconds
    utc: Seconds
    zone: str | None = None
    style: str | None = None

    @property
    def aware(self) -> Bools:
        """Whether each stamp states its offset from UTC."""
        return np.asarray(self.utc != MISSING)


def parse(column: pd.Series) -> Stamps:
    """Return the stamps of a column of times, texts or numbers.

    Raises:
        ValueError: The order of day and month cannot be told from the stamps.
    """
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        index = pd.DatetimeIndex(column)
        return Stamps(_seconds(index.tz_localize(None)), _seconds(index.tz_convert("UTC")), str(column.dtype.tz))
    if pd.api.types.is_datetime64_dtype(column):
        return Stamps(_seconds(pd.DatetimeIndex(column)), np.full(len(column), MISSING))
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, texts = column.cat.codes.to_numpy(), column.cat.categories
    else:
        codes, texts = pd.factorize(column)
    if pd.api.types.is_numeric_dtype(texts) and len(texts):
        parsed = _of_numbers(np.asarray(texts, np.float64))
    else:
        parsed = _of_texts(pd.Series(np.asarray(texts, dtype=object), dtype=object).astype(str).str.strip())
    clock, utc = (np.append(seconds, MISSING)[codes] for seconds in (parsed.clock, parsed.utc))
    return Stamps(clock, utc, parsed.zone, parsed.style)


def joined(date: pd.Series, time: pd.Series) -> pd.Series:
    """Return one column of texts from a column of dates and one of times of day."""
    days = date.astype(str).str.strip().str.replace(r"\.0$|[ T]00:00(:00)?$", "", regex=True)
    hours = time.astype(str).str.strip()
    digits = hours.str.fullmatch(r"\d{1,4}(\.0)?")
    padded = hours.str.replace(r"\.0$", "", regex=True).str.zfill(4)
    hours = hours.where(~digits, padded.str[:2] + ":" + padded.str[2:])
    return days + " " + hours


def is_time_of_day(column: pd.Series) -> bool:
    """Return whether a column has times of day without dates, as in "7:30", "07:30:00" or 730."""
    if isinstance(column.dtype, pd.DatetimeTZDtype) or pd.api.types.is_datetime64_dtype(column):
        return False
    text = column.dropna().astype(str).str.strip().head(100)
    return bool(len(text)) and bool(text.str.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?|\d{1,4}(\.0)?").all())


def _seconds(index: pd.DatetimeIndex) -> Seconds:
    seconds: Seconds = index.as_unit("s").asi8.astype(np.int64)
    return seconds


def _of_numbers(values: NDArray[np.float64]) -> Stamps:
    """Return stamps from seconds or milliseconds since 1970 (which are UTC), or from numbers such as 202501311530."""
    middle = np.nanmedian(values)
    for factor, name in ((1.0, "seconds"), (1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")):
        if 6.3e8 * factor < middle < 4.2e9 * factor:  # 1990 to 2103
            whole = np.where(np.isfinite(values), np.floor(values / factor), MISSING).astype(np.int64)
            return Stamps(whole, whole, "UTC", f"{name} since 1970")
    digits = pd.Series([str(int(value)) if np.isfinite(value) else "" for value in values], dtype=object)
    return _of_texts(digits)


def _of_texts(text: pd.Series) -> Stamps:
    text = text.str.replace(r"\s*(?:UTC|GMT)$", "Z", regex=True)
    late = text.str.contains(r"[ T]24:00", regex=True)
    text = text.where(~late, text.str.replace(r"([ T])24:00", r"\g<1>00:00", regex=True))
    aware = (text.str.contains(":") & text.str.contains(WITH_OFFSET)).to_numpy(bool)
    plain = text.where(~aware, text.str.replace(WITH_OFFSET, "", regex=True))
    clock, style = _parsed(plain.where(plain.str.contains(r"\d[-/]\d", regex=True), ""), "ISO8601"), None
    if 2 * (clock == MISSING).sum() > len(clock):
        clock, style = _in_another_format(plain)
    utc = np.full(len(clock), MISSING)
    if aware.any():
        stated = pd.to_datetime(text.where(aware, ""), format="ISO8601", errors="coerce", utc=True)
        utc = _seconds(pd.DatetimeIndex(stated))
    clock, utc = (np.where(late & (seconds != MISSING), seconds + DAY, seconds) for seconds in (clock, utc))
    invalid = (clock == MISSING) | (aware & (utc == MISSING))
    return Stamps(np.where(invalid, MISSING, clock), np.where(invalid, MISSING, utc), None, style)


def _parsed(text: pd.Series, style: str) -> Seconds:
    return _seconds(pd.DatetimeIndex(pd.to_datetime(text, format=style, errors="coerce", utc=True)))


def _in_another_format(text: pd.Series) -> tuple[Seconds, str | None]:
    """Return stamps by the format that most of them have; of several, the one with the most regular steps."""
    found: dict[str, Seconds] = {}
    sample = text.iloc[:: max(1, len(text) // 2000)]
    counts = {style: int((_parsed(sample, style) != MISSING).sum()) for style in FORMATS}
    for style, count in counts.items():
        if count and count == max(counts.values()):
            found[style] = _parsed(text, style)
    if not found:
        return np.full(len(text), MISSING), None
    regular = {style: _regularity(clock) for style, clock in found.items()}
    best = [style for style in found if regular[style] == max(regular.values())]
    if len({found[style].tobytes() for style in best}) > 1:
        raise ValueError(
            f"dates must have an unambiguous order of day and month, got {text.iloc[0]!r}, which may be "
            f"{' or '.join(best)}. Try dates as 2025-12-31."
        )
    return found[best[0]], best[0]


def _regularity(clock: Seconds) -> tuple[int, int]:
    """Return how many stamps follow another by the most frequent step, and minus the time that all of them span."""
    steps = np.diff(np.sort(clock[clock != MISSING]))
    return (int(np.unique(steps, return_counts=True)[1].max()), -int(steps.sum())) if len(steps) else (0, 0)


# --- time zones -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InUTC:
    """Stamps placed in UTC.

    Args:
        seconds: Seconds of UTC since 1970; ``MISSING`` where the stamp is missing or does not exist.
        skipped: Stamps in an hour that the clock skips when it is set forward.
        repeated: Stamps in an hour that the clock shows twice when it is set back.
    """

    seconds: Seconds
    skipped: Bools
    repeated: Bools


def check_zone(zone: str) -> None:
    """Raise ValueError unless a zone is a name such as "Australia/Sydney" or an offset such as "+08:00"."""
    if _offset(zone) is None and zone not in available_timezones():
        close = difflib.get_close_matches(zone, available_timezones(), 3)
        raise ValueError(
            f'zone must be a name such as "Australia/Sydney" or an offset such as "+08:00", got {zone!r}. '
            f"Try {', '.join(close) or 'UTC'}."
        )


def _offset(zone: str) -> int | None:
    """Return the seconds of an offset such as "+08:00", "UTC+8" or "-0330", or None."""
    match = re.fullmatch(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d{2}))?", zone.strip())
    if not match:
        return 0 if zone.strip() in ("UTC", "GMT", "Z") else None
    sign, hours, minutes = match.groups()
    return (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes or 0) * 60)


def normal_zone(zone: str) -> str:
    """Return the name of a zone, or an offset in the form of +08:00."""
    offset = _offset(zone)
    return zone if offset is None else offset_text(offset)


def offset_text(seconds: int) -> str:
    """Return an offset from UTC as in +08:00; that of zero is UTC."""
    minutes = round(abs(seconds) / 60)
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "UTC"


def to_utc(clock: Seconds, group: NDArray[np.integer[Any]], zone: str) -> InUTC:
    """Return the stamps of a clock in a zone as UTC.

    A stamp in an hour that occurs twice means the first pass (daylight-saving time) when it is met first in its
    ``group``, and the second pass when it is met again.

    Args:
        clock: Seconds of the clock, in the order of the table.
        group: Number of the plant of each stamp.
        zone: Name of the zone, or offset.
    """
    nothing = np.zeros(len(clock), bool)
    valid = clock != MISSING
    offset = _offset(zone)
    if offset is not None:
        return InUTC(np.where(valid, clock - offset, MISSING), nothing, nothing)
    moments, place = np.unique(clock, return_inverse=True)
    naive = pd.DatetimeIndex(moments.astype("datetime64[s]"))
    first, second = (
        _seconds(naive.tz_localize(zone, ambiguous=np.full(len(naive), summer), nonexistent="NaT").tz_convert("UTC"))
        for summer in (True, False)
    )
    repeated = (first != second)[place] & valid
    skipped = (first == MISSING)[place] & valid
    seconds = first[place]
    rows = np.flatnonzero(repeated)
    again = pd.DataFrame({"group": group[rows], "clock": clock[rows]}).groupby(["group", "clock"]).cumcount().to_numpy()
    seconds[rows] = np.where(again > 0, second[place[rows]], seconds[rows])
    return InUTC(seconds, skipped, repeated)


# --- the grid ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """Intervals that stamps lie on.

    Args:
        step: Length of an interval in seconds.
        anchor: Seconds since a multiple of ``step`` at which intervals begin.
        phase: Seconds between the begin of an interval and the stamps, by their clock; None if they have no common one.
        regular: Whether stamps follow one another by ``step`` and have a common phase.
    """

    step: int
    anchor: int
    phase: int | None
    regular: bool

    def index(self, seconds: Seconds, *, end: bool) -> Seconds:
        """Return the number of the interval of each stamp, which is at the begin (or in) or at the end of it."""
        since = seconds - self.anchor
        return -(-since // self.step) - 1 if end else since // self.step


def find_grid(seconds: Seconds, clock: Seconds) -> Grid:
    """Return the grid of sorted, different stamps of one plant, in UTC and by their clock.

    Raises:
        ValueError: Stamps are typically more than an hour apart.
    """
    steps = np.diff(seconds)
    if not len(steps):
        return Grid(3600, int((seconds[0] - clock[0]) % 3600) if len(seconds) else 0, None, False)
    sizes, counts = np.unique(steps, return_counts=True)
    mode = int(sizes[counts.argmax()])
    typical = mode if counts.max() >= 0.5 * len(steps) else int(np.median(steps))
    if typical > 2 * STEPS[-1]:
        raise ValueError(f"stamps must be 1 minute to 1 hour apart, got {typical / 3600:.4g} hours (typically)")
    step = min(STEPS, key=lambda allowed: (abs(np.log(allowed / max(typical, 1))), allowed))
    anchor = int(np.median((seconds - clock) % step))
    phases, counts = np.unique((seconds - anchor) % step, return_counts=True)
    common = counts.max() >= 0.9 * len(seconds)
    phase = int(phases[counts.argmax()]) if common else None
    return Grid(step, anchor, phase, typical == step and common)
