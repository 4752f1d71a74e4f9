"""A solar run from configuration to report: what is in its folder, resuming, and the page."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from metaprior import cli
from metaprior.runs import finish
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.learned import learned
from metaprior.runs.program import train
from metaprior.solar.maps.archives import frame_values
from metaprior.solar.maps.comparison import of_learner
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.report.content import report_run
from metaprior.solar.maps.report.example import example_forecast, read_examples, write_examples
from metaprior.solar.maps.run_scores import ADAPTED, PRIOR, RunScores, example_forecasts, score_run
from metaprior.solar.simulator import record
from metaprior.tasks.task import Examples, Task
from tests.bars import by_label, recorded_bars
from tests.runs.tiny import PowerFailure, assert_same_run, at_step, fail
from tests.solar.maps.conftest import SolarRun
from tests.solar.maps.tiny_run import TEXT, request, run

NUMBERS_HEADING = "unseen tasks, in the network's units (clear-sky index from 0 to 1.2 as -1 to 1)"


def scores_of(folder: Path) -> RunScores:
    return RunScores.from_json(json.loads((folder / "scores.json").read_text()))


def test_the_folder_tells_units_cadence_and_days(solar_run: SolarRun) -> None:
    told = json.loads((solar_run.folder / "solar.json").read_text())
    assert told["units"] == {"kind": "clear_sky", "highest": 1.2}
    assert told["cadence"] == "30min"
    assert told["value_units"] == "W m-2"
    assert told["days"] == {
        "train": ["2025-06-01", "2025-06-01"],
        "val": ["2025-06-03", "2025-06-03"],
        "test": ["2025-06-05", "2025-06-05"],
    }


def test_every_method_is_scored_at_every_lead_time_and_the_table_says_so(solar_run: SolarRun) -> None:
    scores = scores_of(solar_run.folder)
    assert list(scores.methods) == ["persistence", "smart persistence", PRIOR, ADAPTED]
    rows = scores.methods["persistence"].rows()
    assert [row["lead"] for row in rows] == [30, 60, "all"]
    assert rows[0]["skill_persistence"] == pytest.approx(0, abs=1e-6)
    assert rows[0]["values"] == 2 * 2 * 8 * 8  # tasks, query windows, pixels
    (table,) = [text for text in solar_run.said if "smart persistence" in text]
    assert "values in W m-2" in table
    assert sum(line.startswith("adapted ") for line in table.splitlines()) == 3
    assert (solar_run.folder / "forecast.png").read_bytes().startswith(b"\x89PNG")


def test_the_two_tables_at_the_end_say_what_their_numbers_are(solar_run: SolarRun) -> None:
    by_cell, by_lead = (text.splitlines()[0] for text in solar_run.said if "crps" in text)
    assert by_cell == NUMBERS_HEADING
    assert by_lead == "lead times in minutes, values in W m-2"


def test_evaluate_says_what_its_numbers_are_too(solar_run: SolarRun) -> None:
    result = CliRunner().invoke(cli.app, ["evaluate", str(solar_run.folder)])
    assert result.exit_code == 0, result.output
    (table,) = [text for text in solar_run.said if text.startswith(NUMBERS_HEADING)]
    assert result.stdout.rstrip("\n") == table


def test_the_learning_curve_goes_from_the_prior_to_all_shots(solar_run: SolarRun) -> None:
    scores = scores_of(solar_run.folder)
    curve = scores.learning_curve()
    assert [row["shots"] for row in curve] == [0, 1, 2, 3]
    whole = {name: one.rows()[-1]["crps"] for name, one in scores.methods.items()}
    assert (curve[0]["crps"], curve[-1]["crps"]) == (whole[PRIOR], whole[ADAPTED])
    assert len({row["crps"] for row in curve}) == 4


def test_scores_are_those_of_the_forecasts(solar_run: SolarRun) -> None:
    """The first task's prior, by hand, in W/m2."""
    config, learner = learned(RunFolder(solar_run.folder))
    dataset = config.task_settings.open(progress=False).tasks("test")
    task, (window, _) = dataset[0], dataset.windows(0).query
    forecast = learner.prior_predictive().predict(task.query.x, samples=3, seed=0)
    loc, scale = dataset.reader.decoding(window)
    mean = (loc + scale * forecast.mean[0]).numpy()
    maps = example_forecast(dataset, 0, of_learner(learner, adapted=False, samples=3))
    assert np.allclose(mean, maps.mean, atol=1e-3)
    errors = [mean - dataset.reader.read(window)[2:]]
    second = dataset.windows(0).query[1]
    loc, scale = dataset.reader.decoding(second)
    errors.append((loc + scale * forecast.mean[1]).numpy() - dataset.reader.read(second)[2:])
    rows = {(row["task"], row["lead"]): row for row in scores_of(solar_run.folder).methods[PRIOR].per_task()}
    assert rows[task.name, "all"]["rmse"] == pytest.approx(math.sqrt(np.square(errors).mean()), rel=1e-5)


