"""Handwritten digits: two hidden layers of 400 or 1200 ReLU units, at three posterior temperatures."""

import time
from dataclasses import dataclass

import torch

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.data import MNIST, mnist
from benchmarks.common.result import BenchmarkResult, Row
from metaprior import scores
from metaprior.forecasts import CategoricalForecast
from metaprior.posterior import Predictive

WIDTHS = (1200, 400)  # the longest fits first, so that no core waits at the end
TEMPERATURES = (0.1, 0.5, 1.0)
PRUNED = (0.0, 0.75, 0.95)

PUBLISHED = {
    "Bayes by Backprop, scale mixture": 1.32,
    "Bayes by Backprop, Gaussian": 2.04,
    "dropout": 1.36,
    "SGD": 1.88,
}
"""Test error in percent, 2x1200, 600 epochs at most (Blundell et al. 2015, table 1; cited from memory)."""


@dataclass(frozen=True)
class Settings:
    """The same settings for every row."""

    epochs: int = 30
    batch_size: int = 256
    lr: float = 3e-3
    samples: int = 1
    prior_std: float = 0.1
    train_images: int = 60_000
    test_samples: int = 20


def fit_network(context: Context[Settings], width: int, temperature: float) -> list[Row]:
    """Fit one network, and return a row for each share of its weights pruned."""
    settings, started = context.settings, time.perf_counter()
    images, labels = mnist(context.data, "train")
    torch.manual_seed(0)
    bnn = mp.BayesByBackprop(
        mp.MLP(784, [width, width], 10),
        mp.Categorical(),
        prior=mp.NormalPrior(settings.prior_std),
        temperature=temperature,
    ).fit(
        images[: settings.train_images],
        labels[: settings.train_images],
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        samples=settings.samples,
        progress=False,
    )
    seconds = time.perf_counter() - started
    about = {"network": f"2x{width}", "T": temperature, "epochs": settings.epochs}
    return [
        {
            "what": f"metaprior{f', {share:.0%} pruned' if share else ''}",
            **about,
            **_scores(bnn.posterior_.pruned(share), context),
            "seconds": seconds,
        }
        for share in PRUNED
    ]


def _scores(posterior: Predictive, context: Context[Settings]) -> Row:
    images, truth = map(torch.as_tensor, mnist(context.data, "test"))
    forecast = posterior.predict(images, samples=context.settings.test_samples)
    if not isinstance(forecast, CategoricalForecast):
        raise TypeError(f"expected class probabilities, got {type(forecast).__name__}")
    reliability = scores.Reliability()
    reliability.add(forecast, truth)
    return {
        "error_percent": 100 * scores.error_rate(forecast, truth),
        "ece": reliability.ece,
        "nll": -float(forecast.log_prob(truth).mean()),
    }


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Fit both networks at every temperature, and put the published figures beside them."""
    jobs = [(width, temperature) for width in WIDTHS for temperature in TEMPERATURES]
    fitted = context.map(fit_network, jobs)
    headline = {}
    for (width, temperature), (whole, *_) in zip(jobs, fitted, strict=True):
        for score in ("error_percent", "ece"):
            headline[f"{score}_{width}_T{temperature:g}"] = whole[score]
    headline["error_percent_1200_best_T"] = min(headline[f"error_percent_1200_T{t:g}"] for t in TEMPERATURES)
    rows = [row for network in fitted for row in network]
    rows += [{"what": f"published: {name}", "network": "2x1200", "error_percent": e} for name, e in PUBLISHED.items()]
    notes = [
        "published: Blundell et al. 2015, table 1 (cited from memory), up to 600 epochs, tuned on a validation set",
        "the best T is read off the test rows; ece: expected calibration error, 15 bins",
    ]
    return BenchmarkResult(headline, rows, notes)


BENCHMARK = Benchmark(
    "mnist",
    "digits, three temperatures, error and calibration",
    measure,
    full=Settings(),
    quick=Settings(epochs=3, train_images=5_000, test_samples=5),
    quick_note="too few epochs and images to compare with the published figures",
    data=(MNIST,),
)
