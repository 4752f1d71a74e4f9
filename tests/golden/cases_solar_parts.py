"""Maps of irradiance without a run: archives, tasks, references, plain networks, scores, simulated futures."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import xarray as xr

import metaprior as mp
from benchmarks.solar import plain_network
from metaprior.solar.maps import comparison
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.baselines import error_scale, with_noise
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.scores.lead_scores import LeadTimeScores, compare
from metaprior.solar.simulator import Simulator, simulate, write_frames
from tests.golden.adapters import forecast_entries
from tests.golden.digest import Entries
from tests.golden.flat import columns
from tests.golden.registry import FLOAT32, case

TASKS: dict[str, Any] = {"input_len": 2, "target_len": 2, "k_shot": 2, "k_query": 2, "patch": 12}


@cache
def frames(days: int = 3) -> xr.DataArray:
    """Return simulated days of June."""
    return simulate(days=days, size=16, start="2025-06-01", seed=1, progress=False)


@case("solar parts/archives", FLOAT32)
def archives(folder: Path) -> Entries:
    found: Entries = {}
    for name in ("june.nc", "june.zarr", "june"):
        write_frames(frames(1), folder / name)
        opened = open_frames(folder / name, progress=False)
        times = opened["time"].values
        found[f"{name}/values"] = torch.as_tensor(opened.values)
        found[f"{name}/times"] = f"{times[0]} to {times[-1]}, {len(times)}"
        found |= {f"{name}/{key}": opened.attrs[key] for key in ("cadence", "data_min", "data_max")}
    return found


def task_entries(dataset: MetaSolarPredictionDataset, index: int, prefix: str) -> Entries:
    """Return the tensors of a task."""
    task, found = dataset[index], dict[str, Any]()
    for part in ("support", "query"):
        x, y = getattr(task, part)
        found |= {f"{prefix}/{part}.x": x, f"{prefix}/{part}.y": y}
    return found | {f"{prefix}/name": task.name}


@case("solar parts/tasks", FLOAT32)
def tasks(folder: Path) -> Entries:
    found: Entries = {}
    for name, units in {"clear sky": ClearSkyIndex(), "scaled": None}.items():
        for by in ("time", "place", "period", "place+period"):
            dataset = MetaSolarPredictionDataset(frames(), **TASKS, units=units, by=by, period_days=1, seed=3)
            for index in (0, 4):
                found |= task_entries(dataset, index, f"{name}, {by}, {index}")
    return found


def score_entries(scores: LeadTimeScores, prefix: str) -> Entries:
    """Return rows by lead time and, for a forecast with a spread, its calibration."""
    found = {f"{prefix}/{name}": entry for name, entry in columns(scores.rows()).items()}
    if "coverage_90" in scores.row():
        found[f"{prefix}/reliability"] = torch.tensor(scores.reliability(), dtype=torch.float64)
        found[f"{prefix}/pit"] = columns(scores.pit_histogram(lead=30))["share"]
        found[f"{prefix}/share of tasks"] = scores.share_of_tasks(at_least=0.4)
    return found


@case("solar parts/comparison", FLOAT32)
def compared(folder: Path) -> Entries:
    dataset = MetaSolarPredictionDataset(frames(), **TASKS, units=ClearSkyIndex())
    torch.manual_seed(0)
    module = mp.BayesianUNet(input_len=2, target_len=2, known=2, width=4, levels=2)
    learner = mp.MetaLearner(
        module, mp.CRPSGaussian(), adaptation=mp.Descent(steps=2, lr=1e-6, adapt=None), standardize=False
    ).start(dataset)
    network, tuning = plain_network.plain_network(learner), plain_network.Tuning(2, 1e-3)
    methods = {
        "network": plain_network.of_networks([network], tuning),
        "ensemble": plain_network.of_networks([network, network], plain_network.Tuning(0, 1e-3)),
        "learner": comparison.of_learner(learner, steps=2, samples=3),
        "one shot": comparison.with_shots(comparison.of_learner(learner, steps=2, samples=3), 1),
    }
    points = {name: comparison.reference(name) for name in ("persistence", "smart_persistence")}
    scores = comparison.score(dataset, 2, methods, points, progress=False)
    found: Entries = {}
    for name, one in scores.items():
        found |= score_entries(one, name)
    for measure in ("crps", "rmse"):
        ratio = compare(scores["network"], scores["learner"], measure)
        found |= {f"network beside learner/{measure}/{key}": value for key, value in ratio.items()}
    context = comparison.context_of(dataset.reader, dataset.windows(0).query)
    point, targets = context.references["persistence"], context.targets
    return found | forecast_entries(with_noise(point, error_scale(point, targets)), targets, "persistence with noise")


@case("solar parts/simulated futures", FLOAT32)
def futures(folder: Path) -> Entries:
    record = Simulator(days=1, size=8, start="2025-06-01", seed=2)
    return {"futures": torch.as_tensor(record.futures(20, continuations=3, steps=2, seed=1))}
