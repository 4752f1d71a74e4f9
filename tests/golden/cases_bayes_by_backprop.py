"""Bayes by Backprop: every likelihood, prior, option of the fit, pruning, saving and loading."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import metaprior as mp
from tests.golden.adapters import forecast_entries, mlp, posterior_entries, r_squared
from tests.golden.data import labels_of, wave
from tests.golden.digest import Entries
from tests.golden.registry import case

FIT: dict[str, Any] = {"epochs": 6, "batch_size": 10, "samples": 2, "progress": False}
X_NEW = torch.linspace(-2.5, 2.5, 5, dtype=torch.float64)[:, None]


def fitted(likelihood: mp.Likelihood, y: Tensor, *, outputs: int = 1, fit: Any = None, **settings: Any) -> Any:
    """Return a fit of the wave's inputs with these targets."""
    module: nn.Module = settings.pop("module", None) or mlp(outputs=outputs)
    return mp.BayesByBackprop(module, likelihood, **settings).fit(wave()[0], y, **{**FIT, **(fit or {})})


def predicted(model: Any, x: Tensor) -> Any:
    """Return a forecast from a few weight samples."""
    return model.predict(x, samples=7, seed=3)


def entries(model: Any, y: Tensor) -> Entries:
    """Return weights, history, a forecast and scores of a fit."""
    x = wave()[0]
    found = posterior_entries(model.posterior_) | forecast_entries(predicted(model, X_NEW))
    row = model.evaluate(x, y, samples=7).row()
    score = 1 - row["error"] if "error" in row else r_squared(model.predict(x, samples=7).mean, y)
    found |= {"score/score": score, "score/nll": row["nll"]}
    for name, field in (("nll", "nll"), ("kl", "kl"), ("held_out", "validation")):
        values = [getattr(epoch, field) for epoch in model.history_]
        if None not in values:
            found[f"history/{name}"] = torch.tensor(values, dtype=torch.float64)
    return found


@case("bbb/gaussian, learned noise, standardised")
def gaussian(folder: Path) -> Entries:
    _, y = wave()
    return entries(fitted(mp.Gaussian(), y), y)


@case("bbb/gaussian, scalar targets and NumPy")
def scalar_targets(folder: Path) -> Entries:
    x, y = wave()
    model = mp.BayesByBackprop(mlp(), mp.Gaussian()).fit(x.numpy(), y[:, 0].numpy(), **FIT)
    return entries(model, y[:, 0])


@case("bbb/gaussian, fixed noise, not standardised")
def fixed_noise(folder: Path) -> Entries:
    y = wave()[1] / 10
    return entries(fitted(mp.Gaussian(noise=0.3), y, standardize=False, temperature=0.5, relative_sigma=0.2), y)


@case("bbb/heteroscedastic")
def heteroscedastic(folder: Path) -> Entries:
    _, y = wave()
    return entries(fitted(mp.HeteroscedasticGaussian(), y, outputs=2), y)


@case("bbb/crps")
def crps(folder: Path) -> Entries:
    _, y = wave()
    return entries(fitted(mp.CRPSGaussian(), y, outputs=2), y)


@case("bbb/categorical")
def categorical(folder: Path) -> Entries:
    labels = labels_of(wave()[1], 3)
    model = fitted(mp.Categorical(), labels, outputs=3)
    return entries(model, labels) | {"labels": predicted(model, X_NEW).labels}


@case("bbb/bernoulli")
def bernoulli(folder: Path) -> Entries:
    labels = labels_of(wave()[1], 2)[:, None].double()
    return entries(fitted(mp.Bernoulli(), labels), labels)


@case("bbb/validation and early stopping")
def early_stopping(folder: Path) -> Entries:
    _, y = wave()
    fit = {"validation": 0.25, "patience": 2, "epochs": 40, "kl_warmup": 0.1, "lr": 0.1}
    model = fitted(mp.Gaussian(), y, fit=fit)
    return entries(model, y) | {"epochs": len(model.history_)}


@case("bbb/validation with given data")
def given_validation(folder: Path) -> Entries:
    _, y = wave()
    return entries(fitted(mp.Gaussian(per_channel=True), y, fit={"validation": wave(9, seed=5)}), y)


@case("bbb/scale mixture prior, geometric weighting, pruned")
def scale_mixture(folder: Path) -> Entries:
    _, y = wave()
    prior = mp.ScaleMixturePrior(0.4, 1.0, 0.05)
    model = fitted(mp.Gaussian(), y, prior=prior, fit={"weighting": "geometric", "kl_warmup": 0.0})
    before = entries(model, y)
    pruned = model.prune(0.5)
    return before | {f"pruned/{name}": value for name, value in entries(pruned, y).items()}


@case("bbb/learned prior, some parameters random")
def learned_prior(folder: Path) -> Entries:
    _, y = wave()
    module = mlp()
    size = sum(p.numel() for name, p in module.named_parameters() if name.endswith("weight"))
    ramp = torch.linspace(-0.3, 0.3, size, dtype=torch.float64)
    prior = mp.WeightDistribution(ramp, ramp - 1, {})
    return entries(fitted(mp.Gaussian(), y, module=module, prior=prior, stochastic=".*weight", seed=4), y)


@case("bbb/saved and loaded")
def saved(folder: Path) -> Entries:
    _, y = wave()
    fitted(mp.Gaussian(), y, prior=mp.NormalPrior(0.5)).save(folder / "fit")
    return entries(mp.BayesByBackprop.load(folder / "fit"), y)
