import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaprior import checkpoint, cli
from metaprior.errors import CheckpointError, TrainingDiverged
from metaprior.runs.checkpoints import KIND, CheckpointName
from metaprior.runs.folder import RunFolderError
from metaprior.runs.learned import unfinished_note
from metaprior.runs.program import train
from tests.runs.tiny import (
    STEPS,
    PowerFailure,
    assert_readable,
    assert_same_run,
    at_step,
    fail,
    metrics,
    request,
    run,
)


def test_a_run_tells_everything(undisturbed: Path) -> None:
    lines = metrics(undisturbed)
    assert [(line["epoch"], line["step"], line["phase"]) for line in lines] == [
        (0, 3, "warm start"),
        (1, 6, "scales"),
        (2, 9, "everything"),
        (3, 12, "everything"),
        (4, 15, "everything"),
    ]
    assert lines[0]["validation"] is None
    last = lines[-1]["validation"]
    assert last["score"] == pytest.approx(last["after"]["nll"])
    assert last["before"]["shots"] == 0
    assert {"loss", "nll_query", "kl", "grad_norm_means", "grad_norm_scales", "bad_tasks"} <= lines[-1].keys()
    start = json.loads((undisturbed / "run.json").read_text())["starts"][0]
    assert start["from_step"] == 0
    assert start["versions"].keys() == {"metaprior", "torch", "python"}
    assert json.loads((undisturbed / "config.json").read_text())["meta"]["lr"] == 1e-3
    assert "[model]" in (undisturbed / "config.toml").read_text()
    assert {path.name for path in undisturbed.glob("*.png")} == {"learning_curve.png", "reliability.png"}
    assert list((undisturbed / "tensorboard").glob("events.*"))
    assert_readable(undisturbed)


def test_best_is_the_epoch_of_the_lowest_score_and_the_prior_is_its(undisturbed: Path) -> None:
    scores = {line["step"]: line["validation"]["score"] for line in metrics(undisturbed) if line["validation"]}
    tensors, description = checkpoint.read(undisturbed / "checkpoints" / "best", KIND)
    assert description["progress"]["step"] == min(scores, key=scores.__getitem__)
    assert description["progress"]["best"] == min(scores.values())
    prior, _ = checkpoint.read(undisturbed / "prior", "MetaLearner")
    assert prior["mu"].equal(tensors["theta/mu"])


