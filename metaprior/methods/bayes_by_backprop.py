r"""Bayes by Backprop: a Gaussian posterior over the weights of one network, from one data set.

Minimises $\frac1N\big(KL(q(w)\|p(w)) - \frac1T E_q[\log p(D|w)]\big)$ with reparameterised
gradients (Blundell et al. 2015, "Weight Uncertainty in Neural Networks").
"""

import math
import os
from dataclasses import dataclass, replace
from numbers import Real
from typing import Self

import torch
from torch import Tensor, nn

from metaprior import checkpoint, checks, history
from metaprior.checks import ArrayLike, InputsLike
from metaprior.errors import TrainingDiverged
from metaprior.evaluation import Evaluation, evaluate
from metaprior.history import EpochRecord
from metaprior.inputs import Inputs, axes_of, device_of
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.methods.method import Method
from metaprior.missing import TargetCount
from metaprior.network import DEFAULT_RELATIVE_SIGMA
from metaprior.noise import Noise
from metaprior.objectives import free_energy
from metaprior.posterior import DEFAULT_SAMPLES, Learned, Posterior, rebuild, saved_content
from metaprior.priors import NormalPrior, Prior, ScaleMixturePrior
from metaprior.progress import progress_bar
from metaprior.scaling import TargetScale
from metaprior.stack_descent import (
    DescentPlan,
    FreeEnergy,
    SharedParameters,
    Stack,
    StackDescent,
    checked_theta,
    new_record,
)
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

