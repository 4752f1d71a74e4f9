"""``metaprior report`` of a run on plants: its evaluation on unseen plants, by days of data."""

from pathlib import Path

from metaprior.report.page.content import PageContent
from metaprior.report.page.writing import write_page
from metaprior.runs.folder import RunFolder
from metaprior.text_table import Row

METHOD = "the run's prior"
MEASURES = ("rmse", "crps", "nll", "coverage_90", "coverage_50")


def report_run(folder: Path, out: Path | None = None) -> Path:
    """Write the page, by default ``report.html`` in the folder, and return its path."""
    run, out = RunFolder(folder), out or folder / "report.html"
    rows = run.read_json("evaluation.json")["rows"]
    plants = run.read_json("plants.json")
    trained, tested = (len(plants[purpose]) for purpose in ("train", "test"))
    story = (
        f"A prior over plants, learned from {trained} plants and tested on {tested} others. Scores are of light hours, "
        "leads 1 to 6 h, in shares of the capacity; a shot is a day of the new plant's data, and all scores above the "
        "learning curve are with all days that there are."
    )
    notes = [f"{note[0].upper()}{note[1:]}" for note in run.notes]
    content = PageContent(
        title=f"{folder.resolve().name}: forecasts of plants",
        story="\n\n".join([story, *notes]),
        units="share of capacity",
        ours=METHOD,
        scores=[{"lead_minutes": "all", **_measures(rows[-1])}],
        learning_curve=[{"shots": row["shots"], **_measures(row)} for row in rows if row["shots"] is not None],
        settings=dict(run.config()),
    )
    write_page(out, content)
    return out


def _measures(row: Row) -> Row:
    return {"method": METHOD, **{name: row[name] for name in MEASURES if name in row}}
