"""The numbers at the top of a page: how the highlighted method does, beside the best of the others."""

from collections.abc import Sequence
from html import escape

from metaprior.solar.maps.report.page.measures import Measure, decimals, is_known, measure, number, number_text
from metaprior.solar.maps.report.page.tables import score
from metaprior.text_table import Row

HEADLINE = ("skill_persistence", "rmse", "crps", "coverage_90")


def headline(rows: Sequence[Row], units: str, ours: str) -> str:
    """A card for each main measure that ``ours`` has over all lead times; empty where it has none."""
    together = {row["method"]: row for row in rows if row["lead_minutes"] == "all"}
    own = together.pop(ours, {})
    cards = [
        _card(of, own, list(together.values()), [row for row in rows if row["method"] == ours])
        for of in (measure(name, units) for name in HEADLINE)
        if is_known(number(own.get(of.name)))
    ]
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _card(of: Measure, own: Row, others: Sequence[Row], by_lead: Sequence[Row]) -> str:
    digits = decimals([own[of.name]]) if of.digits is None else of.digits
    # The unit of a share belongs to the number; other units would crowd it.
    value = _text(of, own[of.name], digits) + (" %" if of.percent else "")
    unit = f' <span class="unit">{escape(of.unit)}</span>' if of.unit and not of.percent else ""
    lines = [_interval(of, own, digits), _by_lead(of, by_lead, digits), _best_other(of, own, others, digits)]
    notes = "".join(f"<dd>{line}</dd>" for line in lines if line)
    return f'<div><dt>{escape(of.label)}{unit}</dt><dd class="big">{value}</dd>{notes}</div>'


def _text(of: Measure, value: float, digits: int) -> str:
    return number_text(of.shown(value), digits)


def _interval(of: Measure, own: Row, digits: int) -> str:
    interval = score(own, of).interval
    return "95 % interval {} to {}".format(*(_text(of, end, digits) for end in interval)) if interval else ""


def _by_lead(of: Measure, rows: Sequence[Row], digits: int) -> str:
    """From the first to the last lead time, for measures that have no best other to be compared with."""
    if not of.name.startswith("skill_"):
        return ""
    known = {row["lead_minutes"]: row[of.name] for row in rows if is_known(number(row.get(of.name)))}
    leads = sorted(lead for lead in known if lead != "all")
    ends = [leads[0], leads[-1]] if len(leads) > 1 else []
    return ", ".join(f"{_text(of, known[lead], digits)} at +{lead:g} min" for lead in ends)


def _best_other(of: Measure, own: Row, others: Sequence[Row], digits: int) -> str:
    known = [row for row in others if is_known(number(row.get(of.name)))]
    if not known:
        return ""
    best = min(known, key=lambda row: of.distance(row[of.name]))
    text = _text(of, best[of.name], digits)
    if text == _text(of, own[of.name], digits):
        return f"To these digits the same as the best other, {escape(best['method'])}"
    verdict = "Better" if of.distance(own[of.name]) < of.distance(best[of.name]) else "Worse"
    return f"{verdict} than the best other, {escape(best['method'])}: {text}"
