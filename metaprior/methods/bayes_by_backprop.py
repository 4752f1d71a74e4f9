r"""Bayes by Backprop: a Gaussian posterior over the weights of one network, from one data set.

Minimises $\frac1N\big(KL(q(w)\|p(w)) - \frac1T E_q[\log p(D|w)]\big)$ with reparameterised
gradients (Blundell et al. 2015, "Weight Uncertainty in Neural Networks").
"""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from metaprior import checkpoint, checks, history
from metaprior.callbacks import Callbacks, Fit
from metaprior.checks import ArrayLike
from metaprior.ensemble import EnsemblePosterior, fresh_start
from metaprior.evaluation import Evaluation, evaluate
from metaprior.history import EpochRecord
from metaprior.likelihoods import NOISE_RHO, Likelihood, Masked
from metaprior.methods.cross_fit import fitted_spread, parts_of, without_parts
from metaprior.methods.free_energy_fit import Budget, FreeEnergyFit, hold_out
from metaprior.methods.method import Method
from metaprior.minibatches import HeldOut, HeldOutData, Minibatches, ShuffledData, StreamedData, WeightedExamples
from metaprior.missing import TargetCount, any_of_row
from metaprior.network import DEFAULT_RELATIVE_SIGMA
from metaprior.noise import Noise
from metaprior.posterior import DEFAULT_SAMPLES, Learned, Posterior, rebuild, saved_content
from metaprior.priors import NormalPrior, Prior, ScaleMixturePrior
from metaprior.scaling import TargetScale
from metaprior.stack_descent import DescentPlan, FreeEnergy, checked_theta
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

PRIORS = (NormalPrior, ScaleMixturePrior)
KIND = "BayesByBackprop"
Loaded = Dataset[Any] | DataLoader[Any]
"""Pairs (x, y) by torch's own means: a data set, or a loader of batches."""
Validation = float | tuple[ArrayLike, ArrayLike] | Loaded | None
_SETTINGS = {"temperature": float, "relative_sigma": float, "standardize": bool, "seed": int, "members": int}


