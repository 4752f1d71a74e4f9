"""Write the numbers at the top of a page: the main measures of the highlighted method beside the best other one."""

from collections.abc import Sequence
from html import escape

from metaprior.report.measures import Measure, is_known, measure, number, score
from metaprior.report.page.html import unit_span
from metaprior.text_table import Row

HEADLINE = ("skill_persistence", "rmse", "crps", "coverage_90")


def headline(rows: Sequence[Row], units: str, ours: str) -> str:
    """Return a card for each main measure that ``ours`` has over all lead times, or "" if it has none."""
    together = {row["method"]: row for row in rows if row["lead_minutes"] == "all"}
    own = together.pop(ours, {})
    cards = [
        _card(of, own, list(together.values()), [row for row in rows if row["method"] == ours])
        for of in (measure(name, units) for name in HEADLINE)
        if is_known(number(own.get(of.name)))
    ]
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _card(of: Measure, own: Row, others: Sequence[Row], by_lead: Sequence[Row]) -> str:
    digits = of.digits([own[of.name]])
    # A percent sign belongs to the number; longer units would crowd it and stand behind the label.
    value = of.text(own[of.name], digits) + (" %" if of.percent else "")
    limits = [of.text(end, digits) for end in score(own, of).interval or ()]
    interval = f"95 % interval {limits[0]} to {limits[1]}" if limits else ""
    lines = [interval, _ends(of, by_lead, digits), _best_other(of, own, others, digits)]
    notes = "".join(f"<dd>{line}</dd>" for line in lines if line)
    unit = unit_span("" if of.percent else of.unit)
    return f'<div><dt>{escape(of.label)}{unit}</dt><dd class="big">{value}</dd>{notes}</div>'


def _ends(of: Measure, rows: Sequence[Row], digits: int) -> str:
    """Return a skill at the first and the last lead time; other measures are compared with the best other method."""
    if not of.name.startswith("skill_"):
        return ""
    known = {row["lead_minutes"]: row[of.name] for row in rows if is_known(number(row.get(of.name)))}
    leads = sorted(lead for lead in known if lead != "all")
    ends = [leads[0], leads[-1]] if len(leads) > 1 else []
    return ", ".join(f"{of.text(known[lead], digits)} at +{lead:g} min" for lead in ends)


def _best_other(of: Measure, own: Row, others: Sequence[Row], digits: int) -> str:
    known = [row for row in others if is_known(number(row.get(of.name)))]
    if not known:
        return ""
    best = min(known, key=lambda row: of.distance(row[of.name]))
    name, text = escape(best["method"]), of.text(best[of.name], digits)
    if text == of.text(own[of.name], digits):
        return f"Equal, as far as shown, to the best other method, {name}"
    verdict = "Better" if of.distance(own[of.name]) < of.distance(best[of.name]) else "Worse"
    return f"{verdict} than the best other method, {name}: {text}"
