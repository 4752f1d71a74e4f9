"""Measures of forecasts as people read them: names, units, what is better, and how many digits make sense."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeGuard

Better = Literal["lower", "higher"] | float | None
"""Lower, higher, or the number to be close to; None where neither is better by itself, as with an interval's width."""


class Measure(NamedTuple):
    """One column of a table, or one axis of a figure."""

    name: str
    label: str
    unit: str  # "" for plain numbers
    better: Better
    percent: bool = False

    @property
    def title(self) -> str:
        """With its unit, where it has one."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def shown(self, value: float) -> float:
        """In the unit of the title."""
        return 100 * value if self.percent else value

    @property
    def digits(self) -> int | None:
        """After the point, where that does not depend on the data."""
        return 1 if self.percent else 3 if self.name.startswith("skill_") else None

    def distance(self, value: float) -> float:
        """Of a value, as it was given, from the best one: smaller is better."""
        if isinstance(self.better, float):
            return abs(value - self.better)
        return -value if self.better == "higher" else value


def measure(name: str, units: str) -> Measure:
    """What is known about the measure of this name, for data in these units."""
    if name.startswith("skill_"):
        return Measure(name, f"Skill over {_words(name.removeprefix('skill_'))}", "", "higher")
    for kind, better in (("coverage_", "level"), ("width_", None)):
        level = name.removeprefix(kind)
        if name.startswith(kind) and level.isdigit():
            if better:
                return Measure(name, f"Inside {level} % interval", "%", int(level) / 100, percent=True)
            return Measure(name, f"Width of {level} % interval", units, None)
    described: dict[str, tuple[str, str, Better]] = {
        "rmse": ("RMSE", units, "lower"),
        "mae": ("MAE", units, "lower"),
        "bias": ("Bias", units, 0.0),
        "ssim": ("SSIM", "", "higher"),
        "crps": ("CRPS", units, "lower"),
        "nll": ("NLL", "nats per value", "lower"),
        "spread": ("Spread", units, None),
        "spread_error": ("Spread / error", "", 1.0),
    }
    return Measure(name, *described.get(name, (_words(name), "", None)))


def _words(name: str) -> str:
    return name.replace("_", " ")


def number(value: Any) -> float | None:
    """A number, NaN for one that is not finite; None for what is not there."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else math.nan


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to show."""
    return value is not None and math.isfinite(value)


def decimals(values: Iterable[float]) -> int:
    """As many as show a middling value of the column to half a percent."""
    sizes = sorted(abs(value) for value in values if value)
    if not sizes:
        return 3
    return min(6, max(0, math.ceil(math.log10(200 / sizes[(len(sizes) - 1) // 2]))))


def number_text(value: float, digits: int) -> str:
    """With a real minus sign; numbers too large for the column to three digits."""
    text = f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2e}"
    negative = text.startswith("-") and float(text) != 0
    return ("−" if negative else "") + text.removeprefix("-")
