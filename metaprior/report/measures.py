"""Describe the measures of forecasts: labels, units, what is better, and how many decimals are shown."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeGuard

from metaprior.text_table import Row

Better = Literal["lower", "higher"] | float | None
"""Lower, higher, or the best value; None where no direction is better by itself, as for the width of an interval."""

DATA = "the units of the data"
"""Stands for the unit of the data in ``DESCRIBED``."""
DESCRIBED: dict[str, tuple[str, str, str, Better]] = {
    "error": ("Error rate", "share of wrong labels", "", "lower"),
    "confidence": ("Confidence", "mean confidence", "", None),
    "ece": ("ECE", "expected calibration error", "", "lower"),
    "mse": ("MSE", "mean squared error", "", "lower"),
    "rmse": ("RMSE", "root mean squared error", DATA, "lower"),
    "mae": ("MAE", "mean absolute error", DATA, "lower"),
    "bias": ("Bias", "mean error", DATA, 0.0),
    "ssim": ("SSIM", "structural similarity", "", "higher"),
    "crps": ("CRPS", "continuous ranked probability score", DATA, "lower"),
    "nll": ("NLL", "negative log density per observation", "nats per value", "lower"),
    "std": ("Std", "predicted standard deviation", DATA, None),
    "spread": ("Spread", "predicted standard deviation", DATA, None),
    "spread_error": ("Spread / error", "predicted standard deviation over RMSE", "", 1.0),
}
"""Label, description, unit and what is better, by the name of the measure.

Labels and units are those of scores by lead time, descriptions those of an evaluation of tasks: their NLL is per value
and per observation (of many values), respectively.
"""


class Measure(NamedTuple):
    """One column of a table, or one axis of a figure."""

    name: str
    label: str
    description: str
    unit: str  # "" for a number without a unit
    better: Better

    @property
    def percent(self) -> bool:
        """Whether values are shares, shown in percent."""
        return self.unit == "%"

    @property
    def title(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def shown(self, value: float) -> float:
        """Return the value in the unit of the title."""
        return 100 * value if self.percent else value

    def known(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that have a finite number of this measure."""
        return [row for row in rows if is_known(row.get(self.name))]

    def interval(self, row: Row) -> tuple[float, float] | None:
        """Return the 95 % interval in a row, ``<name>_low`` and ``<name>_high``, where both are known."""
        low, high = row.get(f"{self.name}_low"), row.get(f"{self.name}_high")
        return (low, high) if is_known(low) and is_known(high) else None

    def digits(self, rows: Iterable[Row]) -> int:
        """Return the number of decimals for the values of these rows, which are shown together."""
        if self.percent:
            return 1
        return 3 if self.name.startswith("skill_") else decimals(row[self.name] for row in self.known(rows))

    def text(self, value: float, digits: int) -> str:
        """Return the value in the unit of the title, with this number of decimals."""
        return number_text(self.shown(value), digits)

    def interval_text(self, row: Row, digits: int) -> str:
        """Return the interval in a row as text, or "" where it is unknown."""
        return " to ".join(self.text(end, digits) for end in self.interval(row) or ())

    def distance(self, value: float) -> float:
        """Return how far a value is from the best one, up to a constant: smaller is better."""
        if isinstance(self.better, float):
            return abs(value - self.better)
        return -value if self.better == "higher" else value


def measure(name: str, units: str = "") -> Measure:
    """Return the description of the measure of this name, for data in these units."""
    kind, _, which = name.partition("_")
    if kind == "skill":
        of = which.replace("_", " ")
        return Measure(name, f"Skill over {of}", f"skill over {of}", "", "higher")
    if kind == "coverage" and which.isdigit():
        inside = f"inside {which} % interval"
        return Measure(name, inside.capitalize(), f"targets {inside}", "%", int(which) / 100)
    if kind == "width" and which.isdigit():
        width = f"width of {which} % interval"
        return Measure(name, width.capitalize(), width, units, None)
    plain = name.replace("_", " ")
    label, description, unit, better = DESCRIBED.get(name, (plain, plain, "", None))
    return Measure(name, label, description, units if unit == DATA else unit, better)


def is_known(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number, which can be shown; None stands for absent, NaN for unknown."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def decimals(values: Iterable[float]) -> int:
    """Return the number of decimals, at most 6, that shows the median of the values to half a percent."""
    sizes = sorted(abs(value) for value in values if value)
    if not sizes:
        return 3
    return min(6, max(0, math.ceil(math.log10(200 / sizes[(len(sizes) - 1) // 2]))))


def number_text(value: float, digits: int) -> str:
    """Return the number with a typographic minus sign; from a million on with three significant digits."""
    text = f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2e}"
    negative = text.startswith("-") and float(text) != 0
    return ("−" if negative else "") + text.removeprefix("-")
