"""Days, and their division into parts that keep training, validation and test apart: whole days or, of few, hours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaprior.checks import check_integer
from metaprior.solar.maps.archives.archive import Times, time_text

ONE_DAY = np.timedelta64(1, "D")
LEAST_DAYS = 5
"""Days from which whole days are divided: one each to train, to validate and to test, and one between any two."""
PURPOSES, SHARES = ("train", "val", "test"), (0.7, 0.15, 0.15)
VALIDATION_SHARE = 0.15
"""Share of the days before ``train_before`` that validation has."""


@dataclass(frozen=True)
class Days:
    """Whole days (UTC) from ``first`` up to, but not including, ``stop``."""

    first: np.datetime64
    stop: np.datetime64

    def __post_init__(self) -> None:
        for name in ("first", "stop"):
            object.__setattr__(self, name, np.datetime64(getattr(self, name), "D"))
        if not self.first < self.stop:
            raise ValueError(f"stop must be later than first, got {self.stop} and {self.first}")

    @property
    def count(self) -> int:
        """Number of days."""
        return int((self.stop - self.first) / ONE_DAY)

    @property
    def last(self) -> np.datetime64:
        """The last day."""
        return self.stop - ONE_DAY

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"

    def select(self, times: Times, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return the starts of those windows of ``length`` frames that lie entirely within these days."""
        inside = (times[starts] >= self.first) & (times[starts + length - 1] < self.stop)
        return starts[inside]


@dataclass(frozen=True)
class Span(Days):
    """The time (UTC) from ``first`` up to, but not including, ``stop``, where there are too few whole days."""

    def __post_init__(self) -> None:
        for name in ("first", "stop"):
            object.__setattr__(self, name, np.datetime64(getattr(self, name), "s"))
        if not self.first < self.stop:
            raise ValueError(f"stop must be later than first, got {self.first} and {self.stop}")

    @property
    def count(self) -> int:
        """Number of days of which the span has a part."""
        return int((self.last.astype("datetime64[D]") - self.first.astype("datetime64[D]")) / ONE_DAY) + 1

    @property
    def last(self) -> np.datetime64:
        """The last time."""
        return self.stop - np.timedelta64(1, "s")

    def __str__(self) -> str:
        return f"{time_text(self.first)} to {time_text(self.last)}"


def divided(
    times: Times, lit: Callable[[], Times], apart: int, train_before: str | None, test_from: str | None
) -> dict[str, Days]:
    """Return the days of an archive for "train", "val" and "test"; of few days, parts of them.

    Args:
        times: Times of the frames.
        lit: Returns the times of those in daylight, which are divided where there are few days.
        apart: See ``divide_times``.
        train_before, test_from: See ``divide_days``.
    """
    days, dates = all_days(times), (train_before, test_from)
    return divide_times(lit(), apart, *dates) if has_few_days(days, *dates) else divide_days(days, *dates)


def divide_days(days: Days, train_before: str | None, test_from: str | None) -> dict[str, Days]:
    """Return the days for "train", "val" and "test", with at least one day between any two.

    Without dates the shares are 70, 15 and 15 %. Otherwise ``train_before`` ends training and validation, which has the
    last VALIDATION_SHARE of those days, and ``test_from`` begins testing; either date follows from the other.
    """
    if train_before is None and test_from is None:
        return dict(zip(PURPOSES, split_days(days), strict=True))
    stop, start = _dates(days, train_before, test_from)
    train, val = split_days(Days(days.first, stop), (1 - VALIDATION_SHARE, VALIDATION_SHARE))
    return {"train": train, "val": val, "test": Days(start, days.stop)}


def divide_times(
    times: Times, apart: int, train_before: str | None = None, test_from: str | None = None
) -> dict[str, Days]:
    """Return parts of a few days for "train", "val" and "test", as ``divide_days`` does of many days.

    Args:
        times: Times of the frames in daylight, increasing.
        apart: Number of them between two parts that belong to neither: as long as a window or longer, so that no two
            windows of different parts share a frame or follow each other.
        train_before: Day that ends training and validation.
        test_from: Day that begins testing.
    """
    if train_before is None and test_from is None:
        return dict(zip(PURPOSES, split_times(times, SHARES, apart), strict=True))
    days = all_days(times)
    stop, start = _dates(days, train_before, test_from)
    before = times[times < stop]
    train, val = split_times(before, (1 - VALIDATION_SHARE, VALIDATION_SHARE), apart)
    return {"train": train, "val": val, "test": Days(start, days.stop)}


