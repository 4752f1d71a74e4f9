"""A new application is one module and one line in ``metaprior.applications``: it trains, resumes and is evaluated."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from metaprior import applications
from metaprior.cli import app
from metaprior.runs.folder import RunFolderError
from metaprior.runs.program import Request, train
from metaprior.runs.reading import ConfigError, read_config
from metaprior.runs.sources import TASKS
from tests.runs.tiny import TEXT, PowerFailure, assert_same_run, at_step, fail

TOY = TEXT.replace('kind = "sinusoids"\nk_shot = 3\nk_query = 2', 'kind = "toy"\nk_shot = 4')


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(applications, "MODULES", [*applications.MODULES, "tests.runs.toy_application"])
    yield
    TASKS._classes.pop("toy")
    del sys.modules["tests.runs.toy_application"]


def run(folder: Path, *changes: str, resume: bool = False) -> list[str]:
    path = folder.parent / "toy.toml"
    path.write_text(TOY)
    said: list[str] = []
    request = Request(read_config(path, changes), TOY, folder, "metaprior train", resume=resume, progress=False)
    train(request, said.append)
    return said


@pytest.mark.usefixtures("toy")
def test_it_trains_resumes_and_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(tmp_path / "whole")
    assert said[0] == "lines, as ordered"
    assert said[-3] == "toys are put away"
    assert said[-1] == f"next: metaprior evaluate {tmp_path / 'whole'}"
    assert json.loads((tmp_path / "whole" / "toy.json").read_text()) == {"height": 1.0}
    assert json.loads((tmp_path / "whole" / "toy_scores.json").read_text())["step"] in (6, 9, 12, 15)
    with monkeypatch.context() as patch:
        at_step(patch, 8, fail)
        with pytest.raises(PowerFailure):
            run(tmp_path / "killed")
    run(tmp_path / "killed", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path / "whole"), "--tasks", "2"])
    assert result.stdout.startswith("errors in centimetres\n")


@pytest.mark.usefixtures("toy")
def test_other_data_and_another_network_are_refused(tmp_path: Path) -> None:
    run(tmp_path / "run", "meta.epochs=1", "meta.schedule=constant")
    (tmp_path / "run" / "toy.json").write_text('{"height": 2.0}')
    with pytest.raises(RunFolderError, match=r"begun with other data:\n  height: the run has 2.0, now 1.0"):
        run(tmp_path / "run", "meta.epochs=2", "meta.schedule=constant", resume=True)
    (tmp_path / "unet.toml").write_text(TOY.replace('"mlp"\ninputs = 1\nhidden = [4]\noutputs = 1', '"conv4"'))
    with pytest.raises(ConfigError, match="toys are for mlp"):
        read_config(tmp_path / "unet.toml")


@pytest.mark.usefixtures("toy")
def test_its_commands_are_added(tmp_path: Path) -> None:
    program = typer.Typer()
    for application in applications.applications():
        application.add_commands(program)
    assert "play" in CliRunner().invoke(program, ["--help"]).output


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(ValueError, match=r"the tasks.kind 'sinusoids' is Sinusoids already"):
        TASKS.add("sinusoids", int)
    with pytest.raises(ValueError, match=r"tasks.kind must be one of sinusoids, .*, frames, simulated.*, got 'toys'"):
        TASKS.build("toys", {})
