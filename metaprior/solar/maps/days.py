"""Whole days, and their division into parts that keep training, validation and test apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaprior.checks import check_integer
from metaprior.solar.maps.archives.archive import Times

ONE_DAY = np.timedelta64(1, "D")
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

    def __str__(self) -> str:
        return f"{self.first} to {self.stop - ONE_DAY}"

    def select(self, times: Times, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return the starts of those windows of ``length`` frames that lie entirely within these days."""
        inside = (times[starts] >= self.first) & (times[starts + length - 1] < self.stop)
        return starts[inside]


def divide_days(days: Days, train_before: str | None, test_from: str | None) -> dict[str, Days]:
    """Return the days for "train", "val" and "test", with at least one day between any two.

    Without dates the shares are 70, 15 and 15 %. Otherwise ``train_before`` ends training and validation, which has the
    last VALIDATION_SHARE of those days, and ``test_from`` begins testing; either date follows from the other.
    """
    if train_before is None and test_from is None:
        return dict(zip(("train", "val", "test"), split_days(days), strict=True))
    stop = np.datetime64(train_before) if train_before else np.datetime64(test_from, "D") - ONE_DAY
    start = np.datetime64(test_from) if test_from else stop + ONE_DAY
    if not (days.first < stop and start < days.stop):
        raise ValueError(
            f"train_before {stop} and test_from {start} leave nothing to train on or nothing to test on: the frames "
            f"are of {days}"
        )
    train, val = split_days(Days(days.first, stop), (1 - VALIDATION_SHARE, VALIDATION_SHARE))
    return {"train": train, "val": val, "test": Days(start, days.stop)}


def all_days(times: Times) -> Days:
    """Return the days from that of the first frame to that of the last."""
    return Days(times[0], times[-1].astype("datetime64[D]") + ONE_DAY)


def split_days(days: Days, shares: Sequence[float] = (0.7, 0.15, 0.15), gap: int = 1) -> tuple[Days, ...]:
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
            f"got {days.count} ({days})"
        )
    spare = usable - len(shares)
    ends = np.round(np.cumsum(shares) / np.sum(shares) * spare).astype(int) + np.arange(1, len(shares) + 1)
    parts, first = [], days.first
    for length in np.diff([0, *ends]):
        parts.append(Days(first, first + length * ONE_DAY))
        first = parts[-1].stop + gap * ONE_DAY
    return tuple(parts)