def has_few_days(days: Days, train_before: str | None = None, test_from: str | None = None) -> bool:
    """Return whether there are too few whole days to divide them."""
    if train_before is None and test_from is None:
        return days.count < LEAST_DAYS
    stop, _ = _dates(days, train_before, test_from)
    return int((stop - days.first) / ONE_DAY) < LEAST_DAYS - 2


def _dates(days: Days, train_before: str | None, test_from: str | None) -> tuple[np.datetime64, np.datetime64]:
    """Return the day that ends training and the one that begins testing, of which one or both are given."""
    stop = np.datetime64(train_before) if train_before else np.datetime64(test_from, "D") - ONE_DAY
    start = np.datetime64(test_from) if test_from else stop + ONE_DAY
    if not (days.first < stop and start < days.stop):
        raise ValueError(
            f"train_before {stop} and test_from {start} leave nothing to train on or nothing to test on: the frames "
            f"are of {days}"
        )
    return stop, start


def all_days(times: Times) -> Days:
    """Return the days from that of the first frame to that of the last."""
    return Days(times[0], times[-1].astype("datetime64[D]") + ONE_DAY)


def split_times(times: Times, shares: Sequence[float] = SHARES, apart: int = 8) -> tuple[Span, ...]:
    """Divide increasing times into consecutive spans, with ``apart`` of them between two that belong to none.

    It is for archives of less than five days, which ``split_days`` cannot divide. Take the times of frames in daylight,
    and windows of at most ``apart`` frames.
    """
    check_integer("apart", apart, 1)
    if min(shares) <= 0:
        raise ValueError(f"shares must be positive, got {tuple(shares)}")
    usable = len(times) - apart * (len(shares) - 1)
    if usable < len(shares):
        raise ValueError(
            f"{len(shares)} parts with {apart} frames between need at least {len(shares) + apart * (len(shares) - 1)} "
            f"frames in daylight, got {len(times)}. Use shorter windows or a longer archive"
        )
    lengths = np.diff([0, *_ends(usable, shares)])
    stops = np.cumsum(lengths) + apart * np.arange(len(shares))
    firsts, lasts = times[stops - lengths], times[stops - 1].astype("datetime64[s]")
    return tuple(Span(first, last + np.timedelta64(1, "s")) for first, last in zip(firsts, lasts, strict=True))


def _ends(count: int, shares: Sequence[float]) -> NDArray[np.int64]:
    """Return where parts of so many things end that have these shares, and at least one thing each."""
    spare = count - len(shares)
    ends: NDArray[np.int64] = np.round(np.cumsum(shares) / np.sum(shares) * spare).astype(int)
    return ends + np.arange(1, len(shares) + 1)


def split_days(days: Days, shares: Sequence[float] = SHARES, gap: int = 1) -> tuple[Days, ...]:
    """Divide days into consecutive parts, separated by ``gap`` days that belong to none.

    Every part has at least one day; the last part ends with the last day.
    """
    if not isinstance(days, Days):
        raise TypeError(f"days must be Days, got {type(days).__name__}. Try split_days(all_days(times)).")
    check_integer("gap", gap, 1)  # without a gap, windows of two parts could be adjacent
    if min(shares) <= 0:
        raise ValueError(f"shares must be positive, got {tuple(shares)}")
    usable = days.count - gap * (len(shares) - 1)
    if usable < len(shares):
        raise ValueError(
            f"{len(shares)} parts with {gap} days between need at least {len(shares) + gap * (len(shares) - 1)} days, "
            f"got {days.count} ({days}). Try split_times(times), which divides fewer days by hours"
        )
    parts, first = [], days.first
    for length in np.diff([0, *_ends(usable, shares)]):
        parts.append(Days(first, first + length * ONE_DAY))
        first = parts[-1].stop + gap * ONE_DAY
    return tuple(parts)
