"""CPU seconds of intervals and quantiles of large tables, beside bisection; and what a compressed posterior loses."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import one_thread
from benchmarks.common.result import BenchmarkResult, Row
from metaprior import mixture
from metaprior.forecasts import GaussianForecast
from metaprior.scaling import TargetScale

BISECTIONS = 60
LEVELS = (1e-6, 1e-3, 0.05, 0.1, 0.5, 0.6, 0.9, 0.95, 1 - 1e-6)
SPEED, HARD, FEWER = "CPU seconds", "difference from bisection", "fewer weight samples"


@dataclass(frozen=True)
class Settings:
    """Sizes of the table, of the adversarial mixtures, and of the network that is compressed."""

    rows: int = 50_000
    samples: int = 100
    repeats: int = 3
    columns: int = 400
    epochs: int = 300
    kept: tuple[int, ...] = (5, 10, 20)
    draws: int = 10
    reference_samples: int = 2000


class Mixture(NamedTuple):
    """Means and scales (S, M) and weights (S, 1) or (S, M) of M mixtures; without weights S equal ones."""

    means: Tensor
    scales: Tensor
    weights: Tensor | None = None


def bisected(parts: Mixture, level: float) -> Tensor:
    """Return the quantile by 60 bisections of the whole array in double precision, as the package's first version did.

    Frozen: this is what ``predict_speedup`` compares with. Only the weights are new.
    """
    z = float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64)))
    means, scales = parts.means.double(), parts.scales.double()
    own = means + z * scales  # the mixture's quantile lies between those of its parts
    none = None if parts.weights is None else (parts.weights == 0).expand_as(means)
    low = (own if none is None else own.masked_fill(none, math.inf)).amin(0)
    high = (own if none is None else own.masked_fill(none, -math.inf)).amax(0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = mixture.average(torch.special.ndtr((middle - means) / scales), parts.weights) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def cpu_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the least CPU seconds of a call."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        found.append(time.process_time() - began)
    return min(found)


def speed_rows(settings: Settings) -> list[Row]:
    """Return the CPU seconds of what a forecast of a table is asked for, and of bisections."""
    generator = torch.Generator().manual_seed(0)
    shape = (settings.samples, settings.rows)
    means = torch.randn(settings.rows, generator=generator) + 0.5 * torch.randn(shape, generator=generator)
    scales = 0.5 + 0.5 * torch.rand(shape, generator=generator)
    forecast, y = GaussianForecast(means, scales), torch.randn(settings.rows, generator=generator)
    x = torch.randn(settings.rows, 8, generator=generator)
    network = mp.BayesianNetwork(mp.MLP(8, [50], 1))
    units = TargetScale.identity(network.initial().mu)
    posterior = mp.Posterior(network, mp.Gaussian(noise=0.1), network.initial(), target_scale=units)
    parts = Mixture(means, scales)
    asked: dict[str, tuple[Callable[[], object], tuple[float, ...]]] = {
        "interval(0.9)": (lambda: forecast.interval(0.9), (0.05, 0.95)),
        "quantile(0.9)": (lambda: forecast.quantile(0.9), (0.9,)),
        "cdf(y)": (lambda: forecast.cdf(y), ()),
        "log_prob(y)": (lambda: forecast.log_prob(y), ()),
        "predict(x), 1x50 ReLU": (lambda: posterior.predict(x, samples=settings.samples), ()),
    }
    rows: list[Row] = []
    for name, (function, levels) in asked.items():
        seconds = cpu_seconds(function, settings.repeats)
        slow = sum(cpu_seconds(lambda one=level: bisected(parts, one), 1) for level in levels)  # type: ignore[misc]
        row: Row = {"part": SPEED, "what": name, "seconds": seconds}
        rows.append(row | {"bisection": slow if levels else None, "speedup": slow / seconds if levels else None})
    return rows


def hard_mixtures(columns: int) -> dict[str, Mixture]:
    """Return mixtures on which a search without safeguards fails."""
    generator = torch.Generator().manual_seed(0)

    def normal(count: int) -> Tensor:
        return torch.randn(count, columns, generator=generator, dtype=torch.float64)

    def uniform(count: int) -> Tensor:
        return torch.rand(count, columns, generator=generator, dtype=torch.float64)

    def column(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)[:, None]

    def two(share: float) -> Mixture:
        """Return two components with a plateau of the distribution function at ``share``."""
        return Mixture(column(-50, 50) + 0.1 * normal(2), 0.5 + 0 * normal(2), column(share, 1 - share))

    some = uniform(10) * (uniform(10) > 0.5) + column(1e-3, *[0.0] * 9)
    return {
        "like a forecast": Mixture(0.5 * normal(20), 0.5 + uniform(20)),
        "single precision": Mixture(normal(20).float(), (0.1 + uniform(20)).float()),
        "far apart": Mixture(1e3 * normal(6), 0.1 + uniform(6)),
        "very far apart": Mixture(1e8 * normal(3), 0.1 + uniform(3)),
        "12 orders of scale": Mixture(normal(8), 10 ** (12 * uniform(8) - 12)),
        "12 orders, one mean": Mixture(0 * normal(8), 10 ** (12 * uniform(8) - 6)),
        "24 orders": Mixture(10 ** (3 * normal(8)), 10 ** (12 * uniform(8) - 6)),
        "one component": Mixture(normal(1), 0.1 + uniform(1), column(1)),
        "equal components": Mixture(3 + 0 * normal(10), 0.2 + 0 * normal(10)),
        "weights of zero": Mixture(10 * normal(10), 0.1 + uniform(10), some / some.sum(0)),
        "a far one of weight zero": Mixture(column(0, 1e30, 100) + normal(3), 0.1 + uniform(3), column(0.5, 0, 0.5)),
        "a tiny weight far away": Mixture(column(0, 1e9) + normal(2), 0.1 + uniform(2), column(1 - 1e-7, 1e-7)),
        "a large offset": Mixture(1e8 + normal(10), 1 + 0 * normal(10)),
        "a spike among wide ones": Mixture(0.1 * normal(5), column(1e-9, 1, 1, 1, 1) + 0 * normal(5)),
        "a plateau at 0.5": two(0.5),
        "a plateau at 0.05": two(0.05),
        "a plateau next to 0.95": two(0.95 - 1e-9),
    }


def hard_row(name: str, parts: Mixture) -> Row:
    """Return the largest differences of the quantiles of mixtures from those of bisection, over ``LEVELS``.

    ``difference`` is in standard deviations of the mixture, ``probability`` the relative error of the tail at our
    quantile; ``either`` is the smaller of the two for each mixture: on a plateau any point of the right probability is
    a quantile.
    """
    means, scales = parts.means.double(), parts.scales.double()
    centre = mixture.average(means, parts.weights)
    std = mixture.average((means - centre).square() + scales.square(), parts.weights).sqrt()
    worst = torch.zeros(3, dtype=torch.float64)
    found = mixture.quantiles(parts.means, parts.scales, LEVELS, parts.weights)
    for level, own in zip(LEVELS, found, strict=True):
        away = (own - bisected(parts, level)).abs() / std
        wrong = (mixture.cumulative(means, scales, own, parts.weights) - level).abs() / min(level, 1 - level)
        each = torch.stack([away.max(), wrong.max(), torch.minimum(away, wrong).max()])
        worst = torch.maximum(worst, each)
    difference, probability, either = worst.tolist()
    return {"part": HARD, "mixtures": name, "difference": difference, "probability": probability, "either": either}


def fewer_rows(settings: Settings) -> list[Row]:
    """Return the loss of a compressed posterior on new inputs, and that of as many samples drawn at random."""
    torch.manual_seed(0)
    x = torch.rand(2000, 3) * 4 - 2
    y = 100 + 5 * torch.sin(2 * x[:, 0]) * x[:, 1] + 0.3 * torch.randn(2000)
    bnn = mp.BayesByBackprop(mp.MLP(3, [30, 30], 1), mp.Gaussian())
    posterior = bnn.fit(x[:200], y[:200], epochs=settings.epochs, progress=False).posterior_
    new, targets, seeds = x[1000:], y[1000:], range(1, 1 + settings.draws)
    assert isinstance(posterior, mp.Posterior)  # of one network
    full = posterior.predict(new, samples=settings.reference_samples, seed=0)
    rows: list[Row] = []
    for count in settings.kept:
        chosen = [posterior.compress(count, x[:1000], seed=seed).predict(new) for seed in seeds]
        drawn = [posterior.predict(new, samples=count, seed=seed) for seed in seeds]
        for name, forecasts in (("compress", chosen), ("random", drawn)):
            losses = [mp.CompressionLoss.between(full, forecast, targets) for forecast in forecasts]
            mean, std, nll = torch.tensor(losses, dtype=torch.float64).mean(0).tolist()
            rows.append({"part": FEWER, "samples": count, "chosen by": name, "mean": mean, "std": std, "nll": nll})
    return rows


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure speed, then differences, then compression, in one thread."""
    settings = context.settings
    with one_thread():
        speed = speed_rows(settings)
        hard = [hard_row(name, parts) for name, parts in hard_mixtures(settings.columns).items()]
        fewer = fewer_rows(settings)
    headline = {
        "predict_speedup": float(speed[0]["speedup"]),
        "interval_seconds": float(speed[0]["seconds"]),
        "quantile_difference": max(float(row["either"]) for row in hard),
    }
    notes = [
        f"{settings.rows:,} rows, {settings.samples} weight samples, one thread, the least of {settings.repeats} runs",
        f"bisection: {BISECTIONS} of them over the whole array in double precision, as the package's first version did",
        "probability: relative error of the tail; either: the smaller of both for each mixture, the largest over "
        f"mixtures and levels {LEVELS[0]:g} to {LEVELS[-1]:g}; on a plateau any point of the right probability is a "
        "quantile",
        f"mean, std: errors in root mean square standard deviations against {settings.reference_samples} samples on "
        f"inputs that played no part; nll: rise in nats; means over {settings.draws} seeds",
    ]
    return BenchmarkResult(headline, [*speed, *hard, *fewer], notes)


BENCHMARK = Benchmark(
    "prediction",
    "intervals and quantiles of a large table beside bisection, on adversarial mixtures too; compressed posteriors",
    measure,
    full=Settings(),
    quick=Settings(rows=5000, repeats=1, columns=50, epochs=20, kept=(5,), draws=2, reference_samples=500),
    quick_note="a smaller table and a short training",
)
