"""``metaprior report``: the page about a run on frames, made from the files of its folder alone."""

from pathlib import Path

from metaprior.report.page.writing import write_page
from metaprior.runs.folder import RunFolder
from metaprior.solar.maps.examples_file import read_examples
from metaprior.solar.maps.report.content import page_content
from metaprior.solar.maps.report.story import StoryFacts
from metaprior.solar.maps.run_scores import ADAPTED, PRIOR, read_scores
from metaprior.solar.maps.source import described_frames
from metaprior.solar.maps.task_settings import KINDS
from metaprior.solar.value_units import units_text


def report_run(folder: Path, out: Path | None = None) -> Path:
    """Write the page, by default ``report.html`` in the folder, and return its path."""
    run, out = RunFolder(folder), out or folder / "report.html"
    config = run.config()
    if config["tasks"]["kind"] not in KINDS:
        raise ValueError(
            f"{run.path} is a run on tasks.kind {config['tasks']['kind']!r}, which has no report; runs on frames have "
            f"one ({' and '.join(KINDS)}). Its scores are in evaluation.json, its pictures in the folder"
        )
    scores, frames = read_scores(run), described_frames(run)
    patch, examples = config["tasks"]["patch"], folder / "examples.nc"
    what = f"{patch} x {patch} pixels" if patch else "whole frames"
    (first, last), (first_test, last_test) = (frames["days"][purpose] for purpose in ("train", "test"))
    failed = f"{len(scores.failures)} tasks could not be forecast with finite numbers and are in no score."
    facts = StoryFacts(
        trained_on=f"{frames['long_name']} of {first} to {last}, {what} at a time",
        tested_on=f"{what} of {first_test} to {last_test}, later days of the same map",
        shots=scores.shots,
        unadapted=PRIOR,
        remarks=[failed] if scores.failures else [],
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
