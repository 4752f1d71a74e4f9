"""Regression on small tables: Gal's 20 splits of seven UCI data sets, one hidden layer of 50 ReLU units."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.data import UCI_FOLDERS, UCI_SPLITS, uci_split
from benchmarks.jobs import run_all
from benchmarks.result import BenchResult, Row
from metaprior import scores
from metaprior.likelihoods import Gaussian
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.models.mlp import MLP


class Published(NamedTuple):
    """Test RMSE and NLL (nats, targets' own units), means over the 20 splits."""

    rmse: float
    nll: float


BAYES_BY_BACKPROP = {
    "boston": Published(3.313, 2.638),
    "concrete": Published(5.789, 3.260),
    "energy": Published(0.999, 1.555),
    "kin8nm": Published(0.086, -0.979),
    "power": Published(4.218, 2.935),
    "wine": Published(0.641, 0.968),
    "yacht": Published(0.968, 1.449),
}
"""An independent rerun of Bayes by Backprop, 1x50 ReLU, on the same 20 splits (training budget not known)."""

DEEP_ENSEMBLE = {
    "boston": Published(3.28, 2.41),
    "concrete": Published(6.03, 3.06),
    "energy": Published(2.09, 1.38),
    "kin8nm": Published(0.09, -1.20),
    "power": Published(4.11, 2.79),
    "wine": Published(0.64, 0.94),
    "yacht": Published(1.58, 1.18),
}
"""Lakshminarayanan et al. 2017 (arXiv 1612.01474), five networks of 1x50, 40 epochs."""


@dataclass(frozen=True)
class Settings:
    """The same for every data set: nothing is tuned for one of them."""

    steps: int = 5000
    batch_size: int = 100
    lr: float = 1e-2
    samples: int = 4
    hidden: int = 50
    test_samples: int = 500
    splits: int = UCI_SPLITS


QUICK = Settings(steps=500, splits=2)


class Job(NamedTuple):
    """One fit."""

    folder: Path
    name: str
    split: int
    settings: Settings


class Fit(NamedTuple):
    """What came of it."""

    rmse: float
    nll: float
    coverage: float
    seconds: float


def fit_split(job: Job) -> Fit:
    """Fit on one split's training rows and score on its test rows."""
    settings, started = job.settings, time.perf_counter()
    split = uci_split(job.folder, job.name, job.split)
    torch.manual_seed(job.split)  # the network's own initialisation
    network = MLP(split.train_x.shape[1], [settings.hidden], 1)
    steps_per_epoch = math.ceil(len(split.train_y) / settings.batch_size)
    bnn = BayesByBackprop(network, Gaussian(), seed=job.split).fit(
        split.train_x,
        split.train_y,
        epochs=math.ceil(settings.steps / steps_per_epoch),
        batch_size=settings.batch_size,
        lr=settings.lr,
        samples=settings.samples,
        progress=False,
    )
    forecast, targets = bnn.forecast(split.test_x, samples=settings.test_samples), torch.as_tensor(split.test_y)
    return Fit(
        rmse=scores.root_mean_squared_error(forecast.mean, targets),
        nll=-float(forecast.log_prob(targets).mean()),
        coverage=scores.coverage(forecast, targets, 0.9),  # type: ignore[arg-type]
        seconds=time.perf_counter() - started,
    )


def run(folder: Path, *, quick: bool = False, workers: int | None = None) -> BenchResult:
    """All data sets, all splits."""
    settings = QUICK if quick else Settings()
    jobs = [Job(folder, name, split, settings) for name in UCI_FOLDERS for split in range(settings.splits)]
    uci_split(folder, jobs[0].name, 0)  # a missing archive is said here, once, and not by every worker
    fits = run_all(fit_split, jobs, workers=workers, label="UCI")
    by_set = {name: [fit for job, fit in zip(jobs, fits, strict=True) if job.name == name] for name in UCI_FOLDERS}
    rows = [_row(name, by_set[name]) for name in by_set]
    headline = {f"{score}_{row['set']}": row[score] for score in ("nll", "rmse") for row in rows}
    return BenchResult(headline, rows, {"bench": "uci", "quick": quick, **vars(settings)}, _notes(settings, quick))


def _notes(settings: Settings, quick: bool) -> list[str]:
    ours = (
        f"ours: {settings.splits} of {UCI_SPLITS} splits, {settings.steps} steps each, the same settings for every set"
    )
    notes = [f"{ours}; se: standard error of the mean over splits"]
    notes += ["published_bbb: an independent rerun, 1x50 ReLU, the same 20 splits; its training budget is not known"]
    notes += ["published_ensemble: Lakshminarayanan et al. 2017, five networks, 40 epochs, 20 splits of their own"]
    return notes + ["--quick: too few steps and splits to compare with the published figures"] * quick


def _row(name: str, fits: list[Fit]) -> Row:
    rmse, nll, cover, seconds = (torch.tensor(column, dtype=torch.float64) for column in zip(*fits, strict=True))
    return {
        "set": name,
        "splits": len(fits),
        "rmse": float(rmse.mean()),
        "rmse_se": scores.standard_error(rmse),
        "nll": float(nll.mean()),
        "nll_se": scores.standard_error(nll),
        "coverage_90": float(cover.mean()),
        "published_bbb_rmse": BAYES_BY_BACKPROP[name].rmse,
        "published_bbb_nll": BAYES_BY_BACKPROP[name].nll,
        "published_ensemble_rmse": DEEP_ENSEMBLE[name].rmse,
        "published_ensemble_nll": DEEP_ENSEMBLE[name].nll,
        "seconds_a_fit": float(seconds.mean()),
    }
