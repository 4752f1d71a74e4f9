"""What ``metaprior demo`` runs: the regression of figure 5 in Blundell et al. 2015, with its predictive band."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from metaprior import scores
from metaprior.bench.result import Row, text_table
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods import HeteroscedasticGaussian
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.models.mlp import MLP
from metaprior.noise import Noise

DATA_RANGE = (0.0, 0.5)
GRID_RANGE = (-0.2, 0.8)
REGIONS = {"left of the data": (-0.2, 0.0), "inside the data": DATA_RANGE, "right of the data": (0.5, 0.8)}
NOISE_STD = 0.02
OBSERVATIONS = 1000


def curve(x: Tensor, noise: Tensor) -> Tensor:
    r"""$y = x + 0.3\sin(2\pi(x+\epsilon)) + 0.3\sin(4\pi(x+\epsilon)) + \epsilon$ (Blundell et al. 2015, 5.2)."""
    shifted = x + noise
    return x + 0.3 * torch.sin(2 * math.pi * shifted) + 0.3 * torch.sin(4 * math.pi * shifted) + noise


def observations(low: float, high: float, count: int, noise: Noise) -> tuple[Tensor, Tensor]:
    """Inputs uniform in [low, high] and noisy values of the curve, both of shape (count,)."""
    x = low + (high - low) * torch.rand(count, generator=noise.fork("inputs").generator())
    return x, curve(x, NOISE_STD * noise.fork("targets").normal(x))


def as_inputs(x: Tensor) -> Tensor:
    """Inputs of the network: data range scaled to about [-1.7, 1.7], shape (N, 1)."""
    low, high = DATA_RANGE
    return ((x - (low + high) / 2) / ((high - low) / math.sqrt(12))).unsqueeze(-1)


def fit(x: Tensor, y: Tensor) -> BayesByBackprop:
    """A network with one hidden layer of 100, every weight of it random; it gives mean and noise scale."""
    torch.manual_seed(0)
    bnn = BayesByBackprop(MLP(1, [100], 2), HeteroscedasticGaussian())
    return bnn.fit(as_inputs(x), y, epochs=1000, batch_size=250, samples=4)


def table(bnn: BayesByBackprop, train_y: Tensor, noise: Noise) -> list[Row]:
    """Fresh observations in every part of the picture, beside a constant prediction."""
    rows: list[Row] = []
    for where, (low, high) in REGIONS.items():
        x, y = observations(low, high, 500, noise.fork(where))
        constant = GaussianForecast(train_y.mean().expand(2, len(y)), train_y.std().expand(2, len(y)))
        for what, forecast in (("constant", constant), ("Bayes by Backprop", bnn.forecast(as_inputs(x)))):
            rows.append({"where": where, "prediction": what, **_measures(forecast, y)})  # type: ignore[arg-type]
    return rows


def _measures(forecast: GaussianForecast, y: Tensor) -> Row:
    return {
        "rmse": scores.root_mean_squared_error(forecast.mean, y),
        "nll": -float(forecast.log_prob(y).mean()),
        "coverage_90": scores.coverage(forecast, y, 0.9),
        "std": float(forecast.std.mean()),
        "epistemic": float(forecast.epistemic.mean()),
        "aleatoric": float(forecast.aleatoric.mean()),
    }


def run(out: Path, say: Callable[[str], None]) -> None:
    """Fit, draw, print, save."""
    from metaprior.report.band import predictive_band

    torch.set_num_threads(1)  # tensors this small are faster on one thread
    noise = Noise(0)
    x, y = observations(*DATA_RANGE, OBSERVATIONS, noise)
    bnn = fit(x, y)
    grid = torch.linspace(*GRID_RANGE, 300)
    forecast = bnn.forecast(as_inputs(grid), samples=500)
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(f"expected a Gaussian forecast, got {type(forecast).__name__}")
    picture = out / "band.png"
    predictive_band(
        picture,
        data=(x, y),
        grid=grid,
        truth=curve(grid, torch.zeros(())),
        forecast=forecast,
        title="Bayes by Backprop on the one-dimensional regression of its paper",
    )
    bnn.save(out / "posterior")
    last = bnn.history_[-1]
    say(f"{OBSERVATIONS} observations, {len(bnn.posterior_.weights.mu)} random weights")
    say(f"free energy per observation {last.free_energy:.3f} = nll {last.nll:.3f} + kl {last.kl:.3f}\n")
    say(text_table(table(bnn, y, noise)))
    say(
        "\nInside the data the 90 % interval should hold 90 % of new observations. Outside, nothing can know the curve:"
        "\nthe band has to widen, and here most of its width is the learned noise scale continued beyond the data."
    )
    say(f"\npicture: {picture}\nfitted network: {out / 'posterior'}")
