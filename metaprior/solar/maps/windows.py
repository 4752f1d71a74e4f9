"""Windows of frames that follow each other without a gap, and days that keep training and test apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.datetime64]

ONE_DAY = np.timedelta64(1, "D")


class Window(NamedTuple):
    """Frames ``start`` and following, and the first row and column of the patch that is cut out of them."""

    start: int
    y: int
    x: int


def gapless_starts(times: Times, cadence: np.timedelta64, length: int) -> NDArray[np.int64]:
    """Indices of the frames from which on ``length`` frames follow each other at the cadence."""
    if length < 1:
        raise ValueError(f"a window has at least 1 frame, got {length}")
    if len(times) < length:
        return np.empty(0, np.int64)
    follows = np.diff(times) == cadence
    run = np.concatenate([[0], np.cumsum(follows)])  # frames i to j are gapless where run[j] - run[i] = j - i
    whole = run[length - 1 :] - run[: len(run) - length + 1] == length - 1
    return np.flatnonzero(whole)


@dataclass(frozen=True)
class Days:
    """Whole days (UTC) from ``first`` up to, and without, ``stop``."""

    first: np.datetime64
    stop: np.datetime64

    def __post_init__(self) -> None:
        for name in ("first", "stop"):
            object.__setattr__(self, name, np.datetime64(getattr(self, name), "D"))
        if not self.first < self.stop:
            raise ValueError(f"days run from a first one to a later one, got {self.first} and {self.stop}")

    @property
    def count(self) -> int:
        """How many."""
        return int((self.stop - self.first) / ONE_DAY)

    def __str__(self) -> str:
        return f"{self.first} to {self.stop - ONE_DAY}"

    def holds(self, times: Times, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Those of the windows whose frames are all within these days."""
        inside = (times[starts] >= self.first) & (times[starts + length - 1] < self.stop)
        return starts[inside]


def all_days(times: Times) -> Days:
    """From the first frame's day to the last one's."""
    return Days(times[0], times[-1].astype("datetime64[D]") + ONE_DAY)


def split_days(days: Days, shares: Sequence[float] = (0.7, 0.15, 0.15), gap: int = 1) -> tuple[Days, ...]:
    """Consecutive parts, with ``gap`` days between that belong to none: no frame is near to another part's.

    Every part has at least one day; the last one ends with the last day.
    """
    if gap < 1:
        raise ValueError(f"gap has to be at least 1 day, or windows of two parts could follow each other; got {gap}")
    if min(shares) <= 0:
        raise ValueError(f"shares have to be positive, got {tuple(shares)}")
    usable = days.count - gap * (len(shares) - 1)
    if usable < len(shares):
        raise ValueError(
            f"{days.count} days ({days}) are too few for {len(shares)} parts with {gap} days between; at least "
            f"{len(shares) + gap * (len(shares) - 1)} are needed"
        )
    spare = usable - len(shares)
    ends = np.round(np.cumsum(shares) / np.sum(shares) * spare).astype(int) + np.arange(1, len(shares) + 1)
    parts, first = [], days.first
    for length in np.diff([0, *ends]):
        parts.append(Days(first, first + length * ONE_DAY))
        first = parts[-1].stop + gap * ONE_DAY
    return tuple(parts)
