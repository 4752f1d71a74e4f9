"""Times in the names of files: found by their form, or read by a pattern of ``strptime``. Names are in UTC.

A name may contain several times (begin, end, creation) and digits that only look like one. So every form is tried at
every place, and the one that gives most different times at the most regular steps is taken, for all files the same.
What looks like a time zone is one if all names have the same (``..T1245+0200``); otherwise it may be another clock.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaprior.solar.maps.archives.archive import Times

YEAR = r"(?P<Y>(?:19[5-9]|20\d)\d)"
MONTH, DAY = r"(?P<m>0[1-9]|1[0-2])", r"(?P<d>0[1-9]|[12]\d|3[01])"
DAY_OF_YEAR = r"(?P<j>[0-2]\d\d|3[0-6]\d)"
HOUR, MINUTE, SECOND = r"(?P<H>[01]\d|2[0-3])", r"(?P<M>[0-5]\d)", r"(?P<S>[0-5]\d)"
DATE = rf"(?<!\d){YEAR}[-_./]?{MONTH}[-_./]?{DAY}"
HALF = r"(?:[-_ ]?(?P<p>[AaPp])[Mm](?![A-Za-z]))?"
ZONE = r"(?P<z>[+-](?:0\d|1[0-4]):?[0-5]\d(?!\d))?"
CLOCK = rf"{HOUR}(?P<mark>[-_:.h]?){MINUTE}(?:(?P=mark){SECOND}(?!\d))?{HALF}{ZONE}"
FORMS = {
    "sYYYYDDDhhmmss": re.compile(rf"(?<![a-zA-Z])s{YEAR}{DAY_OF_YEAR}{HOUR}{MINUTE}{SECOND}\d?(?!\d)"),
    "YYYYMMDDhhmm": re.compile(rf"{DATE}[-_.T /]*{CLOCK}"),
    "YYYYMMDD/hhmm": re.compile(rf"{DATE}/[^/]*?(?<!\d){CLOCK}(?!\d)"),
    "YYYYDDDhhmm": re.compile(rf"(?<!\d){YEAR}[-_.]?{DAY_OF_YEAR}[-_.T]?{HOUR}:?{MINUTE}{SECOND}?\d?(?!\d)"),
    "YYYYMMDDhh": re.compile(rf"{DATE}[-_.T /]*{HOUR}(?!\d)"),
    "YYYYMMDD": re.compile(rf"{DATE}(?!\d)"),
    "seconds since 1970": re.compile(r"(?<!\d)(?P<s>1\d{9})(?!\d)"),
    "milliseconds since 1970": re.compile(r"(?<!\d)(?P<ms>1\d{12})(?!\d)"),
}
"""Forms of times by their name; of equally good ones the first is taken."""
DIRECTIVES = {
    "%Y": r"(?P<Y>\d{4})",
    "%m": MONTH,
    "%d": DAY,
    "%j": DAY_OF_YEAR,
    "%H": HOUR,
    "%I": r"(?P<H>0[1-9]|1[0-2])",
    "%p": r"(?P<p>[AaPp])[Mm]",
    "%M": MINUTE,
    "%S": SECOND,
    "%z": r"(?P<z>[+-]\d{2}:?\d{2}|Z)",
    "%s": r"(?P<s>\d{9,11})",
    "%y": r"(?P<y>\d{2})",
    "%b": r"(?P<b>[A-Za-z]{3})",
    "%%": "%",
    "*": ".*?",
}
"""What a ``time_pattern`` may hold: directives of strptime, and * for anything."""
DATES = ({"%s"}, *({year, *day} for year in ("%Y", "%y") for day in (("%m", "%d"), ("%b", "%d"), ("%j",))))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class NameTimes(NamedTuple):
    """Times of files by their names, NaT where a name has none, and the form in which they are written."""

    times: Times
    form: str


def times_in_names(names: Sequence[str], time_pattern: str | None = None) -> NameTimes | None:
    """Return the times of names, by a pattern or in the form that fits best; None if none fits.

    Raises:
        ValueError: If the pattern is invalid.
    """
    if time_pattern is not None:
        form = pattern_of(time_pattern)
        found = [Found(None) if match is None else _found(match) for match in map(form.search, names)]
        times = _as_array([None if one.time is None else one.time - _offset(one.zone or "") for one in found])
        return None if np.isnat(times).all() else NameTimes(times, time_pattern)
    best, most = None, (0, 0)
    for label, form in FORMS.items():
        rows = [[one for match in form.finditer(name) if (one := _found(match)).time is not None] for name in names]
        for place in range(max(map(len, rows), default=0)):
            column = [row[place] if place < len(row) else Found(None) for row in rows]
            times = _as_array([one.time for one in column])
            if (quality := _quality(times)) > most:
                best, most = _in_utc(NameTimes(times, label), column), quality
    return best


class Found(NamedTuple):
    """A time in a name, None if there is none, and what follows it that looks like a time zone."""

    time: np.datetime64 | None
    zone: str | None = None


def _in_utc(found: NameTimes, column: Sequence[Found]) -> NameTimes:
    """Return times in UTC if all names state the same zone; of a single name, what follows a minus may be the end."""
    zones = {one.zone for one in column if one.time is not None}
    zone = next(iter(zones)) if len(zones) == 1 else None
    if zone is None or (zone.startswith("-") and len(column) == 1):
        return found
    return NameTimes(found.times - _offset(zone), f"{found.form}, zone {zone}")


def _offset(zone: str) -> np.timedelta64:
    """Return what a zone such as +0200 is ahead of UTC."""
    digits = re.sub(r"\D", "", zone) or "0000"
    minutes = 60 * int(digits[:2]) + int(digits[2:])
    return np.timedelta64(-minutes if zone.startswith("-") else minutes, "m")


def _found(match: re.Match[str]) -> Found:
    """Return the time that a match names, with its zone."""
    return Found(_time(match), match.groupdict().get("z"))


def pattern_of(time_pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of strptime; raises ValueError unless it names year and day."""
    parts = re.split(r"(%.|\*)", time_pattern)
    given = [part for part in parts[1::2] if part not in ("*", "%%")]
    dated = any(day <= set(given) for day in DATES)
    if not dated or len(set(given)) < len(given) or not set(given) <= DIRECTIVES.keys():
        raise ValueError(
            'time_pattern must be a pattern of strptime with year, day and clock, each once, such as "%Y%m%d_%H%M" or '
            f'"s%Y%j%H%M" (known: {", ".join(DIRECTIVES)}), got {time_pattern!r}'
        )
    return re.compile("".join(DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)))