@pytest.mark.parametrize("step", [0, 3, 5, 14])
def test_a_power_failure_changes_nothing(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    folder = tmp_path / "run"
    at_step(monkeypatch, step, fail)
    with pytest.raises(PowerFailure):
        run(folder)
    said = run(folder, resume=True)
    assert f"resuming from checkpoints/last, step {max(step // 2 * 2, step // 3 * 3)}" in said[0]
    assert_same_run(folder, undisturbed)
    starts = json.loads((folder / "run.json").read_text())["starts"]
    assert [start["from_step"] for start in starts] == [0, max(step // 2 * 2, step // 3 * 3)]


@pytest.mark.parametrize(
    "changes",
    [
        ("adaptation.momentum=0.5", "meta.schedule=plateau", "meta.plateau_patience=1", "meta.lr=3.0"),
        ("meta.schedule=constant", "meta.warm_start=0", "meta.kl_warmup=0.5", "meta.objective=abml"),
        ("meta.relative_sigma=0", "adaptation.kl_weight=0", "adaptation.learn_lr=no", "evaluate.every=2"),
        (
            "adaptation.engine=twice_reverse",
            "meta.objective=predictive",
            "meta.outer_samples=3",
            "meta.search_step_size=true",
        ),
        ("adaptation.kind=closed_form", "adaptation.components=2", "meta.objective=evidence"),
        ("adaptation.kind=context", "adaptation.size=4", "adaptation.reading=inputs"),
        ("adaptation.kind=context+closed_form", "adaptation.size=4"),
        ("adaptation.kind=context+descent", "adaptation.size=4", "meta.search_step_size=true"),
    ],
)
def test_settings_of_all_kinds_resume_bitwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    run(tmp_path / "undisturbed", *changes)
    for step in (7, 11):
        at_step(monkeypatch, step, fail)
        with pytest.raises(PowerFailure):
            run(tmp_path / "run", *changes, resume=step == 11)
    run(tmp_path / "run", *changes, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "undisturbed")
    progress = checkpoint.read(tmp_path / "run" / "checkpoints" / "last", KIND)[1]["progress"]
    assert (progress["plateau_factor"] < 1) == ("meta.schedule=plateau" in changes)


def test_ctrl_c_saves_where_it_is_and_says_how_to_go_on(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "run", []
    at_step(monkeypatch, 6, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        train(request(folder), said.append)
    assert said[-1] == "stopped at step 7; to go on, give the same command with --resume"
    assert checkpoint.read(folder / "checkpoints" / "last", KIND)[1]["progress"]["step"] == 7
    assert "resuming from checkpoints/last, step 7" in run(folder, resume=True)[0]
    assert_same_run(folder, undisturbed)


def test_ctrl_c_during_a_validation(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 8, lambda: os.kill(os.getpid(), signal.SIGINT))  # the last step of an epoch
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == 2  # step 9 was taken, its epoch was not ended
    run(tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


def test_an_existing_run_is_not_overwritten_and_a_finished_one_is_said_to_be(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")}
    with pytest.raises(RunFolderError, match=r"is not empty; to go on with the run in it, give --resume"):
        run(undisturbed)
    assert run(undisturbed, resume=True)[0].startswith("finished already")
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")} == before


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match="is not empty"):
        run(folder)
    with pytest.raises(RunFolderError, match="not the folder of a run"):
        run(folder, resume=True)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_another_configuration_is_refused_key_by_key(undisturbed: Path) -> None:
    with pytest.raises(RunFolderError) as refused:
        run(undisturbed, "meta.lr=0.5", "run.seed=3", "meta.epochs=9", resume=True)
    lines = str(refused.value).splitlines()
    assert lines[1:4] == [
        "  meta.epochs: the run has 4, now 9",
        "  meta.lr: the run has 0.001, now 0.5",
        "  run.seed: the run has 0, now 3",
    ]
    assert "cosine" in lines[4]


def test_more_epochs_are_allowed_where_nothing_depends_on_their_number(tmp_path: Path) -> None:
    constant = ("meta.schedule=constant", "meta.scales_first=0")
    run(tmp_path / "short", *constant, "meta.epochs=2")
    said = run(tmp_path / "short", *constant, resume=True)
    assert said[0].startswith("note: 4 epochs in place of 2")
    run(tmp_path / "long", *constant)
    assert_same_run(tmp_path / "short", tmp_path / "long")
    with pytest.raises(RunFolderError, match="the run has 4, now 2"):
        run(tmp_path / "short", *constant, "meta.epochs=2", resume=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("*.safetensors", cut),
        ("*.safetensors", flip),
        ("checkpoint.json", lambda path: path.write_text('{"format": "other"}')),
        ("checkpoint.json", lambda path: path.write_text("")),
    ],
    ids=["truncated", "changed", "foreign", "empty"],
)
def test_a_damaged_checkpoint_is_said_and_changes_nothing(
    interrupted: Path, file: str, damage: Callable[[Path], None]
) -> None:
    (path,) = (interrupted / "checkpoints" / "last").glob(file)
    damage(path)
    before = {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=r"--resume-from previous or --resume-from best"):
        run(interrupted, resume=True)
    assert {path: path.read_bytes() for path in interrupted.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("name", "step"), [("previous", 9), ("best", None)])
def test_another_checkpoint_leads_to_the_same_end(
    undisturbed: Path, interrupted: Path, name: CheckpointName, step: int | None
) -> None:
    (interrupted / "checkpoints" / "last" / "checkpoint.json").write_text("")
    said = run(interrupted, resume=True, resume_from=name)
    assert f"resuming from checkpoints/{name}, step {step or ''}" in said[0]
    assert (interrupted / "checkpoints" / "damaged-1").exists()
    assert_same_run(interrupted, undisturbed)


def test_the_note_about_an_unfinished_run_says_of_which_step_its_prior_is(copied: Path, tmp_path: Path) -> None:
    folder = copied
    assert unfinished_note(folder, "prior", "prior") is None
    lines = [{"step": step, "validation": {"best": True}} for step in (6, 9)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "finished": False, "saved": {"prior": 6}}))
    assert unfinished_note(folder, "prior", "prior") == (
        f"note: {folder} has not finished (step 9 of 15): its prior is of step 6, and the best so far is step 9; "
        "metaprior train --resume goes on"
    )
    assert unfinished_note(folder, "scores", "scores.json") is None  # which is an error where they are needed
    assert unfinished_note(tmp_path / "nowhere", "prior", "prior") is None


def test_a_run_that_was_stopped_has_a_prior_for_use(undisturbed: Path, interrupted: Path) -> None:
    best, description = checkpoint.read(interrupted / "checkpoints" / "best", KIND)
    prior, _ = checkpoint.read(interrupted / "prior", "MetaLearner")
    assert prior["mu"].equal(best["theta/mu"])
    command = ["evaluate", str(interrupted), "--shots", "0", "--tasks", "1"]
    evaluated = CliRunner().invoke(cli.app, command)
    assert evaluated.exit_code == 0
    step = description["progress"]["step"]
    assert f"has not finished (step 9 of 15): its prior is of step {step}, and the best" in evaluated.stderr
    assert "note: " not in CliRunner().invoke(cli.app, [*command[:1], str(undisturbed), *command[2:]]).stderr


def test_lost_checkpoints_are_said_and_nothing_is_begun_anew(copied: Path) -> None:
    folder = copied
    shutil.rmtree(folder / "checkpoints")
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"finished": true', '"finished": false'))
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match=r"holds no checkpoint, but the run has been at step 15"):
        run(folder, resume=True)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_the_first_bad_tasks_are_named_in_the_metrics(tmp_path: Path) -> None:
    said = run(tmp_path / "run", "adaptation.lr=1e30", "adaptation.damped=false", "meta.warm_start=0", "meta.epochs=1")
    (line,) = metrics(tmp_path / "run")
    assert (line["bad_tasks"], len(line["bad"])) == (6, 5)  # the first five are told
    assert re.match(r"sinusoid \d+: the \w+ became (inf|nan) \(inner step \d\)", line["bad"][0])
    assert any(f"bad tasks {line['bad_tasks']} (the first: {line['bad'][0]})" in text for text in said)


def test_a_checkpoint_of_another_run_is_refused(undisturbed: Path, interrupted: Path) -> None:
    last = interrupted / "checkpoints" / "last"
    tensors, description = checkpoint.read(undisturbed / "checkpoints" / "last", KIND)
    checkpoint.write(last, KIND, tensors, {**description, "config": "another digest"})
    with pytest.raises(CheckpointError, match="another configuration"):
        run(interrupted, resume=True)


@pytest.mark.parametrize("call", range(5))
def test_a_full_disk_leaves_the_last_good_checkpoint(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    folder = tmp_path / "run"
    left = [call]
    real = os.fsync

    def full(descriptor: int) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        real(descriptor)

    at_step(monkeypatch, 5, lambda: monkeypatch.setattr(os, "fsync", full))
    with pytest.raises(OSError, match="No space left on device") as caught:
        run(folder)
    assert re.search(r"step 6.*make room.*--resume", caught.value.__notes__[0])
    monkeypatch.setattr(os, "fsync", real)
    assert checkpoint.read(folder / "checkpoints" / "last", KIND)[1]["progress"]["step"] == 4
    assert not list(folder.rglob("*.tmp"))
    for entry in (folder / "checkpoints").iterdir():
        assert len(list(entry.iterdir())) in (0, 2), entry
    assert_readable(folder)
    run(folder, resume=True)
    assert_same_run(folder, undisturbed)


def test_too_many_bad_tasks_stop_the_run_and_keep_theta(tmp_path: Path) -> None:
    changes = ("adaptation.lr=1e30", "adaptation.learn_lr=no", "meta.most_bad_tasks=4", "meta.warm_start=0")
    with pytest.raises(TrainingDiverged, match="tasks in a row had no finite gradient"):
        run(tmp_path / "run", *changes)
    tensors, description = checkpoint.read(tmp_path / "run" / "checkpoints" / "last", KIND)
    first, _ = checkpoint.read(tmp_path / "run" / "checkpoints" / "previous", KIND)
    assert description["progress"]["bad_tasks"] == 4
    assert tensors["theta/mu"].equal(first["theta/mu"])


def test_patience_stops_early_and_a_resumed_run_knows(tmp_path: Path) -> None:
    changes = ("evaluate.patience=1", "meta.lr=3.0", "meta.warm_start=0", "meta.scales_first=0")
    run(tmp_path / "run", *changes)
    validations = [line["validation"] for line in metrics(tmp_path / "run")]
    assert not validations[-1]["best"]
    assert all(found["best"] for found in validations[:-1])
    assert metrics(tmp_path / "run")[-1]["step"] < STEPS - 3
    assert run(tmp_path / "run", *changes, resume=True)[0].startswith("finished already")


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again() -> None:
        with pytest.raises(RunFolderError, match="another process is training"):
            run(tmp_path / "run", resume=True)

    at_step(monkeypatch, 4, again)
    run(tmp_path / "run")


def test_metrics_beyond_the_checkpoint_are_cut_off(interrupted: Path) -> None:
    lines = metrics(interrupted)
    (interrupted / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, lines[-1]]))
    run(interrupted, resume=True)
    assert [line["step"] for line in metrics(interrupted)] == [3, 6, 9, 12, 15]
