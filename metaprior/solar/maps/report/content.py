"""Collect the content of the page of a run on maps: story, scores, and a section in which maps can be explored."""

import base64
from collections.abc import Mapping, Sequence
from typing import get_args

from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.writing import file_text, render
from metaprior.solar.maps.report.embedding import Kind, colour_table, embedded
from metaprior.solar.maps.report.example import ExampleForecast
from metaprior.solar.maps.report.figures import forecast_png
from metaprior.solar.maps.report.story import StoryFacts, story
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.text_table import Row

HERE = "metaprior.solar.maps.report"


def page_content(
    *,
    title: str,
    ours: str,
    scores: Mapping[str, LeadTimeScores],
    facts: StoryFacts,
    units: str,
    learning_curve: Sequence[Row] = (),
    examples: Sequence[ExampleForecast] = (),
    settings: Mapping[str, object] | None = None,
) -> PageContent:
    """Return the content of a page about one method beside others.

    Args:
        title: The heading of the page.
        ours: The method that the page is about, one of those in ``scores``.
        scores: Scores of all methods, on the same tasks.
        facts: What the story needs besides the scores.
        units: The units of the frames.
        learning_curve: Rows with ``method``, ``shots`` and measures.
        examples: Forecasts to look at.
        settings: Settings of the run, possibly nested.

    Raises:
        ValueError: ``ours``, or a method that ``facts`` names, has no scores.
    """
    for what, name in (("ours", ours), ("rival", facts.rival), ("unadapted", facts.unadapted)):
        if name is not None and name not in scores:
            raise ValueError(f"{what} must be a method of scores ({', '.join(scores)}), got {name!r}")
    rows = [
        {"method": method, "lead_minutes": row["lead"], **row} for method in scores for row in scores[method].rows()
    ]
    with_spread = dict.fromkeys(row["method"] for row in rows if "coverage_90" in row)
    return PageContent(
        title=title,
        story=story(ours, scores, facts),
        units=units,
        ours=ours,
        scores=rows,
        reliability={method: scores[method].reliability() for method in with_spread},
        learning_curve=list(learning_curve),
        sections=[maps_section(examples)],
        settings=dict(settings or {}),
    )


def maps_section(examples: Sequence[ExampleForecast]) -> Section:
    """Return the section, with a static picture of the first example for paper and for browsers without scripts."""
    if not examples:
        return Section("Maps", '<p class="note">No maps: no example forecast was given.</p>')
    first = examples[0]
    caption = (
        f"{first.name}, issued {first.time_text(0)}: target, mean, uncertainty (std) and error (mean − target) "
        f"at all lead times, in {first.units}."
    )
    body = render(
        HERE,
        "maps.html",
        caption=caption,
        picture=base64.b64encode(forecast_png(first)).decode("ascii"),
        data={
            "colours": {kind: colour_table(kind) for kind in get_args(Kind)},
            "examples": [embedded(one) for one in examples],
        },
    )
    return Section("Maps", body, style=file_text(HERE, "maps.css"), script=file_text(HERE, "maps.js"))
