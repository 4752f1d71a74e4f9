"""Score tables: one of all lead times together, and one of each lead time for every measure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from metaprior.solar.maps.report.page.measures import Measure, decimals, is_known, measure, number, number_text
from metaprior.text_table import Row

OF_ALL_LEADS = (
    "rmse",
    "skill_persistence",
    "skill_smart_persistence",
    "crps",
    "nll",
    "coverage_90",
    "width_90",
    "ssim",
)
"""Columns of the table of all lead times, in this order, where there are such measures."""
NOT_MEASURES = {"method", "lead_minutes", "lead", "shots", "steps", "tasks", "values", "count", "support", "failed"}


class Score(NamedTuple):
    """A number as it was given (None is not there, NaN is unknown) and its 95 % interval, where that is known."""

    value: float | None
    interval: tuple[float, float] | None


def score(row: Row | None, of: Measure) -> Score:
    """What the row says of this measure."""
    value, low, high = (number((row or {}).get(of.name + end)) for end in ("", "_low", "_high"))
    return Score(value, (low, high) if is_known(low) and is_known(high) else None)


def measures_of(rows: Sequence[Row], units: str) -> list[Measure]:
    """Those of which at least one row has a number, in the order of the rows."""
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_MEASURES)
    plain = [name for name in names if not (name.endswith(("_low", "_high")) and name.rsplit("_", 1)[0] in names)]
    return [measure(name, units) for name in plain if any(is_known(number(row.get(name))) for row in rows)]


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each method, in order."""
    methods: dict[str, list[Row]] = {}
    for row in rows:
        methods.setdefault(row["method"], []).append(row)
    return methods


def summary_table(rows: Sequence[Row], units: str, ours: str | None) -> str | None:
    """Methods against the main measures, over all lead times; None where there are no such rows."""
    together = [row for row in rows if row["lead_minutes"] == "all"]
    found = {one.name: one for one in measures_of(together, units)}
    columns = [found[name] for name in OF_ALL_LEADS if name in found] or list(found.values())[:8]
    if not columns:
        return None
    cells = {row["method"]: [score(row, column) for column in columns] for row in together}
    by_column = [[scores[i] for scores in cells.values()] for i in range(len(columns))]
    styles = [
        _style(scores, column, _digits(scores, column)) for scores, column in zip(by_column, columns, strict=True)
    ]
    heads = [f"{escape(one.label)}{_unit(one.unit)}" for one in columns]
    return _table("All lead times together", heads, cells, styles, ours)


def lead_table(rows: Sequence[Row], of: Measure, ours: str | None) -> str:
    """Methods against lead times, of one measure."""
    leads = sorted({row["lead_minutes"] for row in rows if row["lead_minutes"] != "all"})
    columns = [*leads, *(["all"] if any(row["lead_minutes"] == "all" for row in rows) else [])]
    given = {(row["method"], row["lead_minutes"]): row for row in rows}
    cells = {method: [score(given.get((method, lead)), of) for lead in columns] for method in by_method(rows)}
    # One number of digits for the whole table: its columns are the same quantity.
    digits = _digits([one for scores in cells.values() for one in scores], of)
    styles = [_style([scores[i] for scores in cells.values()], of, digits) for i in range(len(columns))]
    heads = ["all" if lead == "all" else f"+{lead:g}&nbsp;min" for lead in columns]
    return _table(f"{of.title} by lead time", heads, cells, styles, ours)


class Style(NamedTuple):
    """How the numbers of a column are written."""

    of: Measure
    digits: int
    best: str | None

    def text(self, value: float) -> str:
        """In the unit of the measure's title."""
        return number_text(self.of.shown(value), self.digits)


def _digits(scores: Sequence[Score], of: Measure) -> int:
    return decimals([one.value for one in scores if is_known(one.value)]) if of.digits is None else of.digits


def _style(scores: Sequence[Score], of: Measure, digits: int) -> Style:
    """The best number is marked by its text: digits that the table does not show should not decide."""
    numbers = [one.value for one in scores if is_known(one.value)]
    plain = Style(of, digits, None)
    if of.better is None or len(numbers) < 2:
        return plain
    return plain._replace(best=plain.text(min(numbers, key=of.distance)))


def _unit(unit: str) -> str:
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def _table(
    caption: str,
    heads: Sequence[str],
    cells: Mapping[str, Sequence[Score]],
    styles: Sequence[Style],
    ours: str | None,
) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    lines = []
    for method, scores in cells.items():
        own = method == ours
        name = escape(method) + (' <span class="own">this run</span>' if own else "")
        numbers = "".join(_cell(one, style) for one, style in zip(scores, styles, strict=True))
        lines.append(f'<tr{" class=ours" if own else ""}><th scope="row">{name}</th>{numbers}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f'<caption>{escape(caption)}</caption><thead><tr><th scope="col">Method</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(one: Score, style: Style) -> str:
    if one.value is None:
        return '<td class="unknown"><span title="this method does not have it">–</span></td>'
    if not is_known(one.value):
        return '<td class="unknown">unknown</td>'
    text = style.text(one.value)
    value = f'<span class="tag">best</span> <b>{text}</b>' if text == style.best else text
    interval = "<small>{} to {}</small>".format(*map(style.text, one.interval)) if one.interval else ""
    return f"<td>{value}{interval}</td>"
