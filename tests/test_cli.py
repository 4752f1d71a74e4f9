import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import metaprior
from metaprior import cli
from metaprior.runs import finish, program
from metaprior.runs.reading import read_config
from metaprior.solar.maps import prediction
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.simulator import simulate, write_frames

CONFIGS = Path(metaprior.__file__).parent / "configs"


def test_help_lists_the_commands_and_version_is_the_packages() -> None:
    runner = CliRunner()
    text = runner.invoke(cli.app, ["--help"]).output
    commands = re.findall(r"^  (\w+) ", text.split("Commands:")[1], re.MULTILINE)
    assert commands == COMMANDS
    assert runner.invoke(cli.app, ["--version"]).output.strip() == metaprior.__version__


TRAINING = ["inspect", "init", "train", "evaluate", "plan"]
COMMANDS = [*TRAINING, "simulate", "nowcast", "predict", "report", "explore", "sites"]
PLAN = ["plan", "drifting_blobs", "--set", "tasks.k_shot=2", "--set", "tasks.k_query=1", "--set", "adaptation.steps=2"]


def test_init_lists_configurations_in_whole_sentences() -> None:
    lines = CliRunner().invoke(cli.app, ["init"]).output.splitlines()
    assert len(lines) == len([*CONFIGS.glob("*.toml")])
    assert all(line.endswith(".") for line in lines)


def test_training_on_frames_that_are_not_there_says_how_to_get_some(tmp_path: Path) -> None:
    path = tmp_path / "none.nc"
    result = CliRunner().invoke(
        cli.app, ["train", "frames", "--run", str(tmp_path / "run"), "--set", f'tasks.path="{path}"']
    )
    assert isinstance(result.exception, FileNotFoundError)
    assert f"--set tasks.path=PATH, or make some: metaprior simulate --out {path}" in str(result.exception)


def test_training_on_a_gpu_that_is_not_there_stops_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = tmp_path / "run"
    result = CliRunner().invoke(cli.app, ["train", "sinusoid", "--run", str(run), "--device", "cuda"])
    assert isinstance(result.exception, ValueError)
    expected = "device must be a device of this machine, got 'cuda', but torch sees no GPU. Try 'cpu'"
    assert expected in str(result.exception)
    assert not run.exists()


