"""A part of the benchmark: what one problem contributes to its tables and its headline."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.common.result import Row


class Part(NamedTuple):
    """Rows, headline numbers and notes of one problem; a skipped problem has a note and nothing else."""

    rows: Sequence[Row]
    headline: dict[str, float]
    notes: Sequence[str]


def skipped(name: str, reason: Exception) -> Part:
    """Return a part without numbers, whose note says why there are none."""
    return Part([], {}, [f"{name}: skipped, {reason}"])
