import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaprior import cli
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs import finish
from metaprior.runs.finish import possible_shots
from metaprior.runs.sources import GeneratedTasks, Purpose
from metaprior.tasks import Tasks
from tests.runs.tiny import TEXT, metrics

SHORT = ["--set", "meta.epochs=1", "--set", "meta.warm_start=0", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    (folder / "tiny.toml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        command = ["train", str(folder / "tiny.toml"), "--run", str(folder / "run"), "--memory", "2GiB", *SHORT]
        result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    assert "epoch 1/1  step 3  loss " in result.output
    assert "validation nll " in result.output
    assert "skill " in result.output
    return folder


def test_train_writes_the_changes_down(trained: Path) -> None:
    config = json.loads((trained / "run" / "config.json").read_text())
    assert config["meta"]["epochs"] == 1
    assert config["run"]["memory"] == "2GiB"
    assert len(metrics(trained / "run")) == 1


def test_the_prior_loads_and_adapts(trained: Path) -> None:
    learner = MetaLearner.load(trained / "run" / "prior")
    assert learner.problem().inner.steps == 2
    assert learner.memory == "2GiB"


def test_evaluate_prints_the_table_of_the_end_again(trained: Path) -> None:
    file = trained / "again.json"
    result = CliRunner().invoke(cli.app, ["evaluate", str(trained / "run"), "--json", str(file)])
    assert result.exit_code == 0, result.output
    again, end = json.loads(file.read_text()), json.loads((trained / "run" / "evaluation.json").read_text())
    assert again["rows"] == end["rows"]
    assert [(row["shots"], row["steps"]) for row in end["rows"]] == [(0, 0), (1, 1), (1, 2), (None, 1), (None, 2)]


def test_evaluate_by_other_shots_and_steps(trained: Path) -> None:
    command = ["evaluate", str(trained / "run"), "--shots", "2,3", "--steps", "4", "--tasks", "3"]
    result = CliRunner().invoke(cli.app, command)
    assert [line.split()[:3] for line in result.stdout.splitlines()[2:]] == [["2", "4", "3"], ["3", "4", "3"]]
    result = CliRunner().invoke(cli.app, ["evaluate", str(trained / "run"), "--shots", "50"])
    assert str(result.exception).startswith("--shots must be at most 3, the shots of the run's tasks, got 50")
    result = CliRunner().invoke(cli.app, ["evaluate", str(trained / "run"), "--shots", "one"])
    assert result.exit_code == 2
    assert "must be integers" in result.output


def test_evaluate_needs_a_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["evaluate", str(tmp_path)])
    assert "is not the folder of a run of metaprior train" in str(result.exception)


def test_too_many_bad_tasks_are_exit_code_1_and_a_message(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    bad = ["--set", "adaptation.lr=1e30", "--set", "adaptation.learn_lr=no", "--set", "meta.most_bad_tasks=4"]
    command = ["train", str(tmp_path / "tiny.toml"), "--run", str(tmp_path / "run"), *SHORT, *bad]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 1
    assert "stopped at step 2; to go on" in result.output
    assert "metaprior: 4 tasks in a row had no finite gradient" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [("adaptation.adapt=nothing", "matches none of the plain parameters"), ("model.inputs=2", "shape")],
)
def test_a_refused_configuration_leaves_no_folder_and_the_corrected_one_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    command = ["train", str(tmp_path / "tiny.toml"), "--run", str(tmp_path / "run"), *SHORT]
    result = CliRunner().invoke(cli.app, [*command, "--set", change])
    assert message in str(result.exception)
    assert not (tmp_path / "run").exists()
    assert CliRunner().invoke(cli.app, command).exit_code == 0


@pytest.mark.parametrize("purpose", ["val", "test"])
def test_unseen_tasks_that_cannot_be_had_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    real = GeneratedTasks.tasks

    def tasks(self: GeneratedTasks, wanted: Purpose, count: int | None = None) -> Tasks:
        if wanted == purpose:
            raise ValueError(f"no {purpose} tasks")
        return real(self, wanted, count)

    monkeypatch.setattr(GeneratedTasks, "tasks", tasks)
    (tmp_path / "tiny.toml").write_text(TEXT)
    command = ["train", str(tmp_path / "tiny.toml"), "--run", str(tmp_path / "run"), *SHORT]
    assert f"no {purpose} tasks" in str(CliRunner().invoke(cli.app, command).exception)
    assert not (tmp_path / "run").exists()


def test_help_has_examples() -> None:
    for command in ("train", "evaluate"):
        assert f"Example: metaprior {command}" in " ".join(
            CliRunner().invoke(cli.app, [command, "--help"]).output.split()
        )


@pytest.mark.parametrize(
    ("shots", "support", "each", "expected"),
    [
        ((0, 1, 5, 10), 5, 1, [0, 1, 5]),
        ((0, 1, 5, 10), 7, 1, [0, 1, 5, None]),
        ((0, 1, 5), 5, 5, [0, 1]),
        ((0,), 3, 1, [0, None]),
    ],
)
def test_shots_go_as_far_as_the_support_set(
    shots: tuple[int, ...], support: int, each: int, expected: list[int | None]
) -> None:
    assert possible_shots(shots, support, each) == expected


def test_plan_goes_by_the_memory_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT.replace("[run]", '[run]\nmemory = "3GiB"'))
    result = CliRunner().invoke(cli.app, ["plan", str(tmp_path / "tiny.toml")])
    assert result.exit_code == 0, result.output
    assert "budget 3.00 GiB" in result.output
    result = CliRunner().invoke(cli.app, ["plan", str(tmp_path / "tiny.toml"), "--memory", "2GiB"])
    assert "budget 2.00 GiB" in result.output
