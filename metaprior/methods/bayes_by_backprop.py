r"""Bayes by Backprop: a Gaussian posterior over the weights of one network, from one data set.

Minimises $\frac1N\big(KL(q(w)\|p(w)) - \frac1T E_q[\log p(D|w)]\big)$ with reparameterised
gradients (Blundell et al. 2015, "Weight Uncertainty in Neural Networks").
"""

import os
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from metaprior import checkpoint, checks, models
from metaprior.checks import ArrayLike
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast
from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.methods.free_energy_descent import Data, Epoch, Model, Plan, descend
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.priors import NormalPrior, Prior, ScaleMixturePrior
from metaprior.scaling import TargetScale
from metaprior.scores import r_squared
from metaprior.weights import DEFAULT_RELATIVE_SIGMA, BayesianNetwork, WeightDistribution

LIKELIHOODS = (Gaussian, HeteroscedasticGaussian, Categorical, Bernoulli)
PRIORS = (NormalPrior, ScaleMixturePrior)
Array = Tensor | npt.NDArray[Any]


class BayesByBackprop:
    """Variational inference for any ``nn.Module``, with scikit-learn's manners.

    Args:
        module: the network. It is not modified: its present parameters are where the means start, so pretrained
            weights are loaded by loading them into the module.
        likelihood: how outputs and targets are related: ``Gaussian()``, ``HeteroscedasticGaussian()``,
            ``Categorical()``, ``Bernoulli()``.
        prior: ``NormalPrior(std)``, ``ScaleMixturePrior(pi, std1, std2)``, or a learned ``WeightDistribution``.
        stochastic: regular expression for the names of the random parameters; the others are learned as plain ones.
        temperature: T of the posterior; below 1 the likelihood counts more ("cold"), above 1 less.
        relative_sigma: initial sigma of each tensor as a fraction of its own root mean square.
        standardize: for real-valued targets, work in units of their mean and standard deviation inside. Everything
            that goes in or comes out is in the targets' own units.
        seed: of the shuffling and of the weight noise; the same seed gives the same fit.

    After ``fit``: ``posterior_`` (the weights, ready to predict) and ``history_`` (the terms of every epoch).
    """

    posterior_: Posterior
    history_: list[Epoch]

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        prior: Prior = NormalPrior(),  # noqa: B008 (frozen)
        stochastic: str = ".*",
        temperature: float = 1.0,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        seed: int = 0,
    ) -> None:
        for name, value in (("temperature", temperature), ("relative_sigma", relative_sigma)):
            if not (0 < value < float("inf")):
                raise ValueError(f"{name} has to be a positive number, got {value}")
        self.module = module
        self.likelihood = likelihood
        self.prior = prior
        self.stochastic = stochastic
        self.temperature = temperature
        self.relative_sigma = relative_sigma
        self.standardize = standardize
        self.seed = seed

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        epochs: int = 200,
        batch_size: int = 128,
        lr: float = 1e-2,
        samples: int = 2,
        weighting: str = "uniform",
        kl_warmup: float = 0.5,
        validation: float | tuple[ArrayLike, ArrayLike] | None = None,
        patience: int = 50,
        progress: bool = True,
    ) -> Self:
        """Fit from the module's parameters as they are; an earlier fit is replaced only when this one succeeds.

        Args:
            x: inputs, first axis the observations; a tensor or a NumPy array.
            y: targets (N,), (N, C) or (N, C, ...), or labels.
            epochs: passes over the data.
            batch_size: observations in a step.
            lr: Adam's learning rate, falling to zero along a cosine.
            samples: weight samples in a step.
            weighting: how an epoch's steps share the KL: "uniform", or "geometric" (the paper's: most at its start).
            kl_warmup: fraction of the training over which the KL's weight rises from 0 to 1. The means find the data
                before the prior pulls; from there on the objective is the free energy itself. 0 turns it off.
            validation: held-out data as a pair (x, y), or the fraction of the observations to hold out. Training then
                stops when the held-out free energy has not improved for ``patience`` epochs (counted after the
                warm-up), and the best weights are kept.
            patience: see ``validation``.
            progress: show a progress bar (on anything longer than a second).
        """
        plan = Plan(epochs, batch_size, lr, samples, weighting, kl_warmup, patience, progress)
        network = BayesianNetwork(self.module, self.stochastic)
        noise = Noise(self.seed)
        inputs = checks.inputs(x, dtype=network.dtype, device=network.device)
        output_shape = network.check_forward(inputs)
        data, scalar_targets = self._pairs(network, inputs, y, output_shape)
        held_out = None
        if isinstance(validation, tuple):
            held_inputs = checks.inputs(validation[0], dtype=network.dtype, device=network.device)
            held_out, _ = self._pairs(network, held_inputs, validation[1], output_shape)
        elif validation is not None:
            data, held_out = _hold_out(data, validation, noise)
        scale = self._target_scale(data.y)
        model = Model(network, self.likelihood.in_units_of(scale.scale), self.prior, self.temperature)
        data = self._in_internal_units(data, scale)
        start = network.initial(self.relative_sigma)
        start.plain.update(self.likelihood.initial_parameters(data.y))
        held_out = held_out and self._in_internal_units(held_out, scale)
        weights, self.history_ = descend(model, start, data, held_out, plan, noise)
        self.posterior_ = Posterior(network, model.likelihood, weights, scale, scalar_targets)
        return self

    def forecast(self, x: ArrayLike, *, samples: int = 100, seed: int = 0) -> Forecast:
        """Everything about the prediction: mean, std, epistemic, aleatoric, quantile(level), log_prob(y), ..."""
        return self._fitted().predict(x, samples=samples, seed=seed)

    def predict(
        self, x: ArrayLike, *, return_std: bool = False, samples: int = 100, seed: int = 0
    ) -> Array | tuple[Array, Array]:
        """Mean prediction in the targets' units (for labels: the most probable), and its total std if asked for.

        NumPy in, NumPy out; tensors in, tensors out. For labels the std is that of the 0/1 outcome of each class.
        """
        forecast = self.forecast(x, samples=samples, seed=seed)
        labelled = isinstance(forecast, CategoricalForecast | BernoulliForecast)
        prediction = _like(x, forecast.labels if labelled else forecast.mean)  # type: ignore[attr-defined]
        return (prediction, _like(x, forecast.std)) if return_std else prediction

    def predict_proba(self, x: ArrayLike, *, samples: int = 100, seed: int = 0) -> Array:
        """Class probabilities, averaged over weight samples: (N, C), for 0/1 labels (N, ..., 2)."""
        forecast = self.forecast(x, samples=samples, seed=seed)
        if not isinstance(forecast, CategoricalForecast | BernoulliForecast):
            raise TypeError(
                f"{type(self.likelihood).__name__} predicts real numbers, which have no class probabilities"
            )
        return _like(x, forecast.probabilities)

    def score(self, x: ArrayLike, y: ArrayLike, *, samples: int = 100, seed: int = 0) -> float:
        """Accuracy for labels, R^2 (share of the variance explained) for real-valued targets."""
        forecast, targets = self._forecast_and_targets(x, y, samples, seed)
        if isinstance(forecast, CategoricalForecast | BernoulliForecast):
            return float((forecast.labels == targets).double().mean())
        return r_squared(forecast.mean, targets)

    def nll(self, x: ArrayLike, y: ArrayLike, *, samples: int = 100, seed: int = 0) -> float:
        """Mean negative log predictive density of the observations, in the targets' units; lower is better."""
        forecast, targets = self._forecast_and_targets(x, y, samples, seed)
        return -float(forecast.log_prob(targets).double().mean())

    def prune(self, fraction: float) -> Self:
        """Fix the given fraction of random weights, those of the lowest signal-to-noise ratio, at zero."""
        self.posterior_ = self._fitted().pruned(fraction)
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fit to a folder (safetensors and JSON); an earlier one there is replaced only by a complete one."""
        posterior = self._fitted()
        tensors = {"mu": posterior.weights.mu, "rho": posterior.weights.rho, **posterior.target_scale._asdict()}
        tensors |= {f"plain.{name}": value for name, value in posterior.weights.plain.items()}
        tensors |= {f"constant.{name}": value for name, value in posterior.network.constants.items()}
        if isinstance(self.prior, WeightDistribution):
            tensors |= {"prior.mu": self.prior.mu, "prior.rho": self.prior.rho}
            prior = None
        else:
            prior = checkpoint.describe(self.prior, PRIORS)
        settings = {name: getattr(self, name) for name in _SETTINGS}
        description = {
            "settings": settings,
            "model": models.describe(self.module),
            "likelihood": checkpoint.describe(self.likelihood, LIKELIHOODS),
            "prior": prior,
            "scalar_targets": posterior.scalar_targets,
            "parameters": {n: list(s) for n, s in zip(*_names_and_shapes(posterior.network), strict=True)},
            "history": [asdict(epoch) for epoch in self.history_],
        }
        checkpoint.write(folder, "BayesByBackprop", tensors, description)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], module: nn.Module | None = None) -> Self:
        """A saved fit. Networks of this package are rebuilt; for any other, give a module of the same structure."""
        tensors, description = checkpoint.read(folder, "BayesByBackprop")
        if module is None:
            if description["model"] is None:
                raise checkpoint.CheckpointError(
                    f"{folder} was saved from a network of your own, which only your code can build: "
                    "give it as load(folder, module)"
                )
            module = models.rebuild(description["model"])
        network = BayesianNetwork(module, description["settings"]["stochastic"])
        _refuse_other_structure(network, description["parameters"], tensors)
        likelihood = checkpoint.restore(description["likelihood"], LIKELIHOODS)
        if description["prior"] is None:
            prior: Prior = WeightDistribution(tensors["prior.mu"], tensors["prior.rho"], {})
        else:
            prior = checkpoint.restore(description["prior"], PRIORS)
        loaded = cls(module, likelihood, prior=prior, **description["settings"])
        on_device = {name: value.to(network.device) for name, value in tensors.items()}
        network.constants = _with_prefix(on_device, "constant.")
        scale = TargetScale(on_device["loc"], on_device["scale"])
        weights = WeightDistribution(on_device["mu"], on_device["rho"], _with_prefix(on_device, "plain."))
        loaded.posterior_ = Posterior(
            network, likelihood.in_units_of(scale.scale), weights, scale, description["scalar_targets"]
        )
        loaded.history_ = [Epoch(**epoch) for epoch in description["history"]]
        return loaded

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise RuntimeError("this BayesByBackprop is not fitted yet; call fit(x, y) first")
        return self.posterior_

    def _pairs(
        self, network: BayesianNetwork, inputs: Tensor, y: ArrayLike, output_shape: torch.Size
    ) -> tuple[Data, bool]:
        """Checked data in the user's units, and whether the targets came without a channel axis."""
        targets = checks.as_tensor(y, "y", device=network.device)
        checks.same_length(inputs, targets)
        shaped = self.likelihood.check_targets(targets, output_shape)
        if not isinstance(self.likelihood, Categorical):
            shaped = checks.as_float(shaped, "y", network.dtype)
        return Data(inputs, shaped), shaped.ndim > targets.ndim

    def _target_scale(self, targets: Tensor) -> TargetScale:
        if self.standardize and self.likelihood.continuous:
            return TargetScale.standardising(targets)
        return TargetScale.identity(targets)

    def _in_internal_units(self, data: Data, scale: TargetScale) -> Data:
        return Data(data.x, scale.to_internal(data.y)) if self.likelihood.continuous else data

    def _forecast_and_targets(self, x: ArrayLike, y: ArrayLike, samples: int, seed: int) -> tuple[Forecast, Tensor]:
        forecast = self.forecast(x, samples=samples, seed=seed)
        targets = checks.as_tensor(y, "y", device=forecast.mean.device)
        expected = forecast.labels if isinstance(forecast, CategoricalForecast) else forecast.mean
        if targets.shape != expected.shape:
            raise ValueError(f"y has shape {tuple(targets.shape)}, but the predictions have {tuple(expected.shape)}")
        return forecast, targets.to(expected.dtype)


