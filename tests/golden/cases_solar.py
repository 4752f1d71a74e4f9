"""Maps of irradiance by the command line: simulate, train with a warm start, validate, evaluate, score, predict."""

import json
from pathlib import Path

from metaprior.runs.folder import RunFolder
from metaprior.solar.maps.run_scores import read_scores
from tests.golden.digest import Entries
from tests.golden.flat import columns, flat
from tests.golden.registry import FLOAT32, case
from tests.golden.run_files import (
    command,
    dataset_entries,
    is_same,
    run_entries,
    shipped_config,
    train,
    train_until,
)

SMALL = (
    "model.input_len=2",
    "model.target_len=2",
    "model.known=2",
    "model.width=4",
    "model.levels=2",
    "tasks.input_len=2",
    "tasks.target_len=2",
    "tasks.k_shot=3",
    "tasks.k_query=2",
    "tasks.patch=12",
    "tasks.period_days=1",
    "adaptation.steps=2",
    "meta.grad_clip_norm=1.0",
    "meta.warm_start=4",
    "meta.warm_start_average=0.5",
    "meta.epochs=2",
    "meta.tasks_per_epoch=6",
    "meta.meta_batch=2",
    "evaluate.tasks=2",
    "evaluate.samples=3",
    "evaluate.calibrate=false",
    "evaluate.adaptation_steps=[2]",
    "run.checkpoint_every=2",
)


def frames(folder: Path) -> Path:
    """Return a file of five simulated days of June."""
    path = folder / "june.nc"
    command("simulate", "--out", path, "--days", 5, "--size", 16, "--seed", 0, "--start", "2025-06-01")
    return path


def score_entries(folder: Path) -> Entries:
    """Return the scores by lead time of each method, with their limits, and the learning curve by shots."""
    scores = read_scores(RunFolder(folder))
    found: Entries = {"scores/failures": len(scores.failures), "scores/units": scores.units}
    tables = {name: method.rows() for name, method in scores.methods.items()}
    tables |= {f"{name}, of each task": method.per_task() for name, method in scores.methods.items()}
    tables["learning curve"] = scores.learning_curve()
    for name, rows in tables.items():
        found |= {f"scores/{name}/{column}": entry for column, entry in columns(rows).items()}
    return found


def solar_entries(folder: Path) -> Entries:
    """Return all of a solar run: that of any run, what is known of the frames, scores by lead time, and maps."""
    about = json.loads((folder / "solar.json").read_text())
    found = run_entries(folder) | flat(about, "frames") | score_entries(folder)
    return found | dataset_entries(folder / "examples.nc", "examples")


@case("solar/frames, stopped and resumed, predict", FLOAT32)
def solar(folder: Path) -> Entries:
    archive, config = frames(folder), shipped_config("frames")
    changes = (*SMALL, f"tasks.path={archive}")
    train(config, folder / "run", *changes)
    train_until(9, config, folder / "stopped", *changes)  # in the last epoch; a checkpoint is at 8
    train(config, folder / "stopped", *changes, resume=True)
    found = solar_entries(folder / "run")
    found["resumed is bitwise identical"] = is_same(found, solar_entries(folder / "stopped"))
    now = ("--at", "2025-06-05T11:30", "--samples", 4, "--steps", 3, "--out", folder / "now.nc")
    command("predict", folder / "run", "--support", archive, "--inputs", archive, *now)
    return found | dataset_entries(archive, "simulated") | dataset_entries(folder / "now.nc", "predict")


@case("solar/simulated, scaled units", FLOAT32)
def simulated(folder: Path) -> Entries:
    small = ("tasks.days=5", "tasks.size=16", "tasks.start=2025-06-01", "tasks.units=scaled", "tasks.by=place")
    train(shipped_config("solar"), folder / "run", *SMALL, *small, "model.known=0", "meta.epochs=1")
    return solar_entries(folder / "run")
