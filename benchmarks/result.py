"""What every benchmark returns: headline numbers, rows, settings and versions; as a table and as JSON."""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from metaprior.text_table import Row, known, text_table

__all__ = ["BenchResult", "Row", "text_table", "versions"]


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
        path.write_text(json.dumps(known(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
