import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import uci
from benchmarks.__main__ import app
from benchmarks.result import BenchResult


def test_bench_prints_the_table_and_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uci, "run", lambda folder, **_: BenchResult({"nll_x": 1.0}, [{"set": "x", "nll": 1.0}], {}))
    result = CliRunner().invoke(app, ["uci", "--quick", "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0
    assert "set  nll" in result.output
    assert (tmp_path / "out.json").exists()


def test_missing_data_are_one_message_and_not_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "uci", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("metaprior: ")
    assert "METAPRIOR_DATA" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_bench_names_the_known_ones() -> None:
    result = CliRunner().invoke(app, ["imagenet"])
    assert result.exit_code == 2
    assert "uci" in result.output
    assert "mnist" in result.output
