"""Define what a page shows: story, scores, reliability, learning curve, settings, and sections of an application."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import NamedTuple

from metaprior.text_table import Row


class Section(NamedTuple):
    """A part of a page that an application adds; all fields but the title are inserted as they are."""

    title: str
    body: str  # HTML
    style: str = ""  # CSS
    script: str = ""  # JavaScript, run after the page is loaded
    leads: bool = False  # whether it comes before the scores


@dataclass(frozen=True, eq=False, kw_only=True)
class PageContent:
    """The content of a page; parts that are empty are left out.

    Args:
        title: The heading of the page.
        story: Plain text; an empty line separates paragraphs.
        units: The units of the data.
        ours: The method to highlight, one of those in ``scores``.
        scores: One row for each method and lead time, with ``method``, ``lead_minutes`` (a number, or ``"all"``) and
            measures by name with their 95 % intervals, ``<measure>_low`` and ``<measure>_high``. None is shown as
            absent, NaN as unknown.
        reliability: For each method, pairs of an interval's level and the observed share of targets inside.
        learning_curve: Rows as in ``scores``, with ``shots`` instead of ``lead_minutes``.
        sections: Parts of the application, shown between the learning curve and the settings, or before the scores.
        settings: Settings of the run, possibly nested.

    Raises:
        ValueError: A row lacks a key or occurs twice, or ``ours`` has no row.
    """

    title: str
    story: str
    units: str
    ours: str | None = None
    scores: Sequence[Row] = ()
    reliability: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    learning_curve: Sequence[Row] = ()
    sections: Sequence[Section] = ()
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_rows("scores", self.scores, "lead_minutes")
        _check_rows("learning_curve", self.learning_curve, "shots")
        known = list(dict.fromkeys(row["method"] for row in self.scores))
        if self.ours is not None and known and self.ours not in known:
            raise ValueError(f"ours must be a method of scores ({', '.join(known)}), got {self.ours!r}")

    @property
    def methods(self) -> list[str]:
        """All methods of all parts, the highlighted one first."""
        named = [row["method"] for row in [*self.scores, *self.learning_curve]]
        first = [] if self.ours is None else [self.ours]
        return list(dict.fromkeys([*first, *named, *self.reliability]))


def _check_rows(name: str, rows: Sequence[Row], key: str) -> None:
    """Raise unless each row has a method and a number under the key, and no two rows have the same."""
    seen: set[tuple[str, object]] = set()
    for number, row in enumerate(rows):
        if missing := [wanted for wanted in ("method", key) if wanted not in row]:
            raise ValueError(f"{name}[{number}] lacks {' and '.join(missing)}; it has {', '.join(row) or 'nothing'}")
        method, value = row["method"], row[key]
        if not isinstance(value, Real) and not (key == "lead_minutes" and value == "all"):
            allowed = 'a number or "all"' if key == "lead_minutes" else "a number"
            raise ValueError(f"{name}[{number}]: {key} must be {allowed}, got {value!r}")
        if (method, value) in seen:
            raise ValueError(f"{name}[{number}]: {method!r} has {key} {value} twice. Give one row for each.")
        seen.add((method, value))
