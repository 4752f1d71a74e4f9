"""``evaluate`` and ``predict`` started by torchrun with two processes: the numbers of one, to the last bit."""

from pathlib import Path

import pytest
import xarray as xr
from typer.testing import CliRunner

from metaprior import cli
from tests.solar.maps.conftest import SolarRun
from tests.team.torchrun import torchrun

SAMPLES = 2000
"""More than are worked on together, so that both processes have some."""


def said_by_two(*command: object) -> str:
    ended = torchrun("metaprior", *command)
    assert ended.code == 0, ended.said()
    return ended.out.replace("two.", "one.")


def said_by_one(*command: object) -> str:
    result = CliRunner().invoke(cli.app, list(map(str, command)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_two_processes_evaluate_as_one(solar_run: SolarRun, tmp_path: Path) -> None:
    command = ("evaluate", solar_run.folder, "--tasks", "3", "--json")
    assert said_by_two(*command, tmp_path / "two.json") == said_by_one(*command, tmp_path / "one.json")
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()


@pytest.mark.slow
def test_two_processes_predict_as_one(solar_run: SolarRun, june: Path, tmp_path: Path) -> None:
    archive = ("--support", june, "--inputs", june, "--at", "2025-06-02T11:30")
    command = ("predict", solar_run.folder, *archive, "--samples", SAMPLES, "--out")
    assert said_by_two(*command, tmp_path / "two.nc") == said_by_one(*command, tmp_path / "one.nc")
    with xr.open_dataset(tmp_path / "two.nc") as two, xr.open_dataset(tmp_path / "one.nc") as one:
        xr.testing.assert_equal(two, one)
