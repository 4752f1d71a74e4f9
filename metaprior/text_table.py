"""Rows of named values as text, and values as JSON."""

import math
from collections.abc import Sequence
from typing import Any, SupportsFloat

Row = dict[str, Any]


def finite_or_none(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: numbers that are not finite become None, at any depth."""
    if isinstance(value, dict):
        return {key: finite_or_none(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(count: int, thing: str) -> str:
    """Return a number of things, as 1 step or 2,000 steps."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def four_digits(value: SupportsFloat) -> str:
    """Return a number with four digits, or all before the point, in thousands: 15,780 instead of 1.578e+04."""
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def text_table(rows: Sequence[Row]) -> str:
    """Return rows as a table: columns in the order of their first mention, numbers with four digits, right-aligned."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    numeric = [all(not isinstance(row.get(column), str) for row in rows) for column in columns]

    def aligned(line: Sequence[str]) -> str:
        padded = (
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([aligned(columns), "  ".join("-" * w for w in widths), *map(aligned, cells)])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "unknown"
    return "-" if value is None else str(value)
