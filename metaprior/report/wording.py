"""Put comparisons and counts into words, for the story of a page."""

import math
from typing import NamedTuple

from metaprior.report.measures import is_known

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
VISIBLE = 0.0005
"""The smallest change that is not shown as 0.0 %."""
NEGLIGIBLE = 0.01
"""A change whose interval lies within this is called next to nothing."""
CLOSE = 0.02
"""Intervals whose coverage is this close to their level are called close to calibrated."""


class Change(NamedTuple):
    """A ratio minus 1 with its 95 % interval: negative is lower, NaN is unknown."""

    value: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes no change, and the change is large enough to be shown."""
        return (self.low > 0 or self.high < 0) and abs(self.value) >= VISIBLE

    @property
    def is_negligible(self) -> bool:
        """Whether the whole interval is so close to no change that it makes no difference in practice."""
        return max(abs(self.low), abs(self.high)) < NEGLIGIBLE

    def __str__(self) -> str:
        text = _relative(self.value, "the same")
        if math.isnan(self.low) or math.isnan(self.high):
            return f"{text} (a single task: no interval)"
        if self.is_significant:
            near, far = sorted((abs(self.low), abs(self.high)))
            return f"{text} ({_percent(near)} to {_percent(far)} %)"
        if max(map(abs, self)) < VISIBLE:
            return "the same to 0.1 %"
        limits = f"({_relative(self.low, '0 %')} to {_relative(self.high, '0 %')})"
        return f"{text} {limits}" if abs(self.value) < VISIBLE else f"{text}, not significantly {limits}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if abs(share) >= 0.0995 else f"{100 * share:.1f}"


def _relative(change: float, zero: str) -> str:
    if abs(change) < VISIBLE:
        return zero
    return f"{_percent(abs(change))} % {'lower' if change < 0 else 'higher'}"


def counted(count: int, what: str) -> str:
    """Return a number with its noun, such as "one window" or "40 tasks"."""
    return f"{NUMBERS[count] if count < len(NUMBERS) else count} {what}{'' if count == 1 else 's'}"


def calibration(level: float, inside: float, low: float | None, high: float | None) -> str:
    """Return a judgement of intervals from the share of targets inside and its 95 % interval, where that is known."""
    if is_known(low) and is_known(high) and low <= level <= high:
        return "consistent with calibration"
    if abs(inside - level) <= CLOSE:
        return "close to calibrated"
    return "too narrow" if inside < level else "too wide"