def test_the_device_of_the_command_stands_for_that_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(program, "train", lambda request, say: asked.append(request.config.run.device))
    for options in ([], ["--device", "cuda"], ["--set", "run.device=cuda", "--device", "cpu"]):
        result = CliRunner().invoke(cli.app, ["train", "sinusoid", "--run", str(tmp_path / "run"), *options])
        assert result.exit_code == 0, result.output
    assert asked == ["cpu", "cuda", "cpu"]


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_commands_after_a_training_take_a_device(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for the prior of the run on this device, and this is where it ends."""
    asked: list[object] = []

    def learned(run: object, *, device: str = "cpu", **_: object) -> None:
        asked.append(device)
        raise ValueError("far enough")

    monkeypatch.setattr(finish, "learned", learned)
    monkeypatch.setattr(prediction, "learned", learned)
    frames = ["--support", "a.nc", "--inputs", "b.nc", "--out", str(tmp_path / "c.nc")] if command == "predict" else []
    for options in ([], ["--device", "cuda"]):
        result = CliRunner().invoke(cli.app, [command, str(tmp_path), *frames, *options])
        assert str(result.exception) == "far enough", result.output
    assert asked == ["cpu", "cuda"]


def test_plan_marks_what_it_chose() -> None:
    result = CliRunner().invoke(cli.app, [*PLAN, "--memory", "0.9"])
    assert result.exit_code == 0, result.output
    chosen = [line for line in result.output.splitlines() if line.endswith("<- chosen")]
    assert len(chosen) == 1
    assert "predicted peak" in result.output.splitlines()[-1]


def test_plan_says_what_is_the_least_where_nothing_fits() -> None:
    command = [sys.executable, "-m", "metaprior", *PLAN, "--memory", "10MB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "does not fit" in done.stdout
    assert "chosen" not in done.stdout
    assert done.stderr.startswith("metaprior: nothing fits in 10 MiB: the smallest possible is")


HEAVY = {"matplotlib", "pandas", "pvlib", "pydantic", "scipy", "scoringrules", "tensorboard", "torchmetrics", "xarray"}


def test_the_package_and_its_command_line_load_nothing_heavy_but_torch() -> None:
    code = f"import sys, metaprior.evaluation, metaprior.cli; print(sorted({HEAVY} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_teaches_with_an_example(command: str) -> None:
    text = CliRunner().invoke(cli.app, [command, "--help"]).output
    assert f"metaprior {command}" in text.split("Example", 1)[1]


def test_init_lists_configurations_and_writes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(cli.app, ["init"]).output.splitlines()
    assert [line.split()[0] for line in listed] == [path.stem for path in sorted(CONFIGS.glob("*.toml"))]
    result = CliRunner().invoke(cli.app, ["init", "sinusoid"])
    assert result.output.splitlines()[-1] == "next: metaprior train sinusoid.toml --run runs/sinusoid"
    assert read_config(Path("sinusoid.toml")) == read_config("sinusoid")
    assert "exists. Give another name" in str(CliRunner().invoke(cli.app, ["init", "sinusoid"]).exception)
    wrong = CliRunner().invoke(cli.app, ["init", "sinus"])
    assert str(wrong.exception).startswith("NAME must be one of drifting_blobs, ")


@pytest.mark.parametrize("name", ["sim.nc", "sim"])
def test_simulate_writes_frames_that_open_and_says_what_comes_next(name: str, tmp_path: Path) -> None:
    out = tmp_path / "data" / name
    command = ["simulate", "--out", str(out), "--days", "9", "--size", "8", "--seed", "3", "--start", "2025-06-01"]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    frames = open_frames(out, progress=False)
    assert f"{len(frames)} frames of 8 x 8 pixels every 30min by day, 2025-06-01T" in result.output
    assert np.array_equal(frames.values, simulate(days=9, size=8, seed=3, start="2025-06-01", progress=False).values)
    (line,) = [line for line in result.output.splitlines() if line.startswith("next: metaprior train ")]
    changes = re.findall(r"--set (\S+)", line)
    config = read_config(CONFIGS / "frames.toml", changes)
    assert config.tasks.arguments["path"] == str(out)
    assert "--run runs/sim " in line
    assert config.tasks.arguments["units"] == ("clear_sky" if out.suffix else "scaled")
    again = CliRunner().invoke(cli.app, command)
    assert isinstance(again.exception, FileExistsError)
    assert "--overwrite" in str(again.exception)


def test_simulate_offers_no_training_on_a_day(tmp_path: Path) -> None:
    out = tmp_path / "sim.nc"
    result = CliRunner().invoke(cli.app, ["simulate", "--out", str(out), "--days", "1", "--size", "8"])
    assert "note: no settings were found with which tasks can be drawn" in result.output
    assert re.findall("next: .*", result.output) == [f"next: metaprior inspect {out}"]


def test_a_missing_package_names_the_extra_that_has_it() -> None:
    code = "import sys; sys.modules['xarray'] = None; from metaprior.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", "--out", "never.nc", "--days", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'metaprior[solar]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_predict_takes_a_row_and_a_column(tmp_path: Path) -> None:
    command = ["predict", "run", "--support", "a.nc", "--inputs", "a.nc", "--out", "b.nc", "--place", "3"]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 2
    assert "a row and a column" in result.output


def test_an_archive_that_is_refused_names_options_and_the_command_that_tells_all(tmp_path: Path) -> None:
    path = tmp_path / "hourly.nc"
    frames = simulate(days=1, size=8, start="2025-06-01", progress=False)
    write_frames(frames[frames["time"].dt.minute.values == 0], path)
    changes = [f"tasks.path={path}", "tasks.cadence=30min"]
    command = ["train", "frames", "--run", str(tmp_path / "run"), *(word for one in changes for word in ("--set", one))]
    error = CliRunner().invoke(cli.app, command).exception
    assert str(error).endswith("If that is right, give --set tasks.cadence=60min")
    assert error is not None
    assert error.__notes__ == [f"To see all problems at once, and settings that work: metaprior inspect {path}"]
