"""``metaprior report``: the page of a run on maps, from the files of its folder alone.

It has a story, scores, and a section in which maps can be explored.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from metaprior.report.page.content import PageContent, Section
from metaprior.report.page.writing import file_text, render, write_page
from metaprior.runs.folder import RunFolder
from metaprior.solar.maps.days import ONE_DAY, Days
from metaprior.solar.maps.report.embedding import Kind, colour_table, embedded
from metaprior.solar.maps.report.example import ExampleForecast, read_examples
from metaprior.solar.maps.report.figures import forecast_png
from metaprior.solar.maps.report.story import StoryFacts, story
from metaprior.solar.maps.run_scores import ADAPTED, PRIOR, read_scores
from metaprior.solar.maps.source import described_frames
from metaprior.solar.maps.task_settings import KINDS
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.value_units import units_text
from metaprior.text_table import Row

HERE = "metaprior.solar.maps.report"


def report_run(folder: Path, out: Path | None = None) -> Path:
    """Write the page, by default ``report.html`` in the folder, and return its path."""
    run, out = RunFolder(folder), out or folder / "report.html"
    config = run.config()
    if run.tasks_kind not in KINDS:
        raise ValueError(
            f"{run.path} is a run on tasks.kind {run.tasks_kind!r}, which has no report; runs on frames have "
            f"one ({' and '.join(KINDS)}). Its scores are in evaluation.json, its pictures in the folder"
        )
    scores, frames = read_scores(run), described_frames(run)
    patch, examples = config["tasks"]["patch"], folder / "examples.nc"
    what = f"{patch} x {patch} pixels" if patch else "whole frames"
    (first, last), (first_test, last_test) = (frames["days"][purpose] for purpose in ("train", "test"))
    failed = [f"{len(scores.failures)} tasks could not be forecast with finite numbers and are in no score."]
    notes = [f"{note[0].upper()}{note[1:]}" for note in run.notes]
    facts = StoryFacts(
        trained_on=f"{frames['long_name']} of {first} to {last}, {what} at a time",
        tested_on=f"{what} of {first_test} to {last_test}, later days of the same map",
        shots=scores.shots,
        unadapted=PRIOR,
        test_days=Days(np.datetime64(first_test), np.datetime64(last_test) + ONE_DAY).count,
        remarks=[*(failed if scores.failures else []), *notes],
    )
    content = page_content(
        title=f"{folder.resolve().name}: forecasts of {frames['long_name']}",
        ours=ADAPTED,
        scores=scores.methods,
        facts=facts,
        units=units_text(scores.units),
        learning_curve=scores.learning_curve(),
        examples=read_examples(examples) if examples.exists() else [],
        settings=dict(config),
    )
    write_page(out, content)
    return out


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
    """Return the content of a page about one method, ``ours``, beside others: ``PageContent`` describes the arguments.

    ``scores`` are of the same tasks, ``facts`` is what the story needs besides them, ``examples`` are forecasts to look
    at. Raises ValueError if ``ours``, or a method that ``facts`` names, has no scores.
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
        sections=[maps_section(examples)] if examples else [],
        settings=dict(settings or {}),
    )


def maps_section(examples: Sequence[ExampleForecast]) -> Section:
    """Return the section, with a static picture of the first of the examples for paper and browsers without scripts."""
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