PRIORS = (NormalPrior, ScaleMixturePrior)
KIND = "BayesByBackprop"
HELD_OUT_SAMPLES = 16
Validation = float | tuple[InputsLike, ArrayLike] | None
_SETTINGS = {"temperature": float, "relative_sigma": float, "standardize": bool, "seed": int}


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

    posterior_: Posterior

    def __init__(
        self,
        module: nn.Module,
        likelihood: Likelihood,
        *,
        prior: Prior = NormalPrior(),
        stochastic: str | None = None,
        temperature: float = 1.0,
        relative_sigma: float = DEFAULT_RELATIVE_SIGMA,
        standardize: bool = True,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        self.module, self.likelihood, self.prior, self.stochastic = module, likelihood, prior, stochastic
        self.temperature, self.relative_sigma = temperature, relative_sigma
        self.standardize, self.seed, self.device = standardize, seed, device

    def __repr__(self) -> str:
        """Return the network, the likelihood, and how far the fit has come."""
        epochs = f"fitted in {len(self.history_)} epochs" if hasattr(self, "posterior_") else "not fitted"
        return f"{type(self).__name__}({type(self.module).__name__}, {self.likelihood!r}; {epochs})"

    def fit(
        self,
        x: InputsLike,
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
            x: inputs, first axis the observations; a tensor, a NumPy array or a data frame. Scale them yourself: about
                mean 0 and standard deviation 1 in every feature. Several inputs are a tuple, the positional arguments
                of the module, or a dictionary, its keyword arguments.
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
            progress: show a progress bar (of a fit of more than two seconds).
        """
        checks.check_counts(epochs=epochs, patience=patience)
        plan = DescentPlan(epochs, batch_size, lr, samples, kl_warmup, linear_warmup=True, weighting=weighting)
        self._check_settings()
        network, noise = self.network, Noise(int(self.seed))
        inputs = checks.inputs(x, dtype=network.dtype, device=network.device)
        checks.warn_of_scale(inputs)
        output_shape = network.check_forward(inputs)
        data, count = self._examples(inputs, y, output_shape)
        scalar_targets = data.y.ndim > checks.as_plain_tensor(y, "y").ndim
        data, held_out = self._divided(data, validation, output_shape, noise)
        count.warn()
        standardised = self.standardize and self.likelihood.continuous
        scale = TargetScale.standardising(data.y) if standardised else TargetScale.identity(data.y)
        data, held_out = self._internal(data, scale), held_out and self._internal(held_out, scale)
        start = network.initial(self.relative_sigma)
        learned, numbers = isinstance(self.prior, WeightDistribution), network.numbers_per_observation(start, inputs)
        prior = checked_theta(self.prior, network, "the prior") if learned else self.prior  # type: ignore[arg-type]
        energy = FreeEnergy(network, self.likelihood.in_units_of(scale.scale), float(self.temperature), numbers)
        start.plain.update(self.likelihood.initial_parameters(data.y))
        weights, records = _descend(energy, prior, start, data, held_out, plan, noise, patience, progress)
        self.history_ = [replace(record, missing=count.missing) for record in records]
        self.posterior_ = Posterior(
            network,
            energy.likelihood,
            weights,
            target_scale=scale,
            input_axes=axes_of(inputs),
            scalar_targets=scalar_targets,
        )
        return self

    def evaluate(self, x: InputsLike, y: ArrayLike, *, samples: int = DEFAULT_SAMPLES) -> Evaluation:
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
        tensors, description = saved_content(Learned.of(self._predictive(), self.likelihood))
        if isinstance(self.prior, WeightDistribution):
            tensors |= {"prior.mu": self.prior.mu, "prior.rho": self.prior.rho}
        else:
            description["prior"] = checkpoint.describe(self.prior, PRIORS)
        description["settings"] = {name: kind(getattr(self, name)) for name, kind in _SETTINGS.items()}
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
            learned = rebuild(tensors, description, module, device=device)
            if "prior" in description:
                prior: Prior = checkpoint.restore(description["prior"], PRIORS)
            else:
                prior = WeightDistribution(tensors["prior.mu"], tensors["prior.rho"])
            settings = {"stochastic": description["stochastic"], **description["settings"]}
            loaded = cls(learned.network.module, learned.likelihood, prior=prior, device=device, **settings)
            loaded.posterior_, loaded.history_ = learned.posterior, history.restored(description["history"])
        return loaded

    def _predictive(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise self._not_fitted("fit(x, y)")
        return self.posterior_

    def _check_settings(self) -> None:
        """Raise for arguments of the constructor that cannot work; make a network of the module as it is now."""
        self.__dict__.pop("network", None)
        if not hasattr(self.prior, "kl_from"):
            raise TypeError(f"prior must be one like NormalPrior(1.0) or a WeightDistribution, got {self.prior!r}")
        for name in ("temperature", "relative_sigma"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if NOISE_RHO in {*self.network.layout.names, *self.network.plain_names}:
            raise ValueError(
                f"the module has a parameter called {NOISE_RHO!r}, which is the name of the noise scale; rename it"
            )

    def _targets(self, inputs: Inputs, y: ArrayLike, output_shape: torch.Size) -> Tensor:
        """Return checked targets in the user's units; a missing channel axis is added."""
        targets = checks.targets(y, device=device_of(inputs))
        checks.same_length(inputs, targets)
        targets = checks.targets_of(self.likelihood, targets, output_shape)
        return checks.at_least_single(targets) if self.likelihood.continuous else targets

    def _examples(self, inputs: Inputs, y: ArrayLike, output_shape: torch.Size) -> tuple[Examples, TargetCount]:
        """Return the checked data that have at least one target, in the user's units, and the count of all targets."""
        targets = self._targets(inputs, y, output_shape)
        *pair, count = checks.drop_rows_without_targets(inputs, targets, self.likelihood.present(targets))
        data = Examples(*pair)
        if not data.size:
            raise ValueError(f"y must hold at least one target, got {count.targets}, of which all are missing")
        return data, count

    def _divided(
        self, data: Examples, validation: Validation, output_shape: torch.Size, noise: Noise
    ) -> tuple[Examples, Examples | None]:
        """Return training and held-out data."""
        if not isinstance(validation, tuple | list):
            return (data, None) if validation is None else _hold_out(data, validation, noise)
        held_inputs = checks.inputs(validation[0], dtype=self.network.dtype, device=self.network.device)
        return data, self._examples(held_inputs, validation[1], output_shape)[0]

    def _internal(self, data: Examples, scale: TargetScale) -> Examples:
        """Return data in the network's units and type."""
        if not data.y.is_floating_point():
            return data
        targets = scale.to_internal(data.y) if self.likelihood.continuous else data.y
        return Examples(data.x, checks.as_float(targets, "y", self.network.dtype))


def _hold_out(data: Examples, fraction: float, noise: Noise) -> tuple[Examples, Examples]:
    """Return a random division into training and held-out part."""
    count = round(fraction * data.size)
    if not (0 < fraction < 1 and 0 < count < data.size):
        raise ValueError(
            f"validation={fraction} of {data.size} observations leaves one of the two parts empty; "
            "give a fraction between 0 and 1, or the held-out data as a pair (x, y)"
        )
    order = torch.randperm(data.size, generator=noise.fork("hold out").generator()).to(data.y.device)
    return data.rows(order[count:]), data.rows(order[:count])


@dataclass(frozen=True)
class _OfOneTask:
    """A prior over the weights of one network, as the prior of a stack of one task."""

    prior: Prior

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        """Return KL(q || prior) for q (1, D) and samples (1, S, D), shape (1,)."""
        return self.prior.kl_from(WeightDistribution(q.mu[0], q.rho[0]), phi[0]).unsqueeze(0)


def _descend(
    energy: FreeEnergy,
    prior: Prior,
    start: WeightDistribution,
    data: Examples,
    held_out: Examples | None,
    plan: DescentPlan,
    noise: Noise,
    patience: int,
    progress: bool,
) -> tuple[WeightDistribution, list[EpochRecord]]:
    """Minimise the free energy from ``start``; return the weights (the best, if data are held out) and the history.

    Energy and data are in the network's units; ``plan.steps`` counts epochs.
    """
    stack, shared = Stack(["the data"], [0], new_record(start).unsqueeze(0), 0, [data]), SharedParameters(start.plain)
    epochs, num_batches = plan.steps, plan.num_batches(data.size)
    steps = replace(plan, steps=epochs * num_batches)
    descent = StackDescent(energy, stack, _OfOneTask(prior), shared, steps, noise)
    best, best_score, best_epoch = None, math.inf, 0
    q, records = WeightDistribution(descent.mu[0], descent.rho[0], shared.values), list[EpochRecord]()
    with progress_bar("Bayes by Backprop", epochs, unit="epochs", show=progress) as bar:
        for epoch in range(1, epochs + 1):
            now = range((epoch - 1) * num_batches, epoch * num_batches)
            terms = [descent.step(step, shared_lr=steps.lr_at(step)) for step in now]
            nll, kl = (float(sum(getattr(one, name) for one in terms)) / num_batches for name in ("nll", "kl"))
            q, score = WeightDistribution(descent.mu[0], descent.rho[0], shared.values), None
            if held_out is not None:
                score = held_out_free_energy(energy, prior, q, held_out, data.size, noise, plan.batch_size)
                _check_finite(epoch, validation=torch.tensor(score))
            record = EpochRecord(epoch, nll + kl, nll, kl, observations=data.size, steps=num_batches, validation=score)
            records.append(record)
            shown = {"nll": nll, "kl": kl, "validation": score}
            bar.update(1, **{name: f"{value:.3f}" for name, value in shown.items() if value is not None})
            if score is None or epoch < plan.kl_warmup * epochs:
                continue  # the objective itself changes during the warm-up, so its epochs are not compared
            if score < best_score:
                best, best_score, best_epoch = q.detached(), score, epoch
            if epoch - best_epoch >= patience:
                break
    kept = best or q.detached()
    _check_finite(len(records), **{name.replace(".", " "): value for name, value in kept.named().items()})
    return kept, records


@torch.no_grad()
def held_out_free_energy(
    energy: FreeEnergy,
    prior: Prior,
    q: WeightDistribution,
    held_out: Examples,
    num_training: int,
    noise: Noise,
    batch_size: int,
) -> float:
    """Return the free energy per observation: the nll of held-out data plus the KL of the training.

    The weight noise is the same every time, so that epochs differ only in the weights.
    """
    fixed, total = noise.fork("held-out"), 0.0
    for phis, nll, share in energy.samples_with_nll(q, held_out, fixed, HELD_OUT_SAMPLES, batch_size):
        kl = prior.kl_from(q, phis)
        scaled = free_energy(nll, kl, num_observations=held_out.size, temperature=energy.temperature)
        total += float(scaled.nll + kl / num_training) * share
    return total


def _check_finite(epoch: int, **values: Tensor) -> None:
    for name, value in values.items():
        if not bool(value.isfinite().all()):
            bad = float(value[~value.isfinite()].flatten()[0])
            raise TrainingDiverged(
                f"the {name} became {bad} in epoch {epoch}, and nothing of this fit was kept. Try a smaller lr, a "
                "smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
            )
