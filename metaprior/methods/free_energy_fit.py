"""The descent behind ``BayesByBackprop.fit``: its budget, its epochs, the free energy of held-out data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.callbacks import WARM_UP, Callbacks, EarlyStopping, Fit, Listeners, several
from metaprior.checks import check_counts
from metaprior.errors import TrainingDiverged
from metaprior.history import EpochRecord
from metaprior.minibatches import HeldOut, Minibatches
from metaprior.noise import Noise
from metaprior.objectives import Terms, free_energy
from metaprior.priors import Prior
from metaprior.stack_descent import DescentPlan, FreeEnergy, SharedParameters, Stack, StackDescent, new_record
from metaprior.weights import WeightDistribution

DEFAULT_STEPS, DEFAULT_PASSES = 5000, 10
"""Without a budget a fit takes this many steps, or for larger data steps for this many passes over them."""
EPOCHS_OF_STEPS = 100
"""Epochs of a budget of steps: parts of equal length, whatever the size of the data."""
HELD_OUT_SAMPLES = 16


def check_budget(steps: int | None, epochs: int | None) -> None:
    """Raise ValueError unless at most one of ``steps`` and ``epochs`` is given, and that is at least 1."""
    if steps is not None and epochs is not None:
        raise ValueError(f"one of steps and epochs must be given, not both, got steps={steps} and epochs={epochs}")
    check_counts(**{name: value for name, value in (("steps", steps), ("epochs", epochs)) if value is not None})


class Budget(NamedTuple):
    """The number of steps of a fit, and of one epoch of it."""

    steps: int
    epoch: int

    @classmethod
    def of(cls, steps: int | None, epochs: int | None, in_pass: int) -> "Budget":
        """Return the budget for data of which a pass takes ``in_pass`` steps; with ``epochs``, an epoch is a pass."""
        if epochs is not None:
            return cls(epochs * in_pass, in_pass)
        steps = steps or max(DEFAULT_STEPS, DEFAULT_PASSES * in_pass)
        return cls(steps, math.ceil(steps / EPOCHS_OF_STEPS))

    @property
    def epochs(self) -> int:
        """Number of epochs; the last one may be shorter."""
        return math.ceil(self.steps / self.epoch)


@dataclass(frozen=True)
class OfEach:
    """A prior over the weights of one network, as that of every network of a stack."""

    prior: Prior

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        """Return KL(q || prior) of every network, (B,), for q (B, D) and samples (B, S, D)."""

        def of_one(mu: Tensor, rho: Tensor, samples: Tensor) -> Tensor:
            return self.prior.kl_from(WeightDistribution(mu, rho), samples)

        if len(q.mu) == 1:
            return of_one(q.mu[0], q.rho[0], phi[0]).unsqueeze(0)
        return torch.vmap(of_one)(q.mu, q.rho, phi)


@dataclass
class FreeEnergyFit:
    """The descent of the free energies of K networks on the same data, in the network's units.

    Args:
        energy: network, likelihood and temperature.
        prior: the prior over the weights of each network.
        starts: the weights that the networks start from.
        batches: the mini-batches of the training data.
        held_out: the data that decide which epoch is the best; None ends with the last epoch.
        plan: settings of the descent.
        budget: numbers of steps.
        noise: noise of weights and shuffling.
    """

    energy: FreeEnergy
    prior: Prior
    starts: Sequence[WeightDistribution]
    batches: Minibatches
    held_out: HeldOut | None
    plan: DescentPlan
    budget: Budget
    noise: Noise
    records: list[EpochRecord] = field(default_factory=list)
    best: list[WeightDistribution] | None = None

    def __post_init__(self) -> None:
        several = len(self.starts) > 1
        if several:
            plain = {name: torch.stack([own.plain[name] for own in self.starts]) for name in self.starts[0].plain}
        else:
            plain = self.starts[0].plain
        self.energy = replace(self.energy, own_plain=several)
        names = [f"member {k}" for k in range(len(self.starts))] if several else ["the data"]
        records = torch.stack([new_record(start) for start in self.starts])
        stack = Stack(names, range(len(names)), records, 0, [])
        self._shared = SharedParameters(plain)
        self._descent = StackDescent(
            self.energy, stack, OfEach(self.prior), self._shared, self.plan, self.noise, self.batches
        )

    def weights(self) -> list[WeightDistribution]:
        """Return the present weights of every network."""
        descent, shared = self._descent, self._shared.detached()
        if len(self.starts) == 1:
            return [WeightDistribution(descent.mu[0].detach().clone(), descent.rho[0].detach().clone(), shared)]
        own = [{name: value[k].clone() for name, value in shared.items()} for k in range(len(self.starts))]
        stacks = descent.mu.detach().clone(), descent.rho.detach().clone()
        return [WeightDistribution(mu, rho, plain) for mu, rho, plain in zip(*stacks, own, strict=True)]

    def run(
        self,
        fit: Callable[..., Fit],
        callbacks: Callbacks,
        *,
        patience: int,
        progress: bool,
    ) -> list[WeightDistribution]:
        """Take all steps, and return the weights of every network (of the best epoch, if data are held out).

        Args:
            fit: makes the ``Fit`` of callbacks.
            callbacks: what is called in between.
            patience: epochs without an improvement on held-out data after which the fit stops, unless an
                ``EarlyStopping`` among the callbacks decides that.
            progress: show a progress bar.
        """
        given = several(callbacks)
        if self.held_out is not None and not any(isinstance(one, EarlyStopping) for one in given):
            given = [EarlyStopping(patience=patience), *given]
        validates = self.held_out is not None
        state = fit(epochs=self.budget.epochs, steps=self.budget.steps, keep=self._keep, validates=validates)
        with Listeners(state, given, progress=progress) as listeners:
            for epoch in range(self.budget.epochs):
                first = epoch * self.budget.epoch
                steps = range(first, min(first + self.budget.epoch, self.budget.steps))
                self.records.append(self._epoch(epoch + 1, steps, listeners))
                listeners.after_epoch(self.records[-1])
                if state.stopped:
                    break
        kept = self.best or self.weights()
        for one in kept:
            check_finite(len(self.records), **{name.replace(".", " "): value for name, value in one.named().items()})
        return kept

    def _keep(self) -> None:
        self.best = self.weights()

    def _epoch(self, number: int, steps: range, listeners: Listeners) -> EpochRecord:
        terms = list[Terms]()
        shares = len(self.starts) if self.energy.own_plain else 1  # of the gradient of plain parameters
        for step in steps:
            terms.append(self._descent.step(step, shared_lr=self.plan.lr_at(step), weight=shares))
            listeners.after_step(self._last_means)
        means, score = _means(terms), None
        if self.held_out is not None:
            score = sum(map(self._score, self.weights())) / len(self.starts)
            check_finite(number, validation=torch.tensor(score))
        # The objective itself changes during the warm-up, so its epochs are not compared with each other.
        phase = WARM_UP if steps.stop < self.plan.kl_warmup * self.plan.steps else ""
        counts: dict[str, Any] = {"observations": round(self._observations), "steps": len(steps), "phase": phase}
        return EpochRecord(number, means["loss"], means["nll"], means["kl"], validation=score, **counts)

    def _last_means(self) -> dict[str, float]:
        """Return the terms of the last step, which are on the CPU already: a GPU is not waited for."""
        nll, kl = (sum(values) / len(values) for values in (self._descent.last[name] for name in ("nll", "kl")))
        return {"loss": nll + kl, "nll": nll, "kl": kl}

    def _score(self, q: WeightDistribution) -> float:
        energy = replace(self.energy, own_plain=False)
        assert self.held_out is not None
        return held_out_free_energy(energy, self.prior, q, self.held_out, self._observations, self.noise)

    @property
    def _observations(self) -> float:
        """Number of training observations, or the sum of their weights; of several networks the mean."""
        found = self.batches.observations
        return float(found.mean()) if isinstance(found, Tensor) else found


def _means(terms: Sequence[Terms]) -> dict[str, float]:
    """Return the means of an epoch's terms over its steps and networks."""
    nll, kl = (float(sum(getattr(one, name) for one in terms).mean()) / len(terms) for name in ("nll", "kl"))
    return {"loss": nll + kl, "nll": nll, "kl": kl}


@torch.no_grad()
def held_out_free_energy(
    energy: FreeEnergy, prior: Prior, q: WeightDistribution, held_out: HeldOut, num_training: float, noise: Noise
) -> float:
    """Return the free energy per observation: the nll of held-out data plus the KL of the training.

    The weight noise is the same every time, so that epochs differ only in the weights.
    """
    fixed, total = noise.fork("held-out"), 0.0
    for phis, nll, share in energy.samples_with_nll(q, held_out, fixed, HELD_OUT_SAMPLES):
        kl = prior.kl_from(q, phis)
        scaled = free_energy(nll, kl, num_observations=held_out.observations, temperature=energy.temperature)
        total += float(scaled.nll + kl / num_training) * share
    return total


def check_finite(epoch: int, **values: Tensor) -> None:
    """Raise ``TrainingDiverged`` for a value that is not finite."""
    for name, value in values.items():
        if not bool(value.isfinite().all()):
            bad = float(value[~value.isfinite()].flatten()[0])
            raise TrainingDiverged(
                f"the {name} became {bad} in epoch {epoch}, and nothing of this fit was kept. Try a smaller lr, a "
                "smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
            )
