"""What was detected in a table of power, changed or left out: each finding with its rows and one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

URGENT = (
    *("not a number", "ambiguous numbers", "unit contradicted", "capacity implausible", "capacity exceeded"),
    *("zone contradicted", "noon", "clock set back", "clock", "facts unmatched"),
)
"""Kinds of findings that make a forecast wrong unless the user does something; they are told first."""
NAMED_AT_MOST = 5
NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that the user is told.

    Args:
        kind: A short name, the same for all findings of this kind.
        message: A sentence for the user.
        plant: Name of the plant; None if the finding is about the whole table.
        rows: Rows of the table that it concerns, counted from 0.
        count: Number of rows or intervals that it concerns; 0 if it is about none in particular.
    """

    kind: str
    message: str
    plant: str | None = None
    rows: Rows = field(default_factory=lambda: NO_ROWS)
    count: int = 0


class Findings:
    """Findings in the order in which they were made.

    ``first_row`` and ``row_word`` say how a user counts rows: lines of a file begin at 2, after the header, and rows of
    a data frame at 0.
    """

    def __init__(self, *, first_row: int = 0, row_word: str = "row") -> None:
        self.first_row, self.row_word = first_row, row_word
        self._entries: list[Finding] = []

    def add(self, kind: str, message: str, plant: str | None = None, rows: Rows = NO_ROWS, count: int = 0) -> None:
        """Add a finding; without ``count``, the number of rows counts."""
        rows = np.asarray(rows, np.int64)
        self._entries.append(Finding(kind, message, plant, rows, count or len(rows)))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, kind: str, plant: str | None = None) -> list[Finding]:
        """Return the findings of a kind, of one plant if ``plant`` is given."""
        return [entry for entry in self if entry.kind == kind and plant in (None, entry.plant)]

    def kinds(self) -> set[str]:
        """Return the kinds of all findings."""
        return {entry.kind for entry in self}

    def places(self, rows: Rows) -> str:
        """Return the rows in words, as in "lines 4, 8 and 17"; at most five are named."""
        if not len(rows):
            return ""
        named = [str(row + self.first_row) for row in rows[:NAMED_AT_MOST]]
        rest = len(rows) - len(named)
        ends = [f"{rest:,} more"] if rest else [named.pop()] if len(named) > 1 else []
        return f"{self.row_word}{'s' * (len(rows) > 1)} {' and '.join([', '.join(named), *ends])}"

    def lines(self) -> list[str]:
        """Return what is said with its plants and rows, what is urgent first.

        What is the same for several plants is one line.
        """
        plants: dict[str, list[str]] = {}
        for entry in sorted(self, key=lambda entry: entry.kind not in URGENT):
            told = entry.message + (f" ({self.places(entry.rows)})" if len(entry.rows) else "")
            plants.setdefault(told, []).extend([] if entry.plant is None else [entry.plant])
        return [f"{_several(names)}: {told}" if names else told for told, names in plants.items()]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _several(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= NAMED_AT_MOST else f"{names[0]} and {len(names) - 1} other plants"
