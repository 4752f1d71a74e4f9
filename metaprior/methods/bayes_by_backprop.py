r"""Bayes by Backprop: a Gaussian posterior over the weights of one network, from one data set.

Minimises $\frac1N\big(KL(q(w)\|p(w)) - \frac1T E_q[\log p(D|w)]\big)$ with reparameterised
gradients (Blundell et al. 2015, "Weight Uncertainty in Neural Networks").
"""

import os
from dataclasses import asdict
from numbers import Real
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from metaprior import checkpoint, checks, saved_posterior
from metaprior.checks import ArrayLike
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, check_shape
from metaprior.likelihoods import NOISE, Likelihood
from metaprior.methods.free_energy_descent import Data, Epoch, Model, Plan, descend
from metaprior.network import DEFAULT_RELATIVE_SIGMA, BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.priors import NormalPrior, Prior, ScaleMixturePrior
from metaprior.scaling import TargetScale
from metaprior.scores import r_squared
from metaprior.weights import WeightDistribution

PRIORS = (NormalPrior, ScaleMixturePrior)
KIND = "BayesByBackprop"
Array = Tensor | npt.NDArray[Any]
Validation = float | tuple[ArrayLike, ArrayLike] | None


class BayesByBackprop:
    """Variational inference for any ``nn.Module`` that takes one tensor and returns one.

    Used like a scikit-learn estimator: ``fit``, ``predict(return_std=True)``, ``predict_proba``, ``score``.

    Args:
        module: the network. Its present parameters are where the means start (so pretrained weights are loaded by
            loading them into the module), and they are left as they are.
        likelihood: how outputs and targets are related: ``Gaussian()``, ``HeteroscedasticGaussian()``,
            ``Categorical()``, ``Bernoulli()``.
        prior: ``NormalPrior(std)``, ``ScaleMixturePrior(pi, std1, std2)``, or a learned ``WeightDistribution``.
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all); the others are learned as plain ones.
        temperature: T of the posterior; below 1 the likelihood counts more ("cold"), above 1 less.
        relative_sigma: initial sigma of each tensor as a fraction of its own root mean square.
        standardize: for real-valued targets, work in units of their mean and standard deviation inside. Data,
            predictions and a fixed noise are in the targets' own units; the terms in ``history_`` are in the inner.
        seed: of the shuffling and of the weight noise; the same seed gives the same fit of the same module. (A module
            that draws random numbers itself, such as dropout, takes them from torch's global generator.)

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
        stochastic: str | None = None,
        temperature: float = 1.0,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        seed: int = 0,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module has to be a torch.nn.Module, got {type(module).__name__}")
        if not hasattr(prior, "kl_from"):
            raise TypeError(f"prior has to be one like NormalPrior(1.0) or a WeightDistribution, got {prior!r}")
        if not isinstance(likelihood, Likelihood):
            raise TypeError(f"likelihood has to be one like Gaussian() or Categorical(), got {likelihood!r}")
        for name, value in (("temperature", temperature), ("relative_sigma", relative_sigma)):
            if not isinstance(value, Real) or not 0 < value < float("inf"):
                raise ValueError(f"{name} has to be a positive number, got {value!r}")
        network = BayesianNetwork(
            module, stochastic
        )  # what cannot be made Bayesian is said here, not after the data are loaded
        self.module = module
        self.likelihood = likelihood
        self.prior = prior
        self.stochastic = network.stochastic
        self.temperature = float(temperature)
        self.relative_sigma = float(relative_sigma)
        self.standardize = bool(standardize)
        self.seed = int(seed)

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
        validation: Validation = None,
        patience: int = 50,
        progress: bool = True,
    ) -> Self:
        """Fit from the module's parameters as they are; an earlier fit is replaced only when this one succeeds.

        Args:
            x: inputs, first axis the observations; a tensor or a NumPy array. Their scale is yours to choose: about
                mean 0 and standard deviation 1 in every feature.
            y: targets (N,), (N, C) or (N, C, ...), or labels.
            epochs: passes over the data.
            batch_size: observations in a step.
            lr: Adam's learning rate, falling to zero along a cosine.
            samples: weight samples in a step.
            weighting: how an epoch's steps share the KL: "uniform", or "geometric" (the paper's: most at its start).
            kl_warmup: fraction of the training over which the KL's weight rises from 0 to 1. The means find the data
                before the prior pulls; from there on the objective is the free energy itself. 0 turns it off.
            validation: held-out data as a pair (x, y), or the fraction of the observations to hold out. Training then
                stops when the held-out free energy has not improved for ``patience`` epochs, and the weights of the
                best epoch are kept. Epochs of the KL's warm-up (a fraction of ``epochs``) are not compared.
            patience: see ``validation``.
            progress: show a progress bar (on anything longer than a second).
        """
        plan = Plan(epochs, batch_size, lr, samples, weighting, kl_warmup, patience, progress)
        network, noise = BayesianNetwork(self.module, self.stochastic), Noise(self.seed)
        inputs = self._inputs(network, x)
        checks.warn_of_scale(inputs)
        output_shape = network.check_forward(inputs)
        data = self._pairs(network, inputs, y, output_shape)
        scalar_targets = data.y.ndim > y.ndim
        data, held_out = self._divided(network, data, validation, output_shape, noise)
        scale = self._target_scale(data.y)
        data, held_out = self._internal(network, data, scale), held_out and self._internal(network, held_out, scale)
        start = network.initial(self.relative_sigma)
        prior, numbers = self._checked_prior(network), network.numbers_per_observation(start, inputs)
        model = Model(network, self.likelihood.in_units_of(scale.scale), prior, self.temperature, numbers)
        if NOISE in {*network.layout.names, *start.plain}:
            raise ValueError(
                f"the module has a parameter called {NOISE!r}, which is the name of the noise scale; rename it"
            )
        start.plain.update(self.likelihood.initial_parameters(data.y))
        weights, self.history_ = descend(model, start, data, held_out, plan, noise)
        self.posterior_ = Posterior(network, model.likelihood, weights, scale, inputs.ndim, scalar_targets)
        return self

    def forecast(self, x: ArrayLike, *, samples: int = 100, seed: int = 0) -> Forecast:
        """Everything about the prediction: mean, std, epistemic, aleatoric, quantile(level), log_prob(y), ..."""
        return self._fitted().predict(x, samples=samples, seed=seed)

    @overload
    def predict(
        self, x: ArrayLike, *, return_std: Literal[False] = ..., samples: int = ..., seed: int = ...
    ) -> Array: ...

    @overload
    def predict(
        self, x: ArrayLike, *, return_std: Literal[True], samples: int = ..., seed: int = ...
    ) -> tuple[Array, Array]: ...

    @overload
    def predict(
        self, x: ArrayLike, *, return_std: bool, samples: int = ..., seed: int = ...
    ) -> Array | tuple[Array, Array]: ...

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
        tensors, description = saved_posterior.content(self._fitted(), self.likelihood)
        if isinstance(self.prior, WeightDistribution):
            tensors |= {"prior.mu": self.prior.mu, "prior.rho": self.prior.rho}
        else:
            description["prior"] = checkpoint.describe(self.prior, PRIORS)
        description["settings"] = {name: getattr(self, name) for name in _SETTINGS}
        description["history"] = [asdict(epoch) for epoch in self.history_]
        checkpoint.write(folder, KIND, tensors, description)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], module: nn.Module | None = None) -> Self:
        """A saved fit. Networks of this package are rebuilt; for any other, give a module of the same structure."""
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            posterior, likelihood = saved_posterior.rebuild(tensors, description, module)
            if "prior" in description:
                prior: Prior = checkpoint.restore(description["prior"], PRIORS)
            else:
                prior = WeightDistribution(tensors["prior.mu"], tensors["prior.rho"])
            settings = {"stochastic": description["stochastic"], **description["settings"]}
            loaded = cls(posterior.network.module, likelihood, prior=prior, **settings)
            loaded.posterior_ = posterior
            loaded.history_ = [Epoch(**epoch) for epoch in description["history"]]
        return loaded

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise RuntimeError("this BayesByBackprop is not fitted yet; call fit(x, y) first")
        return self.posterior_

    def _inputs(self, network: BayesianNetwork, x: ArrayLike) -> Tensor:
        return checks.inputs(x, dtype=network.dtype, device=network.device)

    def _pairs(self, network: BayesianNetwork, inputs: Tensor, y: ArrayLike, output_shape: torch.Size) -> Data:
        """Checked data in the user's units; a missing channel axis is added to the targets."""
        targets = checks.as_tensor(y, "y", device=network.device)
        checks.same_length(inputs, targets)
        targets = self.likelihood.check_targets(targets, output_shape)
        return Data(inputs, checks.at_least_single(targets) if self.likelihood.continuous else targets)

    def _divided(
        self, network: BayesianNetwork, data: Data, validation: Validation, output_shape: torch.Size, noise: Noise
    ) -> tuple[Data, Data | None]:
        """Training and held-out data."""
        if validation is None:
            return data, None
        if isinstance(validation, tuple | list):
            held_x, held_y = validation
            return data, self._pairs(network, self._inputs(network, held_x), held_y, output_shape)
        return _hold_out(data, validation, noise)

    def _target_scale(self, targets: Tensor) -> TargetScale:
        if self.standardize and self.likelihood.continuous:
            return TargetScale.standardising(targets)
        return TargetScale.identity(targets)

    def _internal(self, network: BayesianNetwork, data: Data, scale: TargetScale) -> Data:
        """Data in the network's units and type."""
        if not data.y.is_floating_point():
            return data
        targets = scale.to_internal(data.y) if self.likelihood.continuous else data.y
        return Data(data.x, checks.as_float(targets, "y", network.dtype))

    def _checked_prior(self, network: BayesianNetwork) -> Prior:
        if not isinstance(self.prior, WeightDistribution):
            return self.prior
        expected = (network.layout.dimension,)
        for name in ("mu", "rho"):
            value = getattr(self.prior, name)
            if value.shape != expected:
                raise ValueError(f"the prior's {name} has shape {tuple(value.shape)}, the random weights {expected}")
            checks.refuse_non_finite(value, f"the prior's {name}", remedy="it has to come from a finished training")
        mu, rho = (value.detach().to(network.device, network.dtype) for value in (self.prior.mu, self.prior.rho))
        return WeightDistribution(mu, rho)

    def _forecast_and_targets(self, x: ArrayLike, y: ArrayLike, samples: int, seed: int) -> tuple[Forecast, Tensor]:
        forecast = self.forecast(x, samples=samples, seed=seed)
        targets = checks.as_tensor(y, "y", device=forecast.mean.device)
        if self.likelihood.continuous:
            check_shape(targets, forecast.mean.shape)
            return forecast, targets.to(forecast.mean.dtype)
        checks.same_length(forecast.mean, targets)
        return forecast, self.likelihood.check_targets(targets, forecast.mean.shape)


_SETTINGS = ("temperature", "relative_sigma", "standardize", "seed")


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