def _time(match: re.Match[str]) -> np.datetime64 | None:
    """Return the time that a match names; None if there is none, as on the 31st of February."""
    part = {name: text for name, text in match.groupdict().items() if text is not None}
    if "s" in part or "ms" in part:
        return np.datetime64(int(part["s"]) * 1000 if "s" in part else int(part["ms"]), "ms")
    year = part["Y"] if "Y" in part else f"20{part['y']}"
    hour, minute, second = (int(part.get(name, 0)) for name in "HMS")
    if "p" in part:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (part["p"] in "pP")
    clock = np.timedelta64(3600 * hour + 60 * minute + second, "s")
    try:
        if "j" in part:
            day = np.datetime64(f"{year}-01-01", "D") + np.timedelta64(int(part["j"]) - 1, "D")
            return day + clock if str(day).startswith(year) else None
        month = part["m"] if "m" in part else f"{MONTHS.index(part['b'].lower()) + 1:02d}"
        return np.datetime64(f"{year}-{month}-{part['d']}", "D") + clock
    except ValueError:
        return None


def _as_array(times: Sequence[np.datetime64 | None]) -> Times:
    return np.array([np.datetime64("NaT") if time is None else time for time in times], "datetime64[ns]")


def _quality(times: Times) -> tuple[int, int]:
    """Return the number of different times, and how many of their steps have the most frequent length."""
    known = np.unique(times[~np.isnat(times)])
    steps = Counter(np.diff(known).tolist())
    return len(known), steps.most_common(1)[0][1] if steps else 0
