"""The result of a benchmark: headline numbers, rows, settings and versions, printed as tables and written as JSON."""

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from metaprior.scores import standard_error
from metaprior.text_table import Row, finite_or_none, text_table

__all__ = ["BenchmarkResult", "Row", "mean_row", "text_table", "versions"]


def versions() -> dict[str, str]:
    """Return the versions that a number depends on."""
    packages = {name: version(name) for name in ("metaprior", "torch", "numpy")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def mean_row(name: str, values: Sequence[float] | torch.Tensor) -> Row:
    """Return the mean of some values under ``name``, and its standard error under ``name_se``."""
    numbers = torch.as_tensor(values, dtype=torch.float64)
    return {name: float(numbers.mean()), f"{name}_se": standard_error(numbers)}


@dataclass(frozen=True)
class BenchmarkResult:
    """``headline`` is what to compare between versions; ``rows`` are all measurements and what stands beside them.

    Rows with a ``part`` form one table for each part. ``settings`` holds what is to be reported beyond the benchmark's
    own settings. ``picture`` draws the rows to a PNG file.
    """

    headline: dict[str, float]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    picture: Callable[[Path], None] | None = None

    def table(self) -> str:
        """Return the rows as text, with the notes that a reader needs below them."""
        tables = []
        for part, rows in groupby(self.rows, key=lambda row: row.get("part")):
            table = text_table([{name: value for name, value in row.items() if name != "part"} for row in rows])
            tables.append(f"{part}\n{table}\n" if part else table)
        return "\n".join([*tables, *(f"- {note}" for note in self.notes)])

    def write(self, path: Path) -> list[Path]:
        """Write JSON, in which NaN becomes null, and the picture beside it; return the files written."""
        content = {
            "headline": self.headline,
            "rows": list(self.rows),
            "settings": {**self.settings, "notes": list(self.notes)},
            "versions": versions(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(finite_or_none(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        if self.picture is None:
            return [path]
        self.picture(path.with_suffix(".png"))
        return [path, path.with_suffix(".png")]
