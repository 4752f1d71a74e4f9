"""Whole days, and their division into parts that keep training, validation and test apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import Times

ONE_DAY = np.timedelta64(1, "D")


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


def all_days(times: Times) -> Days:
    """Return the days from that of the first frame to that of the last."""
    return Days(times[0], times[-1].astype("datetime64[D]") + ONE_DAY)


def split_days(days: Days, shares: Sequence[float] = (0.7, 0.15, 0.15), gap: int = 1) -> tuple[Days, ...]:
    """Divide days into consecutive parts, separated by ``gap`` days that belong to none.

    Every part has at least one day; the last part ends with the last day.
    """
    if gap < 1:
        raise ValueError(f"gap must be at least 1 day, or windows of two parts could be adjacent; got {gap}")
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
