"""Compute the tables of a page, and the cards of the highlighted method beside the best other one."""

from collections.abc import Mapping, Sequence
from typing import Any

from metaprior.report.measures import Measure, is_known, measure
from metaprior.text_table import Row

CARDS = ("skill_persistence", "rmse", "crps", "coverage_90")
SUMMARY = ("rmse", "skill_persistence", "skill_smart_persistence", "crps", "nll", "coverage_90", "width_90", "ssim")
"""Columns of the table over all lead times, as far as the scores have them."""
NO_SCORE = "–"
NOT_MEASURES = {"method", "lead_minutes", "lead", "shots", "steps", "tasks", "values", "count", "support", "failed"}


Column = dict[str, Any]
"""``label``, ``unit`` and ``cells``: by method, the shown ``text`` and ``interval``, and whether it is ``best``."""
Card = dict[str, Any]
"""``label``, ``unit`` and ``value`` of a measure of the highlighted method, and ``lines`` that compare it."""


def summary_columns(rows: Sequence[Row], units: str) -> list[Column]:
    """Return a column for each main measure over all lead times; none where there are no such rows."""
    together = {row["method"]: row for row in rows if row["lead_minutes"] == "all"}
    found = {one.name: one for one in _measures(list(together.values()), units)}
    shown = [found[name] for name in SUMMARY if name in found] or list(found.values())[:8]
    return [_column(of.label, of.unit, of, together, of.digits(together.values())) for of in shown]


def lead_columns(rows: Sequence[Row], units: str) -> dict[str, list[Column]]:
    """Return, by the title of each measure, a column for each lead time, all with the same number of decimals."""
    leads = sorted({row["lead_minutes"] for row in rows if row["lead_minutes"] != "all"})
    columns = {lead: f"+{lead:g}\N{NO-BREAK SPACE}min" for lead in leads}
    if any(row["lead_minutes"] == "all" for row in rows):
        columns["all"] = "all"
    given = {(row["method"], row["lead_minutes"]): row for row in rows}
    by_lead = {lead: {row["method"]: given.get((row["method"], lead), {}) for row in rows} for lead in columns}
    return {
        of.title: [_column(head, "", of, by_lead[lead], of.digits(rows)) for lead, head in columns.items()]
        for of in _measures([row for row in rows if row["lead_minutes"] != "all"], units)
    }


def shot_columns(rows: Sequence[Row], name: str, units: str, labels: Mapping[int, str]) -> list[Column]:
    """Return a column of the measure ``name`` for each number of shots in ``labels``, of rows of a learning curve."""
    of, methods = measure(name, units), dict.fromkeys(row["method"] for row in rows)
    given = {(row["method"], row["shots"]): row for row in rows}
    by_shots = {shots: {method: given.get((method, shots), {}) for method in methods} for shots in labels}
    return [_column(label, of.unit, of, by_shots[shots], of.digits(rows)) for shots, label in labels.items()]


def marks(columns: Sequence[Column]) -> dict[str, bool]:
    """Return which marks occur in tables, and so are to be explained: ``intervals``, ``best`` and ``dashes``."""
    cells = [cell for column in columns for cell in column["cells"].values()]
    return {
        "intervals": any(cell["interval"] for cell in cells),
        "best": any(cell["best"] for cell in cells),
        "dashes": any(cell["text"] == NO_SCORE for cell in cells),
    }


def cards(rows: Sequence[Row], units: str, ours: str | None) -> list[Card]:
    """Return a card for each main measure that ``ours`` has over all lead times."""
    together = {row["method"]: row for row in rows if row["lead_minutes"] == "all"}
    own = together.pop(ours, {})
    by_lead = sorted((row for row in rows if row["method"] == ours and row is not own), key=lambda r: r["lead_minutes"])
    return [
        _card(of, own, of.known(together.values()), of.known(by_lead))
        for of in (measure(name, units) for name in CARDS)
        if is_known(own.get(of.name))
    ]


def _card(of: Measure, own: Row, others: Sequence[Row], by_lead: Sequence[Row]) -> Card:
    digits, value = of.digits([own]), own[of.name]
    text, interval = of.text(value, digits), of.interval_text(own, digits)
    lines = [f"95 % interval {interval}"] if interval else []
    if of.name.startswith("skill_") and len(by_lead) > 1:
        ends = (by_lead[0], by_lead[-1])
        lines.append(", ".join(f"{of.text(row[of.name], digits)} at +{row['lead_minutes']:g} min" for row in ends))
    if others:
        best = min(others, key=lambda row: of.distance(row[of.name]))
        name, shown = best["method"], of.text(best[of.name], digits)
        verdict = "Better" if of.distance(value) < of.distance(best[of.name]) else "Worse"
        equal = f"Equal, as far as shown, to the best other method, {name}"
        lines.append(equal if shown == text else f"{verdict} than the best other method, {name}: {shown}")
    # A percent sign belongs to the number; longer units would crowd it and stand behind the label.
    unit, text = ("", f"{text} %") if of.percent else (of.unit, text)
    return {"label": of.label, "unit": unit, "value": text, "lines": lines}


def _measures(rows: Sequence[Row], units: str) -> list[Measure]:
    """Return the measures of which at least one row has a number, in the order of the rows."""
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_MEASURES)
    plain = [name for name in names if not (name.endswith(("_low", "_high")) and name.rsplit("_", 1)[0] in names)]
    return [of for of in (measure(name, units) for name in plain) if of.known(rows)]


def _column(label: str, unit: str, of: Measure, rows: Mapping[str, Row], digits: int) -> Column:
    """Return the cells of the methods; what is best is decided by the digits that are shown."""
    values = {method: row.get(of.name) for method, row in rows.items()}
    known = [value for value in values.values() if is_known(value)]
    best = of.text(min(known, key=of.distance), digits) if of.better is not None and len(known) > 1 else None
    cells = {}
    for method, value in values.items():
        text = NO_SCORE if value is None else of.text(value, digits) if is_known(value) else "unknown"
        interval = of.interval_text(rows[method], digits)
        cells[method] = {"text": text, "interval": interval, "best": text == best}
    return {"label": label, "unit": unit, "cells": cells}
