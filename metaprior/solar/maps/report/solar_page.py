"""The report of a run of solar forecasts as one HTML page that needs nothing else: no network, no other file."""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from metaprior.checkpoint import write_file
from metaprior.report.canvas import Pen
from metaprior.solar.maps.report.page.content import Maps, PageContent
from metaprior.solar.maps.report.page.embedding import colour_tables, embedded
from metaprior.solar.maps.report.page.headline import headline
from metaprior.solar.maps.report.page.measures import is_known, measure, number
from metaprior.solar.maps.report.page.settings import settings_list
from metaprior.solar.maps.report.page.tables import lead_table, measures_of, summary_table
from metaprior.solar.maps.report.solar_figures import (
    Curves,
    Point,
    curves_of,
    curves_svg,
    deviation_svg,
    forecast_png,
    key_svg,
    pens_of,
    reliability_svg,
)
from metaprior.text_table import known

__all__ = ["Maps", "PageContent", "write_page"]

BY_LEAD = ("skill_persistence", "crps")
BY_SHOTS = ("crps", "rmse")


def write_page(path: Path, content: PageContent) -> None:
    """Write the page; one that is there already is replaced only when the new one is complete."""
    pens = pens_of(content.methods)
    sections = {
        "Scores": _scores(content),
        "Lead times": _by_lead(content, pens),
        "Reliability": _reliability(content, pens),
        "Learning curve": _by_shots(content, pens),
        "Maps": _maps(content),
        "Settings": _settings(content),
    }
    page = Template(_part("page.html")).substitute(
        title=escape(content.title),
        style=_part("page.css"),
        story=_story(content),
        links="".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in sections),
        sections="".join(_section(name, body) for name, body in sections.items()),
        data=_json_in_html({"colours": colour_tables(), "examples": [embedded(maps) for maps in content.maps]}),
        script=_part("page.js"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def _part(name: str) -> str:
    return files("metaprior.solar.maps.report.page").joinpath(name).read_text(encoding="utf-8")


def _json_in_html(value: object) -> str:
    """JSON that cannot end the element that holds it, and has no NaN."""
    text = json.dumps(known(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _section(name: str, body: str) -> str:
    anchor = _anchor(name)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title"><h2 id="{anchor}-title">{name}</h2>{body}</section>'
    )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _story(content: PageContent) -> str:
    paragraphs = [part for part in content.story.split("\n\n") if part.strip()]
    text = "".join(f"<p>{escape(part.strip())}</p>" for part in paragraphs)
    if content.ours is None:
        return text + _note("No headline numbers: no method is named as the one to highlight.")
    cards = headline(content.scores, content.units, content.ours)
    return text + (cards or _note(f"No headline numbers: {content.ours!r} has no scores over all lead times."))


def _scores(content: PageContent) -> str:
    if not content.scores:
        return _note("No score tables: nothing was scored.")
    table = summary_table(content.scores, content.units, content.ours)
    summary = table or _note("No table of all lead times together: no row has lead_minutes 'all'.")
    explained = (
        "<p class='caption'>Small numbers are 95 % intervals over tasks. “best” marks the best number of a column: the "
        "lowest error, the highest skill, the share nearest to an interval's level. A dash: the method has no such "
        "number, as a forecast without a distribution has no intervals.</p>"
    )
    return summary + explained + _lead_tables(content)


def _lead_tables(content: PageContent) -> str:
    """One for each measure; the script shows the chosen one, paper all of them."""
    rows = [row for row in content.scores if row["lead_minutes"] != "all"]
    measures = measures_of(rows, content.units)
    if not measures:
        return _note("No tables by lead time: only scores over all lead times were given.")
    options = "".join(f'<option value="{i}">{escape(one.title)}</option>' for i, one in enumerate(measures))
    chooser = (
        f'<p class="chooser"><label for="measure">By lead time</label> <select id="measure">{options}</select></p>'
    )
    tables = "".join(f'<div class="by-lead">{lead_table(content.scores, one, content.ours)}</div>' for one in measures)
    return f'{chooser}<div class="lead-tables">{tables}</div>'


def _key(name: str, pens: Mapping[str, Pen], methods: Sequence[str], ours: str | None) -> str:
    """Which line is whose."""
    items = "".join(
        f"<li>{key_svg(pen, highlighted=method == ours, salt=name)}<span>{escape(method)}</span></li>"
        for method, pen in pens.items()
        if method in methods
    )
    return f'<ul class="key" aria-label="Methods in the figures">{items}</ul>'


def _figure(svg: str, caption: str) -> str:
    drawing = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _figures(name: str, figures: Sequence[tuple[Curves, str]], pens: Mapping[str, Pen], ours: str | None) -> str:
    methods = [method for curves, _ in figures for method in curves]
    return _key(name, pens, methods, ours) + f'<div class="figures">{"".join(drawn for _, drawn in figures)}</div>'


def _by_lead(content: PageContent, pens: Mapping[str, Pen]) -> str:
    figures, notes = [], []
    for name in BY_LEAD:
        of = measure(name, content.units)
        curves = curves_of(content.scores, of, "lead_minutes")
        if not curves:
            notes.append(_note(f"No figure of {of.label} by lead time: no method has it for single lead times."))
            continue
        svg = curves_svg(curves, pens, ours=content.ours, x_label="lead time (minutes)", y_label=of.title)
        zero = " Above 0: a smaller RMSE than persistence." if name.startswith("skill") else " Lower is better."
        figures.append((curves, _figure(svg, f"{of.label} by lead time.{zero}{_band(curves, content.ours)}")))
    return (_figures("lead times", figures, pens, content.ours) if figures else "") + "".join(notes)


def _band(curves: Curves, ours: str | None) -> str:
    banded = any(is_known(point.low) for point in curves.get(ours or "", ()))
    return f" Band: 95 % interval of {ours}." if banded else ""


def _reliability(content: PageContent, pens: Mapping[str, Pen]) -> str:
    curves = {
        method: [Point(100 * level, 100 * share) for level, share in sorted(pairs) if is_known(number(share))]
        for method, pairs in content.reliability.items()
    }
    curves = {method: points for method, points in curves.items() if points}
    if not curves:
        return _note("No reliability figure: no method forecasts a distribution, or none was counted.")
    captions = {
        reliability_svg: "Targets inside central intervals. On the dashed line, intervals hold what they promise.",
        deviation_svg: "The same, as the distance from the dashed line. Below 0: intervals too narrow.",
    }
    figures = [(curves, _figure(draw(curves, pens, ours=content.ours), text)) for draw, text in captions.items()]
    return _figures("reliability", figures, pens, content.ours)


def _by_shots(content: PageContent, pens: Mapping[str, Pen]) -> str:
    if len({row["shots"] for row in content.learning_curve}) < 2:
        return _note("No learning curve: it needs scores with at least two numbers of shots.")
    figures = []
    for of in (measure(name, content.units) for name in BY_SHOTS):
        if curves := curves_of(content.learning_curve, of, "shots"):
            svg = curves_svg(curves, pens, ours=content.ours, x_label="shots (windows to adapt to)", y_label=of.title)
            caption = f"{of.label} by number of shots. Lower is better.{_band(curves, content.ours)}"
            figures.append((curves, _figure(svg, caption)))
    if not figures:
        return _note(f"No learning curve: no row has any of {', '.join(BY_SHOTS)}.")
    return _figures("learning curve", figures, pens, content.ours)


def _maps(content: PageContent) -> str:
    if not content.maps:
        return _note("No maps: no example forecast was given.")
    first = content.maps[0]
    picture = base64.b64encode(forecast_png(first)).decode("ascii")
    return Template(_part("maps.html")).substitute(
        picture=picture,
        caption=escape(
            f"{first.name}, issued {first.issued_text}: target, mean, uncertainty (std) and error (mean − target) "
            f"at all lead times, in {first.units}."
        ),
    )


def _settings(content: PageContent) -> str:
    if not content.settings:
        return _note("No settings: none were given.")
    return f"<details><summary>All settings of the run</summary>{settings_list(content.settings)}</details>"
