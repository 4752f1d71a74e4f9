"""Regression on small tables: Gal's 20 splits of seven UCI data sets, one hidden layer of 50 ReLU units."""

import math
import time
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.data import UCI, UCI_FOLDERS, UCI_SPLITS, uci_split
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from metaprior import scores


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
"""An independent rerun of Bayes by Backprop, 1x50 ReLU, on the same 20 splits (its training budget is not known)."""

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
    """The same settings for every data set: nothing is tuned for one of them."""

    steps: int = 5000
    batch_size: int = 100
    lr: float = 1e-2
    samples: int = 4
    hidden: int = 50
    test_samples: int = 500
    splits: int = UCI_SPLITS


class Fit(NamedTuple):
    """Scores on the test rows, and the wall-clock seconds of the fit."""

    rmse: float
    nll: float
    coverage: float
    seconds: float


def fit_split(context: Context[Settings], name: str, number: int) -> Fit:
    """Fit on one split's training rows and score on its test rows."""
    settings, started = context.settings, time.perf_counter()
    split = uci_split(context.data, name, number)
    torch.manual_seed(number)  # for the initial weights
    network = mp.MLP(split.train_x.shape[1], [settings.hidden], 1)
    steps_per_epoch = math.ceil(len(split.train_y) / settings.batch_size)
    bnn = mp.BayesByBackprop(network, mp.Gaussian(), seed=number).fit(
        split.train_x,
        split.train_y,
        epochs=math.ceil(settings.steps / steps_per_epoch),
        batch_size=settings.batch_size,
        lr=settings.lr,
        samples=settings.samples,
        progress=False,
    )
    inputs, targets = torch.as_tensor(split.test_x), torch.as_tensor(split.test_y)
    forecast = bnn.predict(inputs, samples=settings.test_samples)
    low, high = forecast.interval(0.9)
    return Fit(
        rmse=math.sqrt(scores.mean_squared_error(forecast.mean, targets)),
        nll=-float(forecast.log_prob(targets).mean()),
        coverage=float(((targets >= low) & (targets <= high)).double().mean()),
        seconds=time.perf_counter() - started,
    )


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Fit every split of every data set."""
    settings = context.settings
    fits = iter(context.map(fit_split, [(name, split) for name in UCI_FOLDERS for split in range(settings.splits)]))
    rows = [_row(name, list(islice(fits, settings.splits))) for name in UCI_FOLDERS]
    headline = {f"{score}_{row['set']}": row[score] for score in ("nll", "rmse") for row in rows}
    notes = [
        f"ours: {settings.splits} of {UCI_SPLITS} splits, {settings.steps} steps each, the same settings for every "
        "set; se: standard error of the mean over splits",
        "published_bbb: an independent rerun, 1x50 ReLU, the same 20 splits; its training budget is not known",
        "published_ensemble: Lakshminarayanan et al. 2017, five networks, 40 epochs, 20 splits of their own",
    ]
    return BenchmarkResult(headline, rows, notes)


def _row(name: str, fits: list[Fit]) -> Row:
    rmse, nll, cover, seconds = (torch.tensor(column, dtype=torch.float64) for column in zip(*fits, strict=True))
    return {
        "set": name,
        "splits": len(fits),
        **mean_row("rmse", rmse),
        **mean_row("nll", nll),
        "coverage_90": float(cover.mean()),
        "published_bbb_rmse": BAYES_BY_BACKPROP[name].rmse,
        "published_bbb_nll": BAYES_BY_BACKPROP[name].nll,
        "published_ensemble_rmse": DEEP_ENSEMBLE[name].rmse,
        "published_ensemble_nll": DEEP_ENSEMBLE[name].nll,
        "seconds_a_fit": float(seconds.mean()),
    }


BENCHMARK = Benchmark(
    "uci",
    "seven regression tables, 20 splits, beside published figures",
    measure,
    full=Settings(),
    quick=Settings(steps=500, splits=2),
    quick_note="too few steps and splits to compare with the published figures",
    data=(UCI,),
)
