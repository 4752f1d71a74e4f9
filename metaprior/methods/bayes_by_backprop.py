r"""Bayes by Backprop: a Gaussian posterior over the weights of one network, from one data set.

Minimises $\frac1N\big(KL(q(w)\|p(w)) - \frac1T E_q[\log p(D|w)]\big)$ with reparameterised
gradients (Blundell et al. 2015, "Weight Uncertainty in Neural Networks").
"""

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn

from metaprior import checkpoint, checks, history
from metaprior.callbacks import Callbacks, Fit
from metaprior.checks import ArrayLike, InputsLike
from metaprior.ensemble import EnsemblePosterior, fresh_start
from metaprior.evaluation import Evaluation, evaluate
from metaprior.history import EpochRecord
from metaprior.inputs import axes_of
from metaprior.likelihoods import Likelihood, Masked
from metaprior.methods.cross_fit import LeftOut, judged
from metaprior.methods.fit_data import FitData, Loaded, Preparation, Validation, batch_size_for, checked_targets
from metaprior.methods.free_energy_fit import Budget, FreeEnergyFit, check_budget
from metaprior.methods.method import Method
from metaprior.network import DEFAULT_RELATIVE_SIGMA
from metaprior.noise import Noise
from metaprior.posterior import DEFAULT_SAMPLES, Learned, Posterior, rebuild, saved_content
from metaprior.priors import NormalPrior, Prior, ScaleMixturePrior
from metaprior.stack_descent import DescentPlan, FreeEnergy, checked_theta
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

PRIORS = (NormalPrior, ScaleMixturePrior)
KIND = "BayesByBackprop"
_SETTINGS = {"temperature": float, "relative_sigma": float, "standardize": bool, "seed": int, "members": int}


class BayesByBackprop(Method):
    """Variational inference for any ``nn.Module`` that takes one tensor, or several, and returns one.

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
    left_out_: LeftOut
    """What the observations tell that members left out, after a fit with ``cross_fit``; not saved."""

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
        x: InputsLike | Loaded,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        steps: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
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
                mean 0 and standard deviation 1 in every feature. Several inputs are a tuple, the positional arguments
                of the module, or a dictionary, its keyword arguments. Or a torch ``Dataset`` of pairs (x, y), or a
                ``DataLoader`` of batches of them, without y: what it gives is streamed, never held as a whole.
            y: targets (N,), (N, C) or (N, C, ...), or labels.
            sample_weight: how many observations each one counts as, (N,): 2 is the same as to give it twice. Only
                weights of about 1 on average keep the balance between data and prior.
            steps: the budget in steps; an epoch is then a hundredth of it. Without ``steps`` and ``epochs`` there are
                5,000 steps, or, of large data, as many as ten passes take.
            epochs: the budget in passes over the data, in place of ``steps``.
            batch_size: observations in a step, by default 128; None for a ``DataLoader``, which decides for itself.
            lr: Adam's learning rate, falling to zero along a cosine.
            samples: weight samples in a step.
            weighting: how the steps of a pass share the KL: "uniform", or "geometric" (the paper's: most at its start).
            kl_warmup: fraction of the training over which the KL's weight rises from 0 to 1. The means find the data
                before the prior pulls; from there on the objective is the free energy itself. 0 turns it off.
            validation: held-out data as a pair (x, y), a data set or a loader, or the fraction of the observations to
                hold out. Training then stops when the held-out free energy has not improved for ``patience`` epochs,
                and the weights of the best epoch are kept. Epochs of the KL's warm-up are not compared.
            patience: see ``validation``; an ``EarlyStopping`` among the callbacks takes its place.
            cross_fit: let each of K members leave a K-th of the observations out, which then decide on the spread of
                forecasts (``metaprior.methods.cross_fit``): calibrated, at the price of members that see less.
            callbacks: what is called in between: ``Callback`` objects, or functions of (fit, record).
            progress: show a progress bar (of a fit of more than two seconds).
        """
        batch_size = batch_size_for(x, batch_size)
        checks.check_counts(batch_size=batch_size, patience=patience)
        check_budget(steps, epochs)
        plan = DescentPlan(1, batch_size, lr, samples, kl_warmup, linear_warmup=True, weighting=weighting)
        self._check_settings()
        network, noise = self.network, Noise(int(self.seed))
        prepare = Preparation(
            network, self.likelihood, bool(self.standardize), self.members, batch_size, weighting, noise, cross_fit
        )
        data = prepare(x, y, sample_weight, validation)
        budget = Budget.of(steps, epochs, data.batches.count)
        starts = self._starts(data, noise)
        likelihood = Masked(data.likelihood) if data.count.missing else data.likelihood
        numbers = network.numbers_per_observation(starts[0], data.inputs)
        energy = FreeEnergy(network, likelihood, float(self.temperature), numbers)
        descent = FreeEnergyFit(
            energy, self._prior(), starts, data.batches, data.held_out, replace(plan, steps=budget.steps), budget, noise
        )

        def fitted() -> BayesByBackprop:
            return copy.copy(self)._set(data, descent.best or descent.weights(), descent.records)

        state = partial(Fit, self, "Bayes by Backprop", fitted=fitted)
        weights = descent.run(state, callbacks, patience=patience, progress=progress)
        data.count.warn()
        return self._set(data, weights, descent.records)

    def _set(self, data: FitData, weights: Sequence[WeightDistribution], records: Sequence[EpochRecord]) -> Self:
        """Take over what was learned."""
        axes, scalar = axes_of(data.inputs), data.scalar_targets
        units: dict[str, Any] = {"target_scale": data.scale, "input_axes": axes, "scalar_targets": scalar}
        members = [Posterior(self.network, data.likelihood, own, **units) for own in weights]
        if data.left_out is not None:
            self.left_out_ = judged(members, *data.left_out)
            members = [member.widened(self.left_out_.spread) for member in members]
        self.posterior_ = as_one(members)
        self.history_ = [replace(record, missing=data.count.missing) for record in records]
        return self

    def _starts(self, data: FitData, noise: Noise) -> list[WeightDistribution]:
        """Return the weights that the members start from."""
        seeds = [noise.fork(f"member {number}").seed for number in range(1, self.members)]
        fresh = [fresh_start(self.network, self.relative_sigma, seed) for seed in seeds]
        starts = [self.network.initial(self.relative_sigma), *fresh]
        for start in starts:
            start.plain.update(data.likelihood.initial_parameters(data.targets))
        return starts

    def _prior(self) -> Prior:
        learned = isinstance(self.prior, WeightDistribution)
        return checked_theta(self.prior, self.network, "the prior") if learned else self.prior  # type: ignore[arg-type]

    def evaluate(self, x: InputsLike, y: ArrayLike, *, samples: int = DEFAULT_SAMPLES) -> Evaluation:
        """Return the scores of the forecast for x against targets y, as the one row of an ``Evaluation``."""
        posterior = self._predictive()
        network = posterior.network
        inputs = checks.inputs(x, dtype=network.dtype, device=network.device)
        data = Examples(inputs, checked_targets(self.likelihood, inputs, y, network.check_forward(inputs)))
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
        for name in {*self.network.layout.names, *self.network.plain_names} & {*self.likelihood.parameter_names}:
            raise ValueError(
                f"the module has a parameter called {name!r}, which is the name of one that the likelihood learns; "
                "rename it"
            )


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