def test_a_task_without_finite_numbers_is_left_out_of_all_scores_and_listed(
    solar_run: SolarRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, learner = learned(RunFolder(solar_run.folder))
    real, calls = learner.adapt, []

    def adapt(support: Examples, steps: int | None = None) -> object:
        calls.append(support.size)
        if len(calls) == 3:  # after 1 and 2 shots of the first task: in the middle of it
            raise FloatingPointError("mu is not finite")
        return real(support, steps)

    monkeypatch.setattr(learner, "adapt", adapt)
    source = config.task_settings.open(progress=False)
    scores = score_run(source, config, learner)
    assert [len(one.tasks) for one in scores.methods.values()] == [1, 1, 1, 1]
    assert len(scores.failures) == 1
    assert "mu is not finite" in scores.table().splitlines()[-1]
    monkeypatch.setattr(learner, "adapt", lambda *_: fail_with("mu is not finite"))
    with pytest.raises(FloatingPointError, match="no task could be scored"):
        score_run(source, config, learner)
    assert example_forecasts(source, config, learner) == []


def fail_with(message: str) -> object:
    raise FloatingPointError(message)


def test_examples_are_a_file_that_xarray_reads_and_come_back(solar_run: SolarRun, tmp_path: Path) -> None:
    maps = read_examples(solar_run.folder / "examples.nc")
    assert len(maps) == 2
    assert maps[0].samples is not None
    assert maps[0].samples.shape == (3, 2, 8, 8)
    assert maps[0].units == "W/m²"
    with xr.open_dataset(solar_run.folder / "examples.nc") as dataset:
        assert dataset["mean"].dims == ("example", "lead_time", "y", "x")
    write_examples(tmp_path / "again.nc", maps)
    for one, other in zip(maps, read_examples(tmp_path / "again.nc"), strict=True):
        assert (one.name, one.issued, one.lead_minutes) == (other.name, other.issued, other.lead_minutes)
        for layer in ("inputs", "target", "mean", "std", "samples", "latitude", "longitude"):
            assert np.array_equal(getattr(one, layer), getattr(other, layer)), layer


def test_a_resumed_run_is_bitwise_identical(
    solar_run: SolarRun, june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "draw", lambda *_: [])
    at_step(monkeypatch, 4, fail)
    with pytest.raises(PowerFailure):
        run(tmp_path / "run", june)
    run(tmp_path / "run", june, resume=True)
    assert_same_run(solar_run.folder, tmp_path / "run")
    for name in ("scores.json", "solar.json"):
        assert (solar_run.folder / name).read_text() == (tmp_path / "run" / name).read_text()


def test_other_frames_are_refused(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(solar_run.folder, copy)
    told = json.loads((copy / "solar.json").read_text())
    (copy / "solar.json").write_text(json.dumps({**told, "frames": told["frames"] - 1}))
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**about, "finished": False}))
    with pytest.raises(RunFolderError, match=r"begun with other data:\n  frames: the run has \d+, now \d+"):
        run(copy, june, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tasks.k_query=42", "a task needs 45"),
        ("tasks.min_elevation=85", "degrees or more"),
        ("tasks.test_from=2025-06-09", "nothing to test on"),
        ("model.stochastic=nowhere", "nowhere"),
    ],
)
def test_an_invalid_configuration_leaves_no_folder(
    june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", june, change)
    assert not (tmp_path / "run").exists()
    at_step(monkeypatch, 0, fail)
    with pytest.raises(PowerFailure):  # as far as the first step
        run(tmp_path / "run", june)


@pytest.mark.parametrize("purpose", ["val", "test", "pooled"])
def test_all_sources_of_tasks_are_checked_before_anything_is_written(
    june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    wanted = request(tmp_path / "run", june)
    by_days = {days: purpose for purpose, days in wanted.config.task_settings.open(progress=False).days.items()}
    real = MetaSolarPredictionDataset.__getitem__

    def missing(self: MetaSolarPredictionDataset, index: int) -> Task:
        if purpose == ("pooled" if self.k_shot != 3 else by_days[self.days]):
            raise ValueError(f"no {purpose} tasks")
        return real(self, index)

    monkeypatch.setattr(MetaSolarPredictionDataset, "__getitem__", missing)
    with pytest.raises(ValueError, match=f"no {purpose} tasks"):
        train(wanted, lambda _: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("kind", ["frames", "simulated"])
def test_quiet_disables_all_progress_bars(
    june: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, quiet: bool
) -> None:
    bars = recorded_bars(monkeypatch, frame_values, record)
    made = '"simulated"\ndays = 5\nsize = 16\nstart = "2025-06-01"'
    opened = f'"frames"\npath = "{june}"'
    text = TEXT.replace('"frames"\npath = "june.nc"', opened if kind == "frames" else made)
    (tmp_path / "tiny.toml").write_text(text.replace("known = 2", "known = 0").replace('"clear_sky"', '"scaled"'))
    command = ["train", str(tmp_path / "tiny.toml"), "--run", str(tmp_path / "run")]
    at_step(monkeypatch, 0, fail)
    with pytest.raises(PowerFailure):
        CliRunner().invoke(cli.app, [*command, "--quiet"] if quiet else command)
    first = "checking frames" if kind == "frames" else "simulating"
    assert by_label(bars) == {first: not quiet, "range of the training days": not quiet}


def test_report_writes_a_page_with_story_scores_and_maps(solar_run: SolarRun, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["report", str(solar_run.folder), "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    assert "page.html" in result.output
    page = (tmp_path / "page.html").read_text()
    assert "2025-06-01 to 2025-06-01, 8 x 8 pixels at a time" in page
    assert "smart persistence" in page
    assert "All tasks share the weather of" in page  # the archive has few days
    titles = ["Scores", "Lead times", "Reliability", "Learning curve", "Maps", "Settings"]
    assert re.findall(r"<h2[^>]*>([^<]*)", page) == titles


def test_report_says_which_runs_have_one(solar_run: SolarRun, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"tasks": {"kind": "sinusoids"}}))
    with pytest.raises(ValueError, match=r"'sinusoids', which has no report; runs on frames have one"):
        report_run(tmp_path)
    shutil.copy(solar_run.folder / "config.json", tmp_path / "config.json")
    with pytest.raises(ValueError, match="has not finished"):
        report_run(tmp_path)


def test_a_run_that_was_not_finished_is_used_with_a_note(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    """On the error stream, in front of what is written."""
    folder = tmp_path / "run"
    shutil.copytree(solar_run.folder, folder)
    commands = {
        "scores are": ["report", str(folder), "--out", str(tmp_path / "page.html")],
        "prior is": [
            *("predict", str(folder), "--support", str(june), "--inputs", str(june), "--samples", "2"),
            *("--at", "2025-06-02T11:30", "--out", str(tmp_path / "now.nc"), "--overwrite"),
        ],
    }
    about = json.loads((folder / "run.json").read_text())
    assert about["saved"] == {"prior": 5, "scores": 5}
    for finished in (True, False):
        (folder / "run.json").write_text(json.dumps({**about, "finished": finished}))
        for what, command in commands.items():
            result = CliRunner().invoke(cli.app, command)
            assert result.exit_code == 0, result.output
            start = (
                f"note: {folder} has not finished (step 5 of 5): its {what} of step 5, and the best so far is step 5; "
            )
            expected = [] if finished else [f"{start}metaprior train --resume goes on"]
            assert [line for line in result.stderr.splitlines() if line.startswith("note: ")] == expected
            assert "note: " not in result.stdout