class BayesByBackprop(Method):
    """Variational inference for any ``nn.Module`` that takes one tensor and returns one.

    Args:
        module: the network. Its present parameters are where the means start (so pretrained weights are loaded by
            loading them into the module), and they are left as they are.
        likelihood: how outputs and targets are related: ``Gaussian()``, ``HeteroscedasticGaussian()``,
            ``Categorical()``, ``Bernoulli()``.
        prior: ``NormalPrior(std)``, ``ScaleMixturePrior(pi, std1, std2)``, or a learned ``WeightDistribution``.
        stochastic: regular expression for the names of the random parameters (default: the module's own
            ``stochastic``, or all); the others are learned as plain ones.
        members: number of networks; more than one are an ensemble, whose forecast is the mixture of theirs. They are
            trained together, which costs less than one after the other. The first one starts from the module's
            parameters, the others from new ones, drawn by the layers' ``reset_parameters``.
        temperature: T of the posterior; below 1 the likelihood counts more ("cold"), above 1 less.
        relative_sigma: initial sigma of each tensor as a fraction of its own root mean square.
        standardize: train on real-valued targets in units of their mean and standard deviation. Data, predictions and
            a fixed noise are in the targets' own units.
        seed: seed of the shuffling and of the weight noise; the same seed gives the same fit of the same module. (A
            module that draws random numbers itself, such as dropout, takes them from torch's global generator.)
        device: where to compute, such as "cuda": the module is moved there, as ``module.to(device)`` does. None is
            where the module is.

    After ``fit``: ``posterior_`` (the weights, ready to predict) and ``history_`` (an ``EpochRecord`` of every epoch).
    """

    posterior_: Posterior | EnsemblePosterior

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        prior: Prior = NormalPrior(),
        stochastic: str | None = None,
        members: int = 1,
        temperature: float = 1.0,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        self.module, self.likelihood, self.prior, self.stochastic = module, likelihood, prior, stochastic
        self.members, self.temperature, self.relative_sigma = members, temperature, relative_sigma
        self.standardize, self.seed, self.device = standardize, seed, device

    def __repr__(self) -> str:
        """Return the network, the likelihood, and how far the fit has come."""
        epochs = f"fitted in {len(self.history_)} epochs" if hasattr(self, "posterior_") else "not fitted"
        return f"{type(self).__name__}({type(self.module).__name__}, {self.likelihood!r}; {epochs})"

    def fit(
        self,
        x: ArrayLike | Loaded,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        steps: int | None = None,
        epochs: int | None = None,
        batch_size: int = 128,
        lr: float = 1e-2,
        samples: int = 2,
        weighting: str = "uniform",
        kl_warmup: float = 0.5,
        validation: Validation = None,
        patience: int = 50,
        cross_fit: bool = False,
        callbacks: Callbacks = (),
        progress: bool = True,
    ) -> Self:
        """Fit from the module's parameters as they are; an earlier fit is replaced only when this one succeeds.

        Args:
            x: inputs, first axis the observations; a tensor, a NumPy array or a data frame. Scale them yourself: about
                mean 0 and standard deviation 1 in every feature. Or a torch ``Dataset`` of pairs (x, y), or a
                ``DataLoader`` of batches of them, without y: what it gives is streamed, never held as a whole.
            y: targets (N,), (N, C) or (N, C, ...), or labels.
            sample_weight: how many observations each one counts as, (N,): 2 is the same as to give it twice. Only
                weights of about 1 on average keep the balance between data and prior.
            steps: the budget in steps; an epoch is then a hundredth of it. Without ``steps`` and ``epochs`` there are
                5,000 steps, or, of large data, as many as ten passes take.
            epochs: the budget in passes over the data, in place of ``steps``.
            batch_size: observations in a step (a loader decides for itself).
            lr: Adam's learning rate, falling to zero along a cosine.
            samples: weight samples in a step.
            weighting: how the steps of a pass share the KL: "uniform", or "geometric" (the paper's: most at its start).
            kl_warmup: fraction of the training over which the KL's weight rises from 0 to 1. The means find the data
                before the prior pulls; from there on the objective is the free energy itself. 0 turns it off.
            validation: held-out data as a pair (x, y), a data set or a loader, or the fraction of the observations to
                hold out. Training then stops when the held-out free energy has not improved for ``patience`` epochs,
                and the weights of the best epoch are kept. Epochs of the KL's warm-up are not compared.
            patience: see ``validation``.
            cross_fit: let each of K members leave a K-th of the observations out, which then decide on the spread of
                forecasts (``metaprior.methods.cross_fit``): calibrated, at the price of members that see less.
            callbacks: what is called in between: ``Callback`` objects, or functions of (fit, record).
            progress: show a progress bar (of a fit of more than two seconds).
        """
        checks.check_counts(batch_size=batch_size, patience=patience)
        self._check_settings()
        noise, data = (
            Noise(int(self.seed)),
            self._data(x, y, sample_weight, validation, batch_size, weighting, cross_fit),
        )
        budget = Budget.of(steps, epochs, data.batches.count)
        plan = DescentPlan(budget.steps, batch_size, lr, samples, kl_warmup, linear_warmup=True, weighting=weighting)
        network, likelihood = self.network, data.likelihood
        starts = [network.initial(self.relative_sigma)]
        starts += [self._fresh_start(noise, number) for number in range(1, self.members)]
        learned, numbers = (
            isinstance(self.prior, WeightDistribution),
            network.numbers_per_observation(starts[0], data.x),
        )
        prior = checked_theta(self.prior, network, "the prior") if learned else self.prior  # type: ignore[arg-type]
        for start in starts:
            start.plain.update(likelihood.initial_parameters(data.y))
        likelihood = Masked(likelihood) if data.has_missing else likelihood
        energy = FreeEnergy(network, likelihood, float(self.temperature), numbers)
        descent = FreeEnergyFit(energy, prior, starts, data.batches, data.held_out, plan, budget, noise)

        def fitted() -> Self:
            return self._fitted(copy.copy(self), data, descent.best or descent.weights(), descent.records)

        state = partial(Fit, self, "Bayes by Backprop", fitted=fitted)
        weights = descent.run(state, callbacks, patience=patience, progress=progress)
        data.count.warn()
        return self._fitted(self, data, weights, descent.records)

    def _fitted(
        self, method: Self, data: "_Data", weights: Sequence[WeightDistribution], records: Sequence[EpochRecord]
    ) -> Self:
        """Return a method with what was learned."""
        axes, scalar = data.x.ndim, data.scalar_targets
        units: dict[str, Any] = {"target_scale": data.scale, "input_axes": axes, "scalar_targets": scalar}
        members = [Posterior(self.network, data.likelihood, own, **units) for own in weights]
        if data.parts and data.whole is not None:
            spread = fitted_spread(members, data.whole, data.parts)
            members = [member.widened(spread) for member in members]
        method.posterior_ = as_one(members)
        method.history_ = [replace(record, missing=data.count.missing) for record in records]
        return method

    def _fresh_start(self, noise: Noise, number: int) -> WeightDistribution:
        return fresh_start(self.network, self.relative_sigma, noise.fork(f"member {number}").seed)

    def evaluate(self, x: ArrayLike, y: ArrayLike, *, samples: int = DEFAULT_SAMPLES) -> Evaluation:
        """Return the scores of the forecast for x against targets y, as the one row of an ``Evaluation``."""
        posterior = self._predictive()
        network = posterior.network
        inputs = checks.inputs(x, dtype=network.dtype, device=network.device)
        data = Examples(inputs, self._targets(inputs, y, network.check_forward(inputs)))
        task = Task(Examples(torch.empty(0), torch.empty(0)), data, "evaluate(x, y)")
        present = self.likelihood.present
        return evaluate(lambda *_: posterior, [task], steps=(0,), samples=samples, present=present)

    def prune(self, fraction: float) -> Self:
        """Fix the given fraction of random weights, those of the lowest signal-to-noise ratio, at zero."""
        self.posterior_ = self._predictive().pruned(fraction)
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fit to a folder (safetensors and JSON); an earlier one there is replaced only by a complete one."""
        tensors, description = dict[str, Tensor](), dict[str, Any]()
        for number, member in enumerate(members_of(self._predictive())):
            own, description = saved_content(Learned.of(member, self.likelihood))
            tensors |= {_name_of(number, name): value for name, value in own.items()}
        if isinstance(self.prior, WeightDistribution):
            tensors |= {"prior.mu": self.prior.mu, "prior.rho": self.prior.rho}
        else:
            description["prior"] = checkpoint.describe(self.prior, PRIORS)
        description["settings"] = {name: kind(getattr(self, name)) for name, kind in _SETTINGS.items()}
        description["spreads"] = [member.spread for member in members_of(self._predictive())]
        description["history"] = history.described(self.history_)
        checkpoint.write(folder, KIND, tensors, description)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        module: nn.Module | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> Self:
        """Return a saved fit. Networks of this package are rebuilt; for any other, give a module like the saved."""
        tensors, description = checkpoint.read(folder, KIND)
        with checkpoint.readable(folder):
            members = int(description["settings"].get("members", 1))
            learned = [
                rebuild(_tensors_of(number, members, tensors), description, module, device=device)
                for number in range(members)
            ]
            if "prior" in description:
                prior: Prior = checkpoint.restore(description["prior"], PRIORS)
            else:
                prior = WeightDistribution(tensors["prior.mu"], tensors["prior.rho"])
            settings = {"stochastic": description["stochastic"], **description["settings"]}
            network = learned[0].network
            loaded = cls(network.module, learned[0].likelihood, prior=prior, device=device, **settings)
            spreads = description.get("spreads", [1.0] * members)
            own = zip(learned, spreads, strict=True)
            loaded.posterior_ = as_one([replace(one.posterior, network=network, spread=float(f)) for one, f in own])
            loaded.history_ = history.restored(description["history"])
        return loaded

    def _predictive(self) -> Posterior | EnsemblePosterior:
        if not hasattr(self, "posterior_"):
            raise self._not_fitted("fit(x, y)")
        return self.posterior_

    def _check_settings(self) -> None:
        """Raise for arguments of the constructor that cannot work; make a network of the module as it is now."""
        self.__dict__.pop("network", None)
        if not hasattr(self.prior, "kl_from"):
            raise TypeError(f"prior must be one like NormalPrior(1.0) or a WeightDistribution, got {self.prior!r}")
        checks.check_counts(members=self.members)
        for name in ("temperature", "relative_sigma"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if NOISE_RHO in {*self.network.layout.names, *self.network.plain_names}:
            raise ValueError(
                f"the module has a parameter called {NOISE_RHO!r}, which is the name of the noise scale; rename it"
            )

    def _targets(self, inputs: Tensor, y: ArrayLike, output_shape: torch.Size) -> Tensor:
        """Return checked targets in the user's units; a missing channel axis is added."""
        targets = checks.targets(y, device=inputs.device)
        checks.same_length(inputs, targets)
        targets = self.likelihood.check_targets(targets, output_shape)
        return checks.at_least_single(targets) if self.likelihood.continuous else targets

    def _data(
        self,
        x: ArrayLike | Loaded,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        validation: Validation,
        batch_size: int,
        weighting: str,
        cross_fit: bool,
    ) -> "_Data":
        """Return the checked data of a fit, with targets in the network's units."""
        if isinstance(x, Dataset | DataLoader):
            if y is not None or sample_weight is not None:
                raise TypeError(f"y and sample_weight must be None where x, a {type(x).__name__}, gives pairs (x, y)")
            if cross_fit:
                raise ValueError(f"cross_fit must be False where x is a {type(x).__name__}, whose data are streamed")
            return self._streamed(x, validation, batch_size, weighting)
        if y is None:
            raise TypeError("y must be given, unless x is a torch Dataset or DataLoader of pairs (x, y)")
        return self._in_memory(x, y, sample_weight, validation, batch_size, weighting, cross_fit)

    def _in_memory(
        self,
        x: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        validation: Validation,
        batch_size: int,
        weighting: str,
        cross_fit: bool,
    ) -> "_Data":
        network, noise = self.network, Noise(int(self.seed))
        inputs = checks.inputs(x, dtype=network.dtype, device=network.device)
        checks.warn_of_scale(inputs)
        output_shape = network.check_forward(inputs)
        given, count = self._examples(inputs, y, output_shape, sample_weight)
        scalar_targets = given.examples.y.ndim > checks.as_plain_tensor(y, "y").ndim
        split = isinstance(validation, Real)
        data, held_out = hold_out(given, float(validation), noise) if split else (given, None)  # type: ignore[arg-type]
        y = data.examples.y
        scale = TargetScale.standardising(y, data.weights) if self._standardised else TargetScale.identity(y)
        examples = self._internal(data.examples, scale)
        whole, members = WeightedExamples(examples, data.weights), range(self.members)
        weights = None if data.weights is None else data.weights.expand(self.members, -1)
        learned, parts = [examples] * self.members, list[Tensor]()
        if cross_fit:
            checks.check_integer("members (with cross_fit)", self.members, 2)
            parts = parts_of(whole, self.members, noise)
            learned, weights = without_parts(whole, parts)
        batches = ShuffledData(learned, members, batch_size, weighting, noise, weights=weights)
        if held_out is not None:
            own = held_out._replace(examples=self._internal(held_out.examples, scale))
            scored: HeldOut | None = HeldOutData(own, batch_size)
        else:
            scored = self._validation(validation, output_shape, scale, batch_size)
        likelihood = self.likelihood.in_units_of(scale.scale)
        missing = count.missing > 0
        return _Data(
            inputs, examples.y, batches, scored, scale, likelihood, scalar_targets, count, missing, whole, parts
        )

    def _streamed(self, given: Loaded, validation: Validation, batch_size: int, weighting: str) -> "_Data":
        if isinstance(validation, Real):
            raise TypeError(
                f"validation must be data, not a fraction, where a {type(given).__name__} streams the training data, "
                f"got {validation}. Try torch.utils.data.random_split."
            )
        shapes: dict[str, torch.Size] = {}
        loader = self._loader(given, batch_size)
        data = StreamedData(loader, self._checking(shapes), self.likelihood.present, self.members, weighting)
        first = data.first
        if self._standardised and data.moments is not None:
            scale = TargetScale.from_moments(data.moments, first.y)
        else:
            scale = TargetScale.identity(first.y)
        data.internal = partial(self._internal, scale=scale)
        scored = self._validation(validation, shapes["outputs"], scale, batch_size)
        likelihood, count = self.likelihood.in_units_of(scale.scale), data.targets
        internal = self._internal(first, scale).y
        return _Data(first.x, internal, data, scored, scale, likelihood, data.scalar, count, count.missing > 0)

    def _validation(
        self, validation: Validation, output_shape: torch.Size, scale: TargetScale, batch_size: int
    ) -> HeldOut | None:
        """Return held-out data that were given as such."""
        if validation is None:
            return None
        if isinstance(validation, Dataset | DataLoader):
            streamed = StreamedData(
                self._loader(validation, batch_size), self._checking({"outputs": output_shape}), self.likelihood.present
            )
            streamed.internal = partial(self._internal, scale=scale)
            return streamed
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise TypeError(f"validation must be a fraction, a pair (x, y) or a DataLoader, got {validation!r}")
        inputs = checks.inputs(validation[0], dtype=self.network.dtype, device=self.network.device)
        own, _ = self._examples(inputs, validation[1], output_shape)
        return HeldOutData(own._replace(examples=self._internal(own.examples, scale)), batch_size)

    def _checking(self, shapes: dict[str, torch.Size]) -> Callable[[Any, Any], tuple[Examples, bool]]:
        """Return the check of a batch of a loader; the network is tried with the first one."""

        def checked(x: Any, y: Any) -> tuple[Examples, bool]:
            inputs = checks.inputs(x, dtype=self.network.dtype, device=self.network.device)
            if "outputs" not in shapes:
                checks.warn_of_scale(inputs)
                shapes["outputs"] = self.network.check_forward(inputs)
            targets = self._targets(inputs, y, shapes["outputs"])
            return Examples(inputs, targets), targets.ndim > checks.as_plain_tensor(y, "y").ndim

        return checked

    def _loader(self, given: Loaded, batch_size: int) -> DataLoader[Any]:
        """Return a loader as it is, and one of a data set in an order that the seed decides."""
        if isinstance(given, DataLoader):
            return given
        if isinstance(given, IterableDataset):
            return DataLoader(given, batch_size)
        order = Noise(int(self.seed)).fork("loader").generator()
        return DataLoader(given, batch_size, shuffle=True, generator=order)

    @property
    def _standardised(self) -> bool:
        return bool(self.standardize) and self.likelihood.continuous

    def _examples(
        self, inputs: Tensor, y: ArrayLike, output_shape: torch.Size, sample_weight: ArrayLike | None = None
    ) -> tuple[WeightedExamples, TargetCount]:
        """Return the checked data that have at least one target, in the user's units, and the count of all targets."""
        targets = self._targets(inputs, y, output_shape)
        present = self.likelihood.present(targets)
        weights = None if sample_weight is None else checks.observation_weights(sample_weight, targets)
        if weights is not None:
            counted = weights > 0
            inputs, targets, present, weights = inputs[counted], targets[counted], present[counted], weights[counted]
            rows = any_of_row(present)
            weights = weights[rows]
        *data, count = checks.drop_rows_without_targets(inputs, targets, present)
        if not len(data[0]):
            raise ValueError(f"y must hold at least one target, got {count.targets}, of which all are missing")
        return WeightedExamples(Examples(*data), weights), count

    def _internal(self, data: Examples, scale: TargetScale) -> Examples:
        """Return data in the network's units and type."""
        if not data.y.is_floating_point():
            return data
        targets = scale.to_internal(data.y) if self.likelihood.continuous else data.y
        return Examples(data.x, checks.as_float(targets, "y", self.network.dtype))


