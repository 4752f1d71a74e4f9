import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import metaprior
from metaprior import cli
from metaprior.bench import uci
from metaprior.bench.result import BenchResult


def test_help_lists_the_commands_and_version_is_the_packages() -> None:
    runner = CliRunner()
    text = runner.invoke(cli.app, ["--help"]).output
    assert "demo" in text
    assert "bench" in text
    assert runner.invoke(cli.app, ["--version"]).output.strip() == metaprior.__version__


def test_bench_prints_the_table_and_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uci, "run", lambda folder, **_: BenchResult({"nll_x": 1.0}, [{"set": "x", "nll": 1.0}], {}))
    result = CliRunner().invoke(cli.app, ["bench", "uci", "--quick", "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0
    assert "set  nll" in result.output
    assert (tmp_path / "out.json").exists()


def test_missing_data_are_one_message_and_not_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metaprior", "bench", "uci", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("metaprior: ")
    assert "METAPRIOR_DATA" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_bench_names_the_known_ones() -> None:
    result = CliRunner().invoke(cli.app, ["bench", "imagenet"])
    assert result.exit_code == 2
    assert "uci" in result.output
    assert "mnist" in result.output


PLAN = ["plan", "--width", "4", "--frame", "16", "--k-shot", "2", "--k-query", "1", "--steps", "2"]


def test_plan_marks_what_it_chose() -> None:
    result = CliRunner().invoke(cli.app, [*PLAN, "--memory", "0.9", "--stochastic", r"(decoder4|output)\..*"])
    assert result.exit_code == 0
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