_SETTINGS = ("stochastic", "temperature", "relative_sigma", "standardize", "seed")


def _hold_out(data: Data, fraction: float, noise: Noise) -> tuple[Data, Data]:
    """Training and held-out part, at random."""
    count = round(fraction * len(data))
    if not (0 < fraction < 1 and 0 < count < len(data)):
        raise ValueError(
            f"validation={fraction} of {len(data)} observations leaves one of the two parts empty; "
            "give a fraction between 0 and 1, or the held-out data as a pair (x, y)"
        )
    order = torch.randperm(len(data), generator=noise.fork("hold out").generator()).to(data.x.device)
    return data[order[count:]], data[order[:count]]


def _like(x: ArrayLike, values: Tensor) -> Array:
    return values.cpu().numpy() if isinstance(x, np.ndarray) else values


def _names_and_shapes(network: BayesianNetwork) -> tuple[tuple[str, ...], tuple[torch.Size, ...]]:
    return network.layout.names, network.layout.shapes


def _refuse_other_structure(network: BayesianNetwork, saved: dict[str, list[int]], tensors: dict[str, Tensor]) -> None:
    given = {name: list(shape) for name, shape in zip(*_names_and_shapes(network), strict=True)}
    plain = {name: list(value.shape) for name, value in network.initial().plain.items()}
    saved_plain = {name: list(value.shape) for name, value in _with_prefix(tensors, "plain.").items()}
    differing = [name for name in {**given, **saved} if given.get(name) != saved.get(name)]
    differing += [name for name in plain if plain[name] != saved_plain.get(name)]
    if differing:
        name = differing[0]
        raise checkpoint.CheckpointError(
            f"the module does not have the structure that was saved: {len(differing)} parameters differ, "
            f"first {name!r} (saved {saved.get(name) or saved_plain.get(name) or 'absent'}, "
            f"given {given.get(name) or plain.get(name) or 'absent'})"
        )


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
