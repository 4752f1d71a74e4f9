"""What every benchmark returns: headline numbers, rows, settings and versions; as a table and as JSON."""

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def versions() -> dict[str, str]:
    """What a number depends on besides the settings."""
    packages = {name: version(name) for name in ("metaprior", "torch", "numpy")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


@dataclass(frozen=True)
class BenchResult:
    """``headline`` is what to compare between versions; ``rows`` say what was run and what stood beside it."""

    headline: dict[str, float]
    rows: Sequence[Row]
    settings: dict[str, Any]
    notes: Sequence[str] = ()

    def table(self) -> str:
        """The rows as text, with the notes that a reader needs under them."""
        return "\n".join([text_table(self.rows), *(f"- {note}" for note in self.notes)])

    def write(self, path: Path) -> None:
        """As JSON; a number that is not known (NaN) becomes null."""
        content = {
            "headline": self.headline,
            "rows": list(self.rows),
            "settings": {**self.settings, "notes": list(self.notes)},
            "versions": versions(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_known(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_known(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text_table(rows: Sequence[Row]) -> str:
    """Columns in the order in which the rows first name them; numbers to four digits, right-aligned."""
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
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.4g}"
