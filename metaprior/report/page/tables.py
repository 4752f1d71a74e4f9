"""Write tables of scores: one over all lead times, and one by lead time for every measure."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from metaprior.report.measures import Measure, Score, is_known, measure, number, score
from metaprior.report.page.html import unit_span
from metaprior.text_table import Row

SUMMARY = ("rmse", "skill_persistence", "skill_smart_persistence", "crps", "nll", "coverage_90", "width_90", "ssim")
"""Columns of the table over all lead times, as far as the scores have them."""
NOT_MEASURES = {"method", "lead_minutes", "lead", "shots", "steps", "tasks", "values", "count", "support", "failed"}


class Column(NamedTuple):
    """The scores of all methods under one heading (HTML), shown with the same number of decimals."""

    head: str
    of: Measure
    scores: Mapping[str, Score]
    digits: int

    def text(self, value: float) -> str:
        """Return the value as it is shown."""
        return self.of.text(value, self.digits)

    @property
    def best(self) -> str | None:
        """The text of the best value, so that digits that are not shown decide nothing; None if nothing is better."""
        values = _values(self.scores.values())
        if self.of.better is None or len(values) < 2:
            return None
        return self.text(min(values, key=self.of.distance))


def measures_of(rows: Sequence[Row], units: str) -> list[Measure]:
    """Return the measures of which at least one row has a number, in the order of the rows."""
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_MEASURES)
    plain = [name for name in names if not (name.endswith(("_low", "_high")) and name.rsplit("_", 1)[0] in names)]
    return [measure(name, units) for name in plain if any(is_known(number(row.get(name))) for row in rows)]


def summary_table(rows: Sequence[Row], units: str, ours: str | None) -> str | None:
    """Return methods against the main measures over all lead times, or None where there are no such rows."""
    together = [row for row in rows if row["lead_minutes"] == "all"]
    found = {one.name: one for one in measures_of(together, units)}
    shown = [found[name] for name in SUMMARY if name in found] or list(found.values())[:8]
    columns = []
    for of in shown:
        scores, head = {row["method"]: score(row, of) for row in together}, f"{escape(of.label)}{unit_span(of.unit)}"
        columns.append(Column(head, of, scores, of.digits(_values(scores.values()))))
    return _table("All lead times together", columns, ours) if columns else None


def lead_table(rows: Sequence[Row], of: Measure, ours: str | None) -> str:
    """Return methods against lead times of one measure, all with the same number of decimals."""
    leads = sorted({row["lead_minutes"] for row in rows if row["lead_minutes"] != "all"})
    if any(row["lead_minutes"] == "all" for row in rows):
        leads.append("all")
    given = {(row["method"], row["lead_minutes"]): score(row, of) for row in rows}
    methods, digits = dict.fromkeys(row["method"] for row in rows), of.digits(_values(given.values()))
    columns = []
    for lead in leads:
        scores = {method: given.get((method, lead), Score(None, None)) for method in methods}
        columns.append(Column("all" if lead == "all" else f"+{lead:g}&nbsp;min", of, scores, digits))
    return _table(f"{of.title} by lead time", columns, ours)


def _values(scores: Iterable[Score]) -> list[float]:
    return [one.value for one in scores if is_known(one.value)]


def _table(caption: str, columns: Sequence[Column], ours: str | None) -> str:
    head = "".join(f'<th scope="col">{column.head}</th>' for column in columns)
    lines = []
    for method in columns[0].scores:
        own = method == ours
        name = escape(method) + (' <span class="own">this run</span>' if own else "")
        cells = "".join(_cell(column.scores[method], column) for column in columns)
        lines.append(f'<tr{" class=ours" if own else ""}><th scope="row">{name}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f'<caption>{escape(caption)}</caption><thead><tr><th scope="col">Method</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(one: Score, column: Column) -> str:
    if one.value is None:
        return '<td class="unknown"><span title="this method has no such score">–</span></td>'
    if not is_known(one.value):
        return '<td class="unknown">unknown</td>'
    text = column.text(one.value)
    value = f'<span class="tag">best</span> <b>{text}</b>' if text == column.best else text
    interval = "<small>{} to {}</small>".format(*map(column.text, one.interval)) if one.interval else ""
    return f"<td>{value}{interval}</td>"
