"""What ``metaprior inspect`` says about runs, priors, configurations and results."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import metaprior as mp
from metaprior.cli import app
from metaprior.runs import finish
from tests.runs.tiny import TEXT


def inspected(path: Path) -> str:
    result = CliRunner().invoke(app, ["inspect", str(path)])
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    return result.output


def fact(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
    return line.removeprefix(f"  {name}").strip()


def commands(text: str) -> list[str]:
    return [line.removeprefix("next: ") for line in text.splitlines() if line.startswith("next: ")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected")
    (folder / "tiny.toml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "draw", lambda *_: [])
        command = ["train", str(folder / "tiny.toml"), "--run", str(folder / "run"), "--set", "meta.epochs=1"]
        result = CliRunner().invoke(app, [*command, "--set", "meta.warm_start=0", "--quiet"])
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def unfinished(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "finished": False}))


def test_a_finished_run(run: Path) -> None:
    text = inspected(run)
    assert text.startswith(f"{run}: the folder of a run\n")
    assert (fact(text, "finished"), fact(text, "steps"), fact(text, "tasks")) == ("yes", "3 of 3", "sinusoids")
    assert "rmse " in fact(text, "unseen tasks")
    assert "problems:" not in text
    assert commands(text) == [f"metaprior evaluate {run}"]


def test_an_unfinished_run_names_the_command_that_goes_on(run: Path) -> None:
    """The command is given, and accepted: the configuration is the same."""
    unfinished(run)
    resume, evaluate = commands(inspected(run))
    assert resume.startswith(f"metaprior train {run / 'config.toml'} --run {run} --set ")
    assert resume.endswith(" --resume")
    assert evaluate == f"metaprior evaluate {run}"
    result = CliRunner().invoke(app, resume.split()[1:])
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    assert fact(inspected(run), "finished") == "yes"


def test_everything_that_is_missing_is_named_at_once(run: Path) -> None:
    shutil.rmtree(run / "prior")
    (run / "evaluation.json").unlink()
    text = inspected(run)
    assert f"- {run / 'prior'} is missing although the run has finished" in text
    assert "- evaluation.json is missing" in text


def test_damaged_checkpoints_of_an_unfinished_run(run: Path) -> None:
    unfinished(run)
    next((run / "checkpoints" / "last").glob("*.safetensors")).write_bytes(b"damaged")
    assert "the last checkpoint is damaged: go on with --resume-from previous" in inspected(run)


def test_a_run_without_its_configuration(run: Path) -> None:
    (run / "config.json").write_text("{")
    text = inspected(run)
    assert "config.json is damaged" in text
    assert commands(text) == []


def test_a_saved_prior(run: Path) -> None:
    text = inspected(run / "prior")
    assert text.startswith(f"{run / 'prior'}: a saved MetaLearner\n")
    assert fact(text, "network").startswith("mlp (inputs 1, ")
    assert fact(text, "adaptation").startswith("descent (steps 2, ")
    assert fact(text, "calibration") != "none"
    (command,) = commands(text)
    assert command == f"python -c \"import metaprior as mp; print(mp.load('{run / 'prior'}'))\""
    next((run / "prior").glob("*.safetensors")).write_bytes(b"damaged")
    assert "it cannot be loaded" in inspected(run / "prior")
    (run / "prior" / "checkpoint.json").write_text("{")
    assert "a damaged checkpoint" in inspected(run / "prior")


def test_a_prior_of_a_network_of_ones_own(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Linear(3, 1))
    mp.BayesByBackprop(net, mp.Gaussian()).fit(torch.rand(9, 1), torch.rand(9), epochs=1, progress=False).save(
        tmp_path / "fit"
    )
    text = inspected(tmp_path / "fit")
    assert "a saved BayesByBackprop" in text
    assert "its network is not one of this package: in Python, mp.load(" in text


def test_a_checkpoint_of_a_run(run: Path) -> None:
    text = inspected(run / "checkpoints" / "last")
    assert fact(text, "step") == "3"
    assert commands(text) == [f"metaprior inspect {run}"]


def test_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "my tasks.toml"
    path.write_text(TEXT)
    text = inspected(path)
    assert fact(text, "training") == "3 steps of warm start, then 4 epochs of 3 steps on 2 tasks"
    assert commands(text)[0] == f"metaprior train '{path}' --run 'runs/my tasks'"
    path.write_text(TEXT.replace("[model]", "[model]\nwidht = 3").replace("[meta]", "[meta]\nlr = -1"))
    wrong = inspected(path)
    assert "model.widht is not known" in wrong
    assert "- meta.lr" in wrong


def test_a_configuration_whose_data_are_not_there(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["init", "frames", "--out", str(tmp_path / "frames.toml")])
    text = inspected(tmp_path / "frames.toml")
    assert "tasks.path data/sim.nc does not exist" in text
    assert commands(text)[0].endswith("--set tasks.path=PATH")


def test_json_of_results(run: Path, tmp_path: Path) -> None:
    text = inspected(run / "evaluation.json")
    assert "the scores of an evaluation" in text
    assert commands(text) == [f"metaprior inspect {run}"]
    assert commands(inspected(run / "run.json")) == [f"metaprior inspect {run}"]
    bench = {"headline": {"rmse": 1.5}, "rows": [{"a": 1}], "settings": {"bench": "uci"}, "versions": {"torch": "2"}}
    backtest = {"answer": "It pays.", "notes": [], "rows": [{"plant": "a"}]}
    for content, told in ((bench, "the result of a benchmark"), (backtest, "It pays."), ([1], "of another program")):
        (tmp_path / "some.json").write_text(json.dumps(content))
        assert told in inspected(tmp_path / "some.json")
    (tmp_path / "some.json").write_text("{")
    assert "its content is no JSON" in inspected(tmp_path / "some.json")
