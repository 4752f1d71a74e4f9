"""``metaprior train`` under torchrun, with two real processes: what it ends with, and what happens when one fails."""

import json
import re
from pathlib import Path

import pytest

from metaprior import checkpoint
from metaprior.runs.checkpoints import KIND
from tests.runs.conftest import Undisturbed
from tests.runs.tiny import TEXT, assert_readable, assert_same_run, run
from tests.team.test_equality import assert_same_run_to_rounding
from tests.team.torchrun import Ended, torchrun, two_machines


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(TEXT)
    return path


def altered(what: str, config: Path, folder: Path, *options: str, restarts: int = 0) -> Ended:
    return torchrun("tests.runs.altered", what, "train", config, "--run-dir", folder, *options, restarts=restarts)


@pytest.fixture(scope="module")
def by_two(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("two") / "run"
    ended = torchrun("metaprior", "train", config, "--run-dir", folder)
    assert ended.code == 0, ended.said()
    return folder, ended


def test_two_processes_end_where_one_does_and_one_of_them_talks(
    by_two: tuple[Path, Ended], undisturbed_run: Undisturbed
) -> None:
    folder, ended = by_two
    assert_same_run_to_rounding(folder, undisturbed_run.folder)
    lines = ended.out.splitlines()
    assert lines[1] == "2 processes, 2 tasks a step"
    assert [line.split("  ")[0] for line in lines[2:7]] == [line.split("  ")[0] for line in undisturbed_run.said[1:6]]
    for line in (*lines[:7], f"done: {folder}"):
        assert lines.count(line) == 1
    assert len(list((folder / "tensorboard").glob("events.*"))) == 1
    assert json.loads((folder / "run.json").read_text())["starts"][0]["processes"] == 2
    assert_readable(folder)


@pytest.mark.slow
def test_dead_ranks_are_started_again_and_the_run_ends_as_if_nothing_had_been(
    by_two: tuple[Path, Ended], config: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    ended = altered("no_pictures,ranks_die", config, folder, restarts=2)
    assert ended.code == 0, ended.said()
    assert_same_run(folder, by_two[0])
    assert_readable(folder)
    starts = json.loads((folder / "run.json").read_text())["starts"]
    assert [start["from_step"] for start in starts] == [0, 4, 10], ended.said()
    assert "another way" not in ended.out


@pytest.mark.slow
def test_a_dead_machine_is_waited_for(by_two: tuple[Path, Ended], config: Path, tmp_path: Path) -> None:
    """Every machine counts its own restarts, and only the one whose process has died counts one."""
    folder = tmp_path / "run"
    arguments = ("no_pictures,ranks_die", "train", config, "--run-dir", folder)
    for ended in two_machines("tests.runs.altered", *arguments, restarts=3):
        assert ended.code == 0, ended.said()
    assert len(json.loads((folder / "run.json").read_text())["starts"]) > 1
    assert_same_run(folder, by_two[0])


def test_rank_0_dies_with_a_checkpoint_half_written_and_all_are_started_again(
    by_two: tuple[Path, Ended], config: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    ended = altered("no_pictures,dies_writing", config, folder, restarts=1)
    assert ended.code == 0, ended.said()
    assert len(json.loads((folder / "run.json").read_text())["starts"]) == 2
    assert "another way" not in ended.out
    assert_same_run(folder, by_two[0])
    assert_readable(folder)
    assert not list(folder.rglob("*.tmp"))


def test_ctrl_c_stops_between_two_steps_and_one_process_can_go_on(
    undisturbed: Path, config: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    ended = altered("no_pictures,ctrl_c", config, folder)
    assert ended.code != 0
    assert ended.out.splitlines()[-1] == "stopped at step 7; to go on, give the same command with --resume", (
        ended.said()
    )
    assert not ended.messages()
    assert checkpoint.read(folder / "checkpoints" / "last", KIND)[1]["progress"]["step"] == 7
    said = run(folder, resume=True)
    assert said[0] == "resuming from checkpoints/last, step 7"
    assert_same_run_to_rounding(folder, undisturbed)


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_with_resume(by_two: tuple[Path, Ended], config: Path, tmp_path: Path) -> None:
    altered("no_pictures,ctrl_c", config, tmp_path / "run")
    ended = altered("no_pictures", config, tmp_path / "run", "--resume")
    assert ended.code == 0, ended.said()
    assert_same_run(tmp_path / "run", by_two[0])


@pytest.mark.slow
def test_too_many_bad_tasks_stop_the_run_with_one_message_and_restarts_do_not_mend_it(
    config: Path, tmp_path: Path
) -> None:
    changes = ("adaptation.lr=1e30", "adaptation.learn_lr=no", "meta.most_bad_tasks=4", "meta.warm_start=0")
    options = [word for change in changes for word in ("--set", change)]
    ended = torchrun("metaprior", "train", config, "--run-dir", tmp_path / "run", *options, restarts=1)
    assert ended.code == 1
    assert len(json.loads((tmp_path / "run" / "run.json").read_text())["starts"]) == 1
    (message,) = ended.messages()
    assert message.startswith("metaprior: 4 tasks in a row had no finite gradient (step 2); the last was sinusoid 3")
    assert ended.out.count("stopped at step 2") == 1
    tensors, description = checkpoint.read(tmp_path / "run" / "checkpoints" / "last", KIND)
    first, _ = checkpoint.read(tmp_path / "run" / "checkpoints" / "previous", KIND)
    assert description["progress"]["bad_tasks"] == 4
    assert tensors["theta/mu"].equal(first["theta/mu"])


def test_ranks_that_were_told_different_things_stop_with_both_values_once(config: Path, tmp_path: Path) -> None:
    """A restart by torchrun does not mend it, so it is not said again."""
    ended = altered("other_learning_rate", config, tmp_path / "run", restarts=1)
    assert ended.code != 0
    assert ended.messages() == ["metaprior: the processes do not agree:"], ended.said()
    assert ended.err.count("  meta.lr: rank 0 has 0.001, rank 1 has 0.5\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_folder_that_is_refused_is_not_taken_by_the_next_start(by_two: tuple[Path, Ended], config: Path) -> None:
    """Though what torchrun starts again goes on with what it has begun."""
    ended = torchrun("metaprior", "train", config, "--run-dir", by_two[0], restarts=2)
    assert ended.code != 0
    (message,) = ended.messages()
    assert "is not empty; to go on with the run in it, give --resume" in message
    assert "finished already" not in ended.out


def test_a_rank_that_hangs_is_named_and_all_stop(config: Path, tmp_path: Path) -> None:
    ended = altered("hangs", config, tmp_path / "run", "--hang-after", "6")
    assert ended.code != 0
    assert ended.seconds < 60
    (message,) = ended.messages()
    assert re.search(r"rank 1 \(host \S+, process \d+\) did not answer for \d+ s \(--hang-after 6\): rank 0 ", message)
    assert_readable(tmp_path / "run")
    assert checkpoint.read(tmp_path / "run" / "checkpoints" / "last", KIND)[1]["progress"]["step"] == 10


@pytest.mark.slow
def test_a_rank_that_cannot_read_is_named_and_says_why_once(config: Path, tmp_path: Path) -> None:
    ended = altered("cannot_read", config, tmp_path / "run")
    assert ended.code != 0
    assert ended.err.count("the archive is on a disk that is gone") == 1, ended.said()
    assert len(ended.messages()) == 1
    assert re.search(r"\(rank 1 \(host \S+, process \d+\); ranks that failed: 1 of 2\)", ended.err), ended.said()
    assert "OtherRankFailed" not in ended.err
