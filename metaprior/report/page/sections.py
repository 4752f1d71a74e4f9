"""Write the sections of a page that every application has."""

from collections.abc import Collection, Mapping, Sequence
from html import escape

from metaprior.report.canvas import Pen
from metaprior.report.curves import Curves, curves_of, curves_svg, interval_curves, interval_svgs, key_svg
from metaprior.report.measures import is_known, measure
from metaprior.report.page.content import PageContent
from metaprior.report.page.headline import headline
from metaprior.report.page.html import figure, note, settings_list
from metaprior.report.page.tables import lead_table, measures_of, summary_table
from metaprior.text_table import Row

BY_LEAD = ("skill_persistence", "crps")
BY_SHOTS = ("crps", "rmse")
X_LABELS = {"lead_minutes": "lead time (minutes)", "shots": "shots (examples to adapt to)"}

Pens = Mapping[str, Pen]
Drawn = tuple[Curves, str]
"""What a figure shows, and its HTML."""


def story_section(content: PageContent) -> str:
    """Return the paragraphs of the story and the headline numbers."""
    paragraphs = [part for part in content.story.split("\n\n") if part.strip()]
    text = "".join(f"<p>{escape(part.strip())}</p>" for part in paragraphs)
    if content.ours is None:
        return text + note("No headline numbers: no method is named as the one to highlight.")
    cards = headline(content.scores, content.units, content.ours)
    return text + (cards or note(f"No headline numbers: {content.ours!r} has no scores over all lead times."))


def scores_section(content: PageContent) -> str:
    """Return the table over all lead times and one table by lead time for each measure."""
    if not content.scores:
        return note("No score tables: nothing was scored.")
    table = summary_table(content.scores, content.units, content.ours)
    summary = table or note("No table of all lead times together: no row has lead_minutes 'all'.")
    explained = (
        "<p class='caption'>Small numbers are 95 % intervals over tasks. “best” marks the best number of a column: the "
        "lowest error, the highest skill, the share nearest to the level of the interval. A dash means that the method "
        "has no such score: a forecast without a distribution has no intervals.</p>"
    )
    return summary + explained + _lead_tables(content)


def _lead_tables(content: PageContent) -> str:
    """Return a table for each measure; the script shows the chosen one, paper shows all of them."""
    measures = measures_of([row for row in content.scores if row["lead_minutes"] != "all"], content.units)
    if not measures:
        return note("No tables by lead time: only scores over all lead times were given.")
    options = "".join(f'<option value="{i}">{escape(one.title)}</option>' for i, one in enumerate(measures))
    tables = "".join(f'<div class="by-lead">{lead_table(content.scores, one, content.ours)}</div>' for one in measures)
    return (
        f'<p class="chooser"><label for="measure">By lead time</label> <select id="measure">{options}</select></p>'
        f'<div class="lead-tables">{tables}</div>'
    )


def lead_section(content: PageContent, pens: Pens) -> str:
    """Return figures of the main measures by lead time."""
    drawn = _measure_figures(content, pens, content.scores, BY_LEAD, "lead_minutes")
    missing = [measure(name).label for name in BY_LEAD if name not in drawn]
    notes = [f"No figure of {label} by lead time: no method has it for single lead times." for label in missing]
    return _figures("lead times", drawn.values(), pens, content.ours) + "".join(map(note, notes))


def reliability_section(content: PageContent, pens: Pens) -> str:
    """Return figures of the observed share of targets against the level of central intervals."""
    curves = interval_curves(content.reliability)
    if not curves:
        return note("No reliability figure: no method forecasts a distribution, or no target was counted.")
    captions = (
        "Targets inside central intervals. Calibrated intervals lie on the dashed line.",
        "The same, as the distance from the dashed line. Below 0, intervals are too narrow.",
    )
    drawings = map(figure, interval_svgs(curves, pens, ours=content.ours), captions)
    return _figures("reliability", [(curves, drawing) for drawing in drawings], pens, content.ours)


def shots_section(content: PageContent, pens: Pens) -> str:
    """Return figures of the main measures by the number of shots."""
    if len({row["shots"] for row in content.learning_curve}) < 2:
        return note("No learning curve: it needs scores with at least two numbers of shots.")
    drawn = _measure_figures(content, pens, content.learning_curve, BY_SHOTS, "shots")
    if not drawn:
        return note(f"No learning curve: no row has any of {', '.join(BY_SHOTS)}.")
    return _figures("learning curve", drawn.values(), pens, content.ours)


def settings_section(content: PageContent) -> str:
    """Return the settings of the run, folded."""
    if not content.settings:
        return note("No settings: none were given.")
    return f"<details><summary>All settings of the run</summary>{settings_list(content.settings)}</details>"


def _measure_figures(
    content: PageContent, pens: Pens, rows: Sequence[Row], names: Sequence[str], against: str
) -> dict[str, Drawn]:
    """Return, by measure, the figure of the measure against lead times or shots, where there is anything to draw."""
    drawn = {}
    for of in (measure(name, content.units) for name in names):
        if curves := curves_of(rows, of, against):
            better = "Above 0, RMSE is lower than persistence's." if of.better == "higher" else "Lower is better."
            banded = any(is_known(point.low) for point in curves.get(content.ours or "", ()))
            band = f" Band: 95 % interval of {content.ours}." if banded else ""
            svg = curves_svg(curves, pens, ours=content.ours, x_label=X_LABELS[against], of=of)
            drawn[of.name] = (curves, figure(svg, f"{of.label} by {X_LABELS[against]}. {better}{band}"))
    return drawn


def _figures(name: str, drawn: Collection[Drawn], pens: Pens, ours: str | None) -> str:
    """Return figures under one key that says which line is whose."""
    methods = {method for curves, _ in drawn for method in curves}
    items = "".join(
        f"<li>{key_svg(pen, highlighted=method == ours, salt=name)}<span>{escape(method)}</span></li>"
        for method, pen in pens.items()
        if method in methods
    )
    key = f'<ul class="key" aria-label="Methods in the figures">{items}</ul>'
    return f'{key}<div class="figures">{"".join(html for _, html in drawn)}</div>' if drawn else ""
