"""Forecasts and scores of given samples: what no training decides."""

from pathlib import Path

import torch

from metaprior import mixture, scores
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast
from tests.golden.adapters import forecast_entries, r_squared
from tests.golden.data import generator
from tests.golden.digest import Entries
from tests.golden.flat import columns
from tests.golden.registry import case

LEVELS = (0.05, 0.5, 0.9)


def normals(*shape: int, seed: int) -> torch.Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


@case("forecasts/gaussian")
def gaussian(folder: Path) -> Entries:
    means, targets = normals(6, 8, 2, seed=1), normals(8, 2, seed=2)
    forecast = GaussianForecast(means, 0.2 + normals(6, 8, 2, seed=3).abs())
    low, high = forecast.interval(0.8)
    found = forecast_entries(forecast, targets) | {"interval/low": low, "interval/high": high}
    found |= {f"quantile {level}": forecast.quantile(level) for level in LEVELS}
    found |= {"cdf": forecast.cdf(targets), "crps": scores.crps(forecast, targets)}
    found["coverage 0.8"] = float(((targets >= low) & (targets <= high)).double().mean())
    found["mse"] = scores.mean_squared_error(forecast.mean, targets)
    found["r_squared"] = r_squared(forecast.mean, targets)
    reliability = scores.IntervalReliability()
    reliability.add(forecast, targets)
    return found | {f"reliability/{name}": entry for name, entry in columns(reliability.rows).items()}


@case("forecasts/mixture of Gaussians of many values")
def mixture_of_many(folder: Path) -> Entries:
    means, scales, values = 3 * normals(5, 9, seed=4), 0.1 + normals(5, 9, seed=5).abs(), normals(9, seed=6)
    return {
        "cumulative": mixture.cumulative(means, scales, values),
        "log_density": mixture.log_density(means, scales, values),
        "variance": mixture.variance(means, scales),
        "crps": mixture.crps(means, scales, values),
        "quantiles": mixture.quantiles(means, scales, LEVELS),
    }


@case("forecasts/labels")
def labels(folder: Path) -> Entries:
    classes = torch.randint(3, (12,), generator=generator(7))
    binary = (normals(12, 1, seed=8) > 0).double()
    found: Entries = {}
    for name, forecast, targets in (
        ("categorical", CategoricalForecast(2 * normals(5, 12, 3, seed=9)), classes),
        ("bernoulli", BernoulliForecast(2 * normals(5, 12, 1, seed=10)), binary),
    ):
        found |= forecast_entries(forecast, targets, name)
        found |= {f"{name}/labels": forecast.labels, f"{name}/entropy": forecast.entropy}
        found |= {f"{name}/mutual_information": forecast.mutual_information}
        found |= {f"{name}/confidence": scores.confidence(forecast)}
        found |= {f"{name}/error_rate": scores.error_rate(forecast, targets)}
        reliability = scores.Reliability()
        reliability.add(forecast, targets)
        found |= {f"{name}/ece": reliability.ece}
        found |= {f"{name}/reliability/{key}": entry for key, entry in columns(reliability.rows).items()}
    found["categorical/expected_calibration_error"] = found["categorical/ece"]  # one function now
    return found
