"""How the package is called and what is read from its objects: to be changed when its names change, and only then."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.evaluation import Evaluation
from metaprior.forecasts import Forecast
from tests.golden.digest import Entries
from tests.golden.flat import columns


def mlp(inputs: int = 1, hidden: Sequence[int] = (5,), outputs: int = 1, activation: str = "tanh") -> nn.Module:
    """Return a small network in float64, always the same."""
    torch.manual_seed(0)
    return mp.MLP(inputs, hidden, outputs, activation=activation).double()


def theta_entries(theta: mp.WeightDistribution, prefix: str = "theta") -> Entries:
    """Return the tensors of a distribution over weights; learned step sizes are called log_lr."""
    return {f"{prefix}/{name.removeprefix('plain.')}": value for name, value in theta.named().items()}


def posterior_entries(posterior: mp.Posterior, prefix: str = "posterior") -> Entries:
    """Return the weights of a posterior."""
    return theta_entries(posterior.weights, prefix)


def forecast_entries(forecast: Forecast, y: Tensor | None = None, prefix: str = "forecast") -> Entries:
    """Return mean, total std, its two parts, a quantile, and the log score of targets."""
    found: Entries = {
        f"{prefix}/mean": forecast.mean,
        f"{prefix}/std": forecast.std,
        f"{prefix}/epistemic": forecast.epistemic,
        f"{prefix}/aleatoric": forecast.aleatoric,
    }
    if isinstance(forecast, mp.forecasts.GaussianForecast):
        found[f"{prefix}/quantile 0.9"] = forecast.quantile(0.9)
    if y is not None:
        found[f"{prefix}/log_prob"] = forecast.log_prob(y)
    return found


def evaluation_entries(found: Evaluation, prefix: str = "evaluation") -> Entries:
    """Return every column of the rows (an entry for each number of shots and steps), and of the reliability."""
    entries: Entries = {f"{prefix}/failures": len(found.failures)}
    entries |= {f"{prefix}/{name}": entry for name, entry in columns(found.rows).items()}
    for cell, counts in found.reliability.items():
        entries |= {f"{prefix}/{cell}/{name}": entry for name, entry in columns(counts.rows).items()}
    return entries


def summary_entries(history: Sequence[Any], prefix: str = "history") -> Entries:
    """Return the phases and means of the epochs of a meta-training."""
    rows = [
        {
            **{name: getattr(one, name) for name in ("phase", "tasks", "bad_tasks", "loss")},
            **one.terms,
            **{f"grad_norm_{name}": norm for name, norm in one.grad_norms.items()},
        }
        for one in history
    ]
    return {f"{prefix}/{name}": entry for name, entry in columns(rows).items()}


def r_squared(prediction: Tensor, targets: Tensor) -> float:
    """Return 1 - (squared error) / (squared deviation from each output's mean), both summed over all targets."""
    prediction, targets = prediction.double(), targets.double()
    deviation = (targets - targets.mean(0)).square().sum()
    return float(1 - (targets - prediction).square().sum() / deviation)
