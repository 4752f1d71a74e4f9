"""What predicts: a distribution over a network's weights, or anything like it; what was learned as a checkpoint's
content, and back."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from metaprior import checkpoint, checks, models
from metaprior.checks import ArrayLike, DataFrameLike, InputsLike
from metaprior.compression import CompressionLoss, chosen_samples
from metaprior.errors import CheckpointError
from metaprior.exporting import exported
from metaprior.forecasts import Forecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.inputs import (
    Axes,
    Inputs,
    concatenate,
    device_of,
    holds_tensors,
    map_parts,
    parts_of,
    rows_of,
    size_of,
    stack,
)
from metaprior.likelihoods import LIKELIHOODS, Likelihood
from metaprior.network import BayesianNetwork, evaluation_mode, first_stage_with
from metaprior.noise import Noise
from metaprior.scaling import TargetScale
from metaprior.team import current_team
from metaprior.weights import WeightDistribution

DEFAULT_SAMPLES = 50
"""Weight samples of a forecast, for ``predict`` and ``evaluate`` of every method."""

NUMBERS_AT_ONCE = 2**23
"""Weights and activations of about this many numbers (32 MiB in float32) are computed together: enough to keep a core
busy, and little memory. Larger networks take one weight sample at a time, larger images one observation."""


CANDIDATES = 500
"""Weight samples that ``compress`` chooses from."""

Shapes = dict[str, list[int]]


def sample_groups(samples: int, numbers_per_sample: int) -> Iterator[range]:
    """Iterate over groups of sample indices of about ``NUMBERS_AT_ONCE`` numbers, at least one sample each."""
    size = max(1, NUMBERS_AT_ONCE // numbers_per_sample)
    for start in range(0, samples, size):
        yield range(start, min(start + size, samples))


@dataclass(frozen=True, repr=False)
class Predictive(ABC):
    """Something that forecasts a task's targets, as ``adapt`` and ``prior_predictive`` return it.

    Subclasses are frozen dataclasses that implement ``network_forecast``.
    """

    network: BayesianNetwork
    """The network, whose type and device inputs are converted to."""
    target_scale: TargetScale = field(kw_only=True)
    """The scale of the user's units."""
    input_axes: Axes | None = field(default=None, kw_only=True)
    """Number of axes that x, or every part of it, must have; None if any number is valid."""
    scalar_targets: bool = field(default=False, kw_only=True)
    """Whether targets came without a channel axis, so that forecasts have none either."""
    spread: float = field(default=1.0, kw_only=True)
    """Factor of the forecasts' spread around their mean, as calibration finds it."""

    def __repr__(self) -> str:
        """Return the network, what is known about it, and a factor of the spread that is not one."""
        facts = [type(self.network.module).__name__, *self._facts()]
        if self.spread != 1:
            facts.append(f"spread times {self.spread:.3g}")
        return f"{type(self).__name__}({', '.join(facts)})"

    def _facts(self) -> list[str]:
        """Return what ``repr`` says beside the network."""
        return []

    @abstractmethod
    def network_forecast(self, inputs: Any, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the forecast in the network's units for checked inputs; arguments are those of ``predict``."""

    def in_units(self, scale: TargetScale, *, scalar_targets: bool) -> Self:
        """Return the same with forecasts in the user's units, without a channel axis if targets have none."""
        return replace(self, target_scale=scale, scalar_targets=scalar_targets)

    def widened(self, factor: float) -> Self:
        """Return the same with forecasts whose spread around their mean is multiplied by a factor."""
        return replace(self, spread=self.spread * factor)

    @overload
    def predict(self, x: Tensor, *, samples: int = ..., seed: int = ..., batch_size: int | None = ...) -> Forecast: ...

    @overload
    def predict(
        self, x: npt.NDArray[Any] | DataFrameLike, *, samples: int = ..., seed: int = ..., batch_size: int | None = ...
    ) -> NumpyForecast: ...

    @overload
    def predict(
        self,
        x: tuple[ArrayLike, ...] | Mapping[str, ArrayLike],
        *,
        samples: int = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> Any: ...

    def predict(
        self, x: InputsLike, *, samples: int = DEFAULT_SAMPLES, seed: int = 0, batch_size: int | None = None
    ) -> Forecast | NumpyForecast:
        """Return the forecast for inputs x, in tensors if one of them is a tensor, and else in NumPy arrays.

        The ranks of the current team share the samples, and all get the forecast, bitwise identical to that of one
        process. Samples that one process computes together are not divided, so a small network's are all on one rank.

        Args:
            x: inputs, first axis the observations; a tensor, a NumPy array or a data frame, or a tuple or dictionary of
                them, which are the arguments of the network.
            samples: draws of the weights, at least 2.
            seed: the same seed gives the same draws.
            batch_size: observations in one pass through the network; by default chosen so that memory stays small.
        """
        forecast = self._forecast(x, samples, seed, batch_size)
        return forecast if holds_tensors(x) else NumpyForecast(forecast)

    def _inputs(self, x: InputsLike) -> Any:
        """Return inputs in the network's type, on its device."""
        inputs = checks.inputs(x, dtype=self.network.dtype, device=self.network.device)
        checks.refuse_other_axes(inputs, self.input_axes)
        return inputs

    def _forecast(self, x: InputsLike, samples: int, seed: int, batch_size: int | None = None) -> Forecast:
        if samples < 2:
            raise ValueError(f"samples must be at least 2 to have a spread, got {samples}")
        inputs = self._inputs(x)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        return self._in_user_units(self.network_forecast(inputs, samples, seed, batch_size))

    def _in_user_units(self, forecast: Forecast) -> Forecast:
        """Return a forecast in the network's units in those of the targets, with the calibrated spread."""
        forecast = forecast.rescaled(*self.target_scale)
        if self.spread != 1:
            forecast = forecast.widened(self.spread)
        return forecast.squeezed() if self.scalar_targets else forecast


@dataclass(frozen=True, repr=False)
class Posterior(Predictive):
    """q(phi) with its network and its likelihood in the network's units."""

    likelihood: Likelihood
    weights: WeightDistribution

    def _facts(self) -> list[str]:
        plain = sum(value.numel() for value in self.weights.plain.values())
        sizes = {"random weights": len(self.weights.mu), "plain parameters": plain}
        facts = [type(self.likelihood).__name__, *(f"{what}: {count}" for what, count in sizes.items() if count)]
        return [*facts, f"mean sigma {float(self.weights.sigma.mean()):.3g}"] if len(self.weights.mu) else facts

    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the forecast from ``samples`` draws of the weights."""
        return self._forecast_of(self._finite_outputs(inputs, samples, seed, batch_size))

    def _forecast_of(self, outputs: Any) -> Forecast:
        """Return the forecast, in the network's units, of outputs (S, N, ...)."""
        return self.likelihood.forecast(outputs, self.weights.plain)

    def _finite_outputs(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Any:
        """Return network outputs (S, N, ...) of ``samples`` draws of the weights; raise for NaN and infinite ones."""
        numbers = self.network.numbers_per_observation(self.weights, inputs)
        batch_size = batch_size or min(size_of(inputs), max(1, NUMBERS_AT_ONCE // numbers))
        numbers = batch_size * self._numbers_by_sample(inputs, numbers)
        groups = list(sample_groups(samples, max(len(self.weights.mu), numbers)))
        outputs = self._outputs(inputs, self._noise(seed), groups, batch_size)
        remedy = "look for inputs far outside of the training data"
        for part in parts_of(outputs):
            checks.refuse_non_finite(part, "the network's output", remedy=remedy)
        return outputs

    @staticmethod
    def _noise(seed: int) -> Noise:
        return Noise(seed).fork("predict")

    def _numbers_by_sample(self, inputs: Inputs, numbers: int) -> int:
        """Return how many numbers of one observation differ between weight samples: those behind the first random
        weight. What comes before is computed once for all samples of a group."""
        try:
            first = first_stage_with(self.network.module, self.network.layout.names)
            return self.network.numbers_behind(first, inputs, self.weights) if first else numbers
        except (ValueError, TypeError, RuntimeError):  # a module whose stages() mean something else: count everything
            return numbers

    def _outputs(self, inputs: Inputs, noise: Noise, groups: Sequence[range], batch_size: int) -> Any:
        """Return network outputs (S, N, ...) of all groups of samples, which are divided over the ranks."""
        team = current_team()
        if team.size == 1:
            return self._outputs_of(groups, inputs, noise, batch_size)
        own = [groups[number] for number in team.share(len(groups))]
        _, parts = team.attempt(lambda: self._outputs_of(own, inputs, noise, batch_size), _on_cpu)
        found = concatenate([part for part in parts if part is not None])
        return map_parts(lambda part: part.to(device_of(inputs)), found)

    def _outputs_of(self, groups: Sequence[range], inputs: Inputs, noise: Noise, batch_size: int) -> Any:
        """Return the outputs of consecutive groups (None if there are none), one group and one batch at a time."""
        outputs, count = None, size_of(inputs)
        with torch.no_grad(), evaluation_mode(self.network.module):
            for group in groups:
                phis = self._draw(noise, group)
                for start in range(0, count, batch_size):
                    rows = slice(start, start + batch_size)
                    function = partial(self.network, plain=self.weights.plain, x=rows_of(inputs, rows))
                    found = self.network.map_samples(function, phis)
                    if outputs is None:
                        outputs = map_parts(partial(_empty, groups[-1].stop - groups[0].start, count), found)
                    place = slice(group.start - groups[0].start, group.stop - groups[0].start)
                    for whole, part in zip(parts_of(outputs), parts_of(found), strict=True):
                        whole[place, rows] = part
        return outputs

    def _draw(self, noise: Noise, group: range) -> Tensor:
        """Return the weight samples (S, D) of these indices."""
        return self.weights.sample(noise.normals(self.weights.mu, group))

    def compress(
        self, k: int, x: InputsLike, y: ArrayLike | None = None, *, candidates: int = CANDIDATES, seed: int = 0
    ) -> "CompressedPosterior":
        """Return what predicts with k fixed weight samples, chosen so that its forecasts are like those of many.

        The samples are those whose outputs on x have the mean and the variance of all candidates' outputs most nearly
        (see ``metaprior.compression``). What that loses, on x, is its ``loss``; measure it on inputs that played no
        part with ``CompressionLoss.between(posterior.predict(x), small.predict(x))``.

        Args:
            k: number of weight samples that are kept, at least 2.
            x: inputs like those that will be predicted, some hundreds.
            y: their targets, for the loss in log-likelihood.
            candidates: number of weight samples to choose from: those of ``predict(x, samples=candidates, seed=seed)``.
            seed: the same seed gives the same candidates.
        """
        checks.check_integer("k", k, 2)
        if candidates < k:
            raise ValueError(f"candidates must be at least k = {k}, got {candidates}. Try {10 * k}")
        outputs = self._finite_outputs(self._inputs(x), candidates, seed, None)
        noise = self._noise(seed)
        phis = torch.cat([self._draw(noise, range(one, one + 1)) for one in chosen_samples(outputs, k)])
        settings = {one.name: getattr(self, one.name) for one in fields(Posterior)}
        small = CompressedPosterior(**settings, phis=phis)
        full = self._in_user_units(self._forecast_of(outputs))
        return replace(small, loss=CompressionLoss.between(full, small._forecast(x, k, seed), y))

    def export(
        self, path: str | Path | None, x: InputsLike, *, samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> ExportedProgram:
        """Return inputs -> (mean, std) as a program of torch's own operations, which runs without this package.

        It holds the weight samples of ``predict(x, samples=samples, seed=seed)`` and the units of targets, and takes
        any number of observations. ``program.module()(x)`` runs it; ``torch.export.load`` reads it from ``path``.

        Args:
            path: file to write, usually with the ending .pt2; None writes none.
            x: inputs, of which only the type and the shape of one observation count.
            samples: draws of the weights, at least 2.
            seed: the same seed gives the same draws.

        Raises:
            ValueError: torch cannot trace the network.
        """
        checks.check_integer("samples", samples, 2)
        inputs = self._inputs(x)

        def forecast(x: Inputs, phis: Tensor) -> Forecast:
            return self._in_user_units(self._forecast_with(x, phis))

        with evaluation_mode(self.network.module):
            return exported(forecast, self._draw(self._noise(seed), range(samples)), inputs, path)

    def _forecast_with(self, x: Inputs, phis: Tensor) -> Forecast:
        """Return the forecast, in the network's units, of given weight samples (S, D), as ``export`` traces it."""
        # One after the other: an error in a program that has vmap in it would leave torch inside of vmap.
        return self._forecast_of(stack([self.network(phi, self.weights.plain, x) for phi in phis]))

    def pruned(self, fraction: float) -> "Posterior":
        """Return the posterior with the ``fraction`` of weights of the lowest signal-to-noise ratio fixed at zero
        (Blundell et al. 2015, 5.1).

        A pruned weight is a point mass: mu = 0 and sigma = 0 (rho = -inf). Its KL to a Gaussian is infinite, so prune
        a posterior that only predicts, not one that is trained further.
        """
        checks.check_share("fraction", fraction)
        count = round(fraction * len(self.weights.mu))
        weakest = self.weights.signal_to_noise().argsort()[:count]
        mu, rho = self.weights.mu.clone(), self.weights.rho.clone()
        mu[weakest], rho[weakest] = 0.0, -torch.inf
        return replace(self, weights=self.weights.replace(mu=mu, rho=rho))


@dataclass(frozen=True, repr=False)
class CompressedPosterior(Posterior):
    """A posterior that predicts with the same few weight samples, whatever number is asked for."""

    phis: Tensor = field(kw_only=True)
    """The weight samples, (k, D)."""
    loss: CompressionLoss = field(default=CompressionLoss(math.nan, math.nan, None), kw_only=True)
    """The difference from the posterior it was made of, measured on the inputs that the samples were chosen by."""

    def _facts(self) -> list[str]:
        return [*super()._facts(), f"weight samples {len(self.phis)}", f"loss of mean {self.loss.mean:.3g}"]

    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the forecast of the k samples; ``samples`` and ``seed`` play no part."""
        return super().network_forecast(inputs, len(self.phis), seed, batch_size)

    def _forecast_of(self, outputs: Any) -> Forecast:
        """Return the forecast whose components are the whole distribution: variances have no k - 1 below them."""
        forecast = super()._forecast_of(outputs)
        some = parts_of(outputs)[0]
        return forecast if forecast.weights is not None else replace(forecast, weights=some.new_ones(len(some)))

    def _draw(self, noise: Noise, group: range) -> Tensor:
        return self.phis[group.start : group.stop]

    def pruned(self, fraction: float) -> "Posterior":
        """Raise TypeError: the weight samples are fixed."""
        raise TypeError("pruned must be asked of the posterior itself, got a compressed one. Try pruned, then compress")


def _empty(samples: int, observations: int, like: Tensor) -> Tensor:
    """Return an empty tensor (S, N, ...) for outputs of the type and shape of some of them."""
    return like.new_empty(samples, observations, *like.shape[2:])


def _on_cpu(outputs: Any) -> Any:
    return None if outputs is None else map_parts(Tensor.cpu, outputs)


class Learned(NamedTuple):
    """What a method has learned, as it is saved."""

    network: BayesianNetwork
    likelihood: Likelihood
    """In the user's units."""
    weights: WeightDistribution
    target_scale: TargetScale
    input_axes: Axes | None = None
    scalar_targets: bool = False

    @classmethod
    def of(cls, posterior: Posterior, likelihood: Likelihood) -> "Learned":
        """Return the content of a posterior; ``likelihood`` is the one in the user's units."""
        scale, axes, scalar = posterior.target_scale, posterior.input_axes, posterior.scalar_targets
        return cls(posterior.network, likelihood, posterior.weights, scale, axes, scalar)

    @property
    def posterior(self) -> Posterior:
        """The weights as something that predicts."""
        likelihood = self.likelihood.in_units_of(self.target_scale)
        return Posterior(
            self.network,
            likelihood,
            self.weights,
            target_scale=self.target_scale,
            input_axes=self.input_axes,
            scalar_targets=self.scalar_targets,
        )


def saved_content(learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and description of a checkpoint."""
    weights, network = learned.weights, learned.network
    tensors = {**weights.named(), **learned.target_scale._asdict()}
    tensors |= {f"constant.{name}": value for name, value in network.constants.items()}
    description = {
        "model": models.describe(network.module),
        "stochastic": network.stochastic,
        "likelihood": checkpoint.describe(learned.likelihood, LIKELIHOODS.values(), Likelihood),
        "scalar_targets": learned.scalar_targets,
        "input_axes": learned.input_axes,
        "parameters": _shapes(network.layout.split(weights.mu)),
    }
    return tensors, description


PlainShapes = Callable[[BayesianNetwork, Likelihood], Mapping[str, Sequence[int]]]
"""Returns the shapes of the plain parameters, by name and without the likelihood's, that a network is learned with."""


def _own_plain(network: BayesianNetwork, likelihood: Likelihood) -> Shapes:
    return _shapes(network.initial().plain)


def rebuild(
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    module: nn.Module | None,
    plain_shapes: PlainShapes = _own_plain,
    *,
    device: str | torch.device | None = None,
) -> Learned:
    """Return what was saved. Networks of this package need no ``module``; it is moved to ``device`` if one is given."""
    module = _rebuilt_module(tensors, description) if module is None else module
    if device is not None:
        module.to(checks.checked_device(device))
    network = BayesianNetwork(module, description["stochastic"])
    likelihood: Likelihood = checkpoint.restore(description["likelihood"], LIKELIHOODS.values(), Likelihood)
    plain = {f"plain.{name}": list(shape) for name, shape in plain_shapes(network, likelihood).items()}
    own = [f"plain.{name}" for name in likelihood.parameter_names]
    of_network = {name: value for name, value in tensors.items() if name not in own}
    _refuse_other_structure(network, plain, of_network, description["parameters"])
    _refuse_damaged_numbers(tensors)
    here = {name: value.to(network.device) for name, value in tensors.items()}
    network.constants = {n.removeprefix("constant."): v for n, v in here.items() if n.startswith("constant.")}
    scale, weights = TargetScale(here["loc"], here["scale"]), WeightDistribution.from_named(here)
    axes = description["input_axes"]
    axes = tuple(axes) if isinstance(axes, list) else axes
    return Learned(network, likelihood, weights, scale, axes, bool(description["scalar_targets"]))


def _rebuilt_module(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> nn.Module:
    if description["model"] is None:
        raise CheckpointError(
            "it was saved from a network of your own, which only your code can build: give it as load(folder, module)"
        )
    module = models.rebuild(description["model"]).to(tensors["mu"].dtype)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(f"constant.{name}" not in tensors)
    return module


def _refuse_other_structure(
    network: BayesianNetwork, plain: Shapes, tensors: Mapping[str, Tensor], saved: Shapes
) -> None:
    start = network.initial()
    given = {**_shapes(network.layout.split(start.mu)), **plain, **_shapes(network.constants, "constant.")}
    stored = {name: value for name, value in tensors.items() if name.startswith(("plain.", "constant."))}
    expected = {**saved, **_shapes(stored)}
    differing = [name for name in {**given, **expected} if given.get(name) != expected.get(name)]
    thawed = [name for name in given if f"constant.{name.removeprefix('plain.')}" in expected]
    if thawed:
        raise CheckpointError(
            f"{len(thawed)} parameters were frozen when this was saved and are learnable in the given module, "
            f"first {thawed[0].removeprefix('plain.')!r}; set requires_grad=False on them"
        )
    if differing:
        name = differing[0]
        raise CheckpointError(
            f"the module does not have the structure that was saved: {len(differing)} parameters or buffers differ, "
            f"first {name!r} (saved {expected.get(name, 'absent')}, given {given.get(name, 'absent')})"
        )
    if any(tensors[name].shape != start.mu.shape for name in ("mu", "rho")):
        raise CheckpointError(f"mu and rho must be vectors of length {len(start.mu)}")
    if tensors["mu"].dtype != network.dtype:
        raise CheckpointError(f"it was saved from a {tensors['mu'].dtype} network, but the module is {network.dtype}")


def _refuse_damaged_numbers(tensors: Mapping[str, Tensor]) -> None:
    for name, value in tensors.items():
        pruned_is_fine = value == -torch.inf if name == "rho" else torch.zeros_like(value, dtype=torch.bool)
        if not bool((torch.isfinite(value) | pruned_is_fine).all()) and not name.startswith("constant."):
            raise CheckpointError(f"tensor {name!r} holds NaN or infinite values")


def _shapes(tensors: Mapping[str, Tensor], prefix: str = "") -> Shapes:
    return {prefix + name: list(value.shape) for name, value in tensors.items()}
