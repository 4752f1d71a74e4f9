"""Runs by the command line, and what is read from their folders: to be changed when commands or files change."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import xarray as xr
from typer.testing import CliRunner

import metaprior as mp
from benchmarks.common import application
from metaprior import cli
from metaprior.report import canvas
from metaprior.training.trainer import Trainer
from tests.golden.adapters import theta_entries
from tests.golden.digest import Entries
from tests.golden.flat import columns, flat

REPOSITORY = Path(__file__).parents[2]
LEFT_OUT = ("seconds", "bad")
"""Parts of a line of metrics: times, and descriptions in words."""


def shipped_config(name: str) -> Path:
    """Return the path of a configuration that comes with the package, or with the benchmarks."""
    folders = (REPOSITORY / "configs", Path(application.__file__).parent / "configs")
    return next(path for folder in folders if (path := folder / f"{name}.toml").exists())


def command(*arguments: object) -> str:
    """Run ``metaprior ...`` in this process and return what it prints; raise if it fails."""
    with patch.object(canvas, "has_matplotlib", return_value=False):  # drawing takes longer than these runs
        result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise AssertionError(f"metaprior {arguments} ended with {result.exit_code}:\n{result.output}") from (
            result.exception
        )
    return result.output


def train(config: Path, folder: Path, *changes: str, resume: bool = False) -> str:
    """Run ``metaprior train`` with these ``--set``."""
    sets = [part for change in changes for part in ("--set", change)]
    return command("train", config, "--run", folder, "--quiet", *sets, *(["--resume"] if resume else []))


class PowerFailure(BaseException):
    """What no program expects."""


def train_until(step: int, config: Path, folder: Path, *changes: str, resume: bool = False) -> None:
    """Train, and fail when so many steps are done, without a chance to save anything."""
    real = Trainer.step

    def failing(self: Trainer) -> Any:
        if self.progress.step == step:
            raise PowerFailure
        return real(self)

    Trainer.step = failing  # type: ignore[method-assign]
    try:
        train(config, folder, *changes, resume=resume)
    except PowerFailure:
        return
    finally:
        Trainer.step = real  # type: ignore[method-assign]
    raise AssertionError(f"the run in {folder} was not stopped")


def prior_entries(folder: Path) -> Entries:
    """Return the theta that a run has learned."""
    return theta_entries(mp.MetaLearner.load(folder / "prior").theta_)


def metrics_entries(folder: Path) -> Entries:
    """Return every column of ``metrics.jsonl``, an entry for each epoch, but the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = [flat({key: value for key, value in line.items() if key not in LEFT_OUT}, "metrics") for line in lines]
    return columns(kept)


def evaluation_entries(path: Path) -> Entries:
    """Return the rows of an evaluation, and each task's own."""
    content = json.loads(path.read_text())
    found = {name: content[name] for name in ("rows", "per_task", "reliability")}
    return flat(found, "evaluation")


def run_entries(folder: Path) -> Entries:
    """Return all of a run that any task source has."""
    return prior_entries(folder) | metrics_entries(folder) | evaluation_entries(folder / "evaluation.json")


def dataset_entries(path: Path, prefix: str) -> Entries:
    """Return every variable and coordinate of numbers in a NetCDF file; times are texts of the first and last."""
    found: Entries = {}
    with xr.open_dataset(path) as dataset:
        for name, variable in dataset.variables.items():
            values = variable.values
            if values.dtype.kind in "mM":
                found[f"{prefix}/{name}"] = f"{values.min()} to {values.max()}, {values.size}"
            elif values.dtype.kind in "fiu":
                found[f"{prefix}/{name}"] = torch.as_tensor(values.astype("float64"))
    return found


def is_same(one: Entries, other: Entries) -> bool:
    """Whether two runs gave bitwise identical entries."""

    def equal(name: str) -> bool:
        mine, others = one[name], other[name]
        if isinstance(mine, torch.Tensor) and isinstance(others, torch.Tensor):
            return torch.equal(mine.nan_to_num(nan=-1e30), others.nan_to_num(nan=-1e30))
        return bool(mine == others)

    return one.keys() == other.keys() and all(equal(name) for name in one)