@dataclass(frozen=True)
class _Data:
    """The checked data of a fit, with targets in the network's units."""

    x: Tensor
    """Inputs, or the first of them."""
    y: Tensor
    """Targets, or the first of them."""
    batches: Minibatches
    held_out: HeldOut | None
    scale: TargetScale
    likelihood: Likelihood
    """The likelihood in the network's units."""
    scalar_targets: bool
    count: TargetCount
    has_missing: bool
    whole: WeightedExamples | None = None
    parts: Sequence[Tensor] = ()
    """Rows of the whole data that each member leaves out."""


def members_of(posterior: Posterior | EnsemblePosterior) -> tuple[Posterior, ...]:
    """Return the members of an ensemble, or the posterior itself as the only one."""
    return posterior.members if isinstance(posterior, EnsemblePosterior) else (posterior,)


def as_one(members: Sequence[Posterior]) -> Posterior | EnsemblePosterior:
    """Return the ensemble of some posteriors of the same network and units, or the only one itself."""
    first = members[0]
    if len(members) == 1:
        return first
    scale, axes, scalar = first.target_scale, first.input_axes, first.scalar_targets
    return EnsemblePosterior(first.network, tuple(members), target_scale=scale, input_axes=axes, scalar_targets=scalar)


def _name_of(member: int, name: str) -> str:
    return f"member{member}.{name}" if member else name


def _tensors_of(member: int, members: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one member by their own names; those of the first one are saved by these."""
    prefix = f"member{member}."
    if member:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    others = tuple(f"member{number}." for number in range(1, members))
    return {name: value for name, value in tensors.items() if not name.startswith(others)}
