"""Stochastic descent of the free energies of a stack of tasks: behind Bayes by Backprop and hierarchical inference.

For task i with N_i observations, of which a step sees one mini-batch of M (``objectives.minibatch_free_energy``):

    F_i = (E_q[-log p(D_i | phi)] / T + KL(q_i || prior)) / N_i

One program serves a stack of tasks (small networks) and a single data set. Random weights have a posterior for each
task; plain parameters and the noise scale are point values that all tasks share.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.checks import check_counts, check_positive, check_share, refuse_non_finite
from metaprior.errors import TrainingDiverged
from metaprior.inputs import Inputs, rows_of
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.minibatches import Batch, HeldOut, Minibatches, ShuffledData, WeightedExamples
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.objectives import MINIBATCH_SHARES, NOISE_LR_FACTOR, Terms, minibatch_free_energy
from metaprior.posterior import NUMBERS_AT_ONCE, sample_groups
from metaprior.priors import Prior
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

ROWS = 6
"""Rows of a record: mu, rho, then Adam's first and second moments of both."""

FIRST_KL_WEIGHT = 1e-4
"""Weight of the KL at the start of a geometric warm-up."""


@dataclass(frozen=True)
class DescentPlan:
    """The settings of a descent.

    Args:
        steps: steps of each posterior in all.
        batch_size: observations in a step.
        lr: Adam's learning rate, falling to zero along a cosine.
        samples: weight samples in a step.
        kl_warmup: fraction of the steps over which the KL's weight rises to 1.
        linear_warmup: let it rise linearly from 0; otherwise from 1e-4 by the same factor in every step.
        weighting: how the mini-batches of a pass share the KL, "uniform" or "geometric".
    """

    steps: int
    batch_size: int = 128
    lr: float = 1e-2
    samples: int = 1
    kl_warmup: float = 0.0
    linear_warmup: bool = False
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, batch_size=self.batch_size, samples=self.samples)
        check_positive("lr", self.lr)
        check_share("kl_warmup", self.kl_warmup)
        if self.weighting not in MINIBATCH_SHARES:
            raise ValueError(f"weighting must be one of {', '.join(MINIBATCH_SHARES)}, got {self.weighting!r}")

    def num_batches(self, observations: int) -> int:
        """Return the number of mini-batches in one pass over the observations."""
        return math.ceil(observations / self.batch_size)

    def lr_at(self, step: float) -> float:
        """Return the learning rate at a step."""
        return 0.5 * self.lr * (1 + math.cos(math.pi * step / self.steps))

    def kl_weight_at(self, step: int) -> float:
        """Return the weight of the KL at a step."""
        warmup = self.kl_warmup * self.steps
        if step + 1 >= warmup:
            return 1.0
        return (step + 1) / warmup if self.linear_warmup else FIRST_KL_WEIGHT ** (1 - (step + 1) / warmup)


def new_record(q: WeightDistribution) -> Tensor:
    """Return the record (6, D) of a posterior that has not taken a step."""
    return torch.stack([q.mu, q.rho, *[torch.zeros_like(q.mu)] * (ROWS - 2)])


class Stack(NamedTuple):
    """B tasks of equal size whose posteriors have taken equally many steps: records (B, 6, D) and data."""

    names: Sequence[str]
    indices: Sequence[int]
    records: Tensor
    steps_taken: int
    data: Sequence[Examples]

    @property
    def size(self) -> int:
        """Return the number of observations of each task."""
        return self.data[0].size

    @property
    def weights(self) -> WeightDistribution:
        """Return mu and rho, (B, D) each."""
        return WeightDistribution(self.records[:, 0], self.records[:, 1])


class SharedParameters:
    """Plain parameters and the likelihood's noise scale: point values that all tasks share, with Adam's moments."""

    def __init__(
        self, values: Mapping[str, Tensor], moments: Mapping[str, Tensor] | None = None, steps: int = 0
    ) -> None:
        self.values = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        noise = [value for name, value in self.values.items() if name == NOISE_RHO]
        others = [value for name, value in self.values.items() if name != NOISE_RHO]
        groups = (others, 1.0), (noise, NOISE_LR_FACTOR)
        self._adam = torch.optim.Adam([{"params": values, "factor": factor} for values, factor in groups])
        saved = moments or {}
        for name, value in self.values.items() if saved else ():
            first, second = (saved[f"{which}.{name}"].clone() for which in ("first", "second"))
            self._adam.state[value] = _adam_state(first, second, steps)

    def step(self, lr: float) -> None:
        """Take a step along the accumulated gradients, and reset them."""
        for group in self._adam.param_groups:
            group["lr"] = lr * group["factor"]
        self._adam.step()
        self._adam.zero_grad()

    @property
    def moments(self) -> dict[str, Tensor]:
        """Return Adam's moments by name."""
        kept = {name: self._adam.state[value] for name, value in self.values.items() if value in self._adam.state}
        first = {f"first.{name}": entry["exp_avg"] for name, entry in kept.items()}
        return first | {f"second.{name}": entry["exp_avg_sq"] for name, entry in kept.items()}

    @property
    def steps(self) -> int:
        """Return the number of steps that were taken."""
        return int(next((entry["step"] for entry in self._adam.state.values()), 0))

    def detached(self) -> dict[str, Tensor]:
        """Return a copy of the values."""
        return {name: value.detach().clone() for name, value in self.values.items()}


@dataclass(frozen=True)
class FreeEnergy:
    """What the free energy of a task depends on, except prior, data and weights; in the network's units."""

    network: BayesianNetwork
    likelihood: Likelihood
    temperature: float = 1.0
    numbers_per_observation: int = 1
    """Activations of one observation, which decide how many weight samples are computed together."""
    own_plain: bool = False
    """Whether every task has plain parameters of its own, stacked on a first axis; otherwise tasks share them."""

    def masking(self, data: Sequence[Examples]) -> "FreeEnergy":
        """Return the free energy itself, or, if some of the targets are missing, that of the others."""
        likelihood = self.likelihood.masking(*(own.y for own in data))
        return self if likelihood is self.likelihood else replace(self, likelihood=likelihood)

    def tasks_at_once(self, plan: DescentPlan) -> int:
        """Return how many posteriors are stacked, few enough for weights and activations to stay small."""
        numbers = max(ROWS * self.network.layout.dimension, plan.batch_size * self.numbers_per_observation)
        return max(1, NUMBERS_AT_ONCE // (plan.samples * numbers))

    def sample_groups(self, samples: int, weights: int, observations: int) -> Iterator[range]:
        """Iterate over groups of weight samples whose weights and activations stay small."""
        return sample_groups(samples, max(weights, observations * self.numbers_per_observation))

    def nll(self, phis: Tensor, data: Examples, plain: Mapping[str, Tensor], weights: Tensor | None = None) -> Tensor:
        """Return -log p(D_i | phi), summed over data (B, N, ...) and averaged over samples phis (B, S, D): (B,).

        ``weights`` (B, N) are how many observations each one counts as.
        """
        likelihood, network = self.likelihood, self.network

        def of_task(samples: Tensor, x: Inputs, y: Tensor, *own: Any) -> Tensor:
            values, counts = own[0] if self.own_plain else plain, own[-1] if weights is not None else None

            def of_sample(phi: Tensor) -> Tensor:
                return likelihood.total_nll(network(phi, values, x), y, values, counts)

            return network.map_samples(of_sample, samples).mean()

        rows = (*data, *([dict(plain)] if self.own_plain else []), *([] if weights is None else [weights]))
        return network.map_samples(of_task, phis, *rows)

    def samples_with_nll(
        self, q: WeightDistribution, data: HeldOut, noise: Noise, samples: int
    ) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Iterate over groups of weight samples of q: the group, its mean -log p(D | phi), and its share of all."""
        groups = list(self.sample_groups(samples, len(q.mu), data.largest))
        draw = lru_cache(maxsize=1)(lambda group: q.sample(noise.normals(q.mu, group)))
        parts: list[list[Tensor]] = [[] for _ in groups]
        with evaluation_mode(self.network.module):
            for piece in data.pieces():  # one pass: the data may come from a loader
                for group, own in zip(groups, parts, strict=True):
                    own.append(self._nll_of(draw(group), piece, q.plain))
        for group, own in zip(groups, parts, strict=True):
            yield draw(group), torch.stack(own).sum(), len(group) / samples

    def _nll_of(self, phis: Tensor, piece: WeightedExamples, plain: Mapping[str, Tensor]) -> Tensor:
        """Return -log p(D | phi) of one data set, summed over it and averaged over samples phis (S, D)."""
        (x, y), weights = piece
        own = None if weights is None else weights[None]
        return self.masking([piece.examples]).nll(phis[None], Examples(rows_of(x, None), y[None]), plain, own)[0]


class StackDescent:
    """Adam on the posteriors of a stack, and on the parameters that they share.

    Args:
        energy: network, likelihood and temperature.
        stack: the tasks' records and data.
        prior: gives KL(q || prior) for each posterior of a stack.
        shared: the parameters that all tasks share.
        plan: settings of the whole descent.
        noise: noise of weight samples and shuffling; each task and step has its own.
        batches: the mini-batches, where they are not those of the stack's data (whose ``data`` may then be empty).
    """

    def __init__(
        self,
        energy: FreeEnergy,
        stack: Stack,
        prior: Prior,
        shared: SharedParameters,
        plan: DescentPlan,
        noise: Noise,
        batches: Minibatches | None = None,
    ) -> None:
        self.energy, self.stack, self.prior = energy.masking(stack.data) if stack.data else energy, stack, prior
        self.shared, self.plan, self._noise = shared, plan, noise
        self.batches = batches or ShuffledData(
            stack.data, stack.indices, plan.batch_size, plan.weighting, noise, stack.steps_taken
        )
        self.last: dict[str, list[float]] = {}
        """The terms of the last step, a number for each task."""
        self._next_batches, self.steps_taken, self.seen = iter(self.batches), stack.steps_taken, 0
        self.mu, self.rho = (stack.records[:, row].clone().requires_grad_() for row in (0, 1))
        self._adam = torch.optim.Adam([self.mu, self.rho], fused=self.mu.device.type in ("cpu", "cuda"))
        if stack.steps_taken:
            for row, value in enumerate((self.mu, self.rho)):
                first, second = stack.records[:, 2 + row].clone(), stack.records[:, 4 + row].clone()
                self._adam.state[value] = _adam_state(first, second, stack.steps_taken)

    @cached_property
    def _fixed(self) -> dict[str, Tensor]:
        return self.shared.detached()

    def step(self, step: int, *, shared_lr: float | None = None, weight: float = 1.0) -> Terms:
        """Take a step of the plan, and return the terms per observation before it, (B,) each.

        Args:
            step: number of the step in the plan, which decides learning rate and KL weight.
            shared_lr: learning rate of the shared parameters; None leaves them as they are.
            weight: weight of these tasks' gradient with respect to the shared parameters.
        """
        batch = next(self._next_batches)
        self._adam.param_groups[0]["lr"] = self.plan.lr_at(step)
        plain = self._fixed if shared_lr is None else self.shared.values
        terms = self._accumulate_gradient(batch, plain, self.plan.kl_weight_at(step))
        self.last = dict(zip(vars(terms), torch.stack([*vars(terms).values()]).tolist(), strict=True))
        for what, values in self.last.items():
            for name, number in zip(self.stack.names, values, strict=True):
                if not math.isfinite(number):
                    raise TrainingDiverged(
                        f"the {what} of {name!r} became {number} at step {step}; the step was not kept. Try a smaller "
                        "lr, a smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
                    )
        self._adam.step()
        self._adam.zero_grad()
        if shared_lr is not None:
            for value in self.shared.values.values():
                value.grad = None if value.grad is None else value.grad * (weight / len(self.stack.indices))
            self.shared.step(shared_lr)
        self.steps_taken, self.seen = self.steps_taken + 1, self.seen + batch.examples.y.shape[1]
        return terms

    def records(self) -> Tensor:
        """Return the records (B, 6, D) after the steps that were taken; raise if one is not finite."""
        moments = [self._adam.state[value][name] for name in ("exp_avg", "exp_avg_sq") for value in (self.mu, self.rho)]
        records = torch.stack([self.mu.detach(), self.rho.detach(), *moments], 1)
        for name, record in zip(self.stack.names, records, strict=True):
            if not bool(record.isfinite().all()):
                raise TrainingDiverged(
                    f"the posterior of {name!r} is no longer finite; it was not kept. Try a smaller lr"
                )
        return records

    def _accumulate_gradient(self, batch: Batch, plain: dict[str, Tensor], kl_weight: float) -> Terms:
        """Add the gradient of the tasks' free energies to the leaves; return the terms per observation, (B,)."""
        q, samples = WeightDistribution(self.mu, self.rho, plain), self.plan.samples
        noises = [self._noise.at(task=index, step=self.steps_taken) for index in self.stack.indices]
        sums = Terms(torch.zeros_like(q.mu[:, 0]), torch.zeros_like(q.mu[:, 0]))
        for group in self.energy.sample_groups(samples, ROWS * q.mu.numel(), batch.examples.y.shape[1] * len(q.mu)):
            epsilon = torch.stack([noise.normals(q.mu[0], group) for noise in noises])  # (B, S, D)
            phis = q.mu.unsqueeze(1) + q.sigma.unsqueeze(1) * epsilon
            terms = minibatch_free_energy(
                self.energy.nll(phis, batch.examples, plain, batch.weights),
                self.prior.kl_from(q, phis),
                num_observations=self.batches.observations,
                num_batches=self.batches.count,
                kl_share=batch.kl_share,
                temperature=self.energy.temperature,
            ).scaled(len(group) / samples)
            (terms.nll + kl_weight * terms.kl).sum().backward()
            sums += terms.detached()
        return sums


def visit(descent: StackDescent, steps: range, *, shared_lr: bool = False, weight: float = 1.0) -> tuple[Tensor, Terms]:
    """Take some steps of the plan on a stack; return its records, and for each task the terms summed over its data.

    Args:
        descent: the posteriors, at the first of these steps.
        steps: the steps to take.
        shared_lr: whether the shared parameters are learned too, with the plan's learning rates.
        weight: weight of these tasks' gradient with respect to the shared parameters; on average over all tasks an
            observation has weight 1.
    """
    lrs = [descent.plan.lr_at(step) if shared_lr else None for step in steps]
    terms = [descent.step(step, shared_lr=lr, weight=weight) for step, lr in zip(steps, lrs, strict=True)]
    size = descent.stack.size
    # In the gradient every batch of a pass has the same weight; in the reported sum every observation has.
    nll = torch.stack([one.nll for one in terms]).sum(0) * size / descent.plan.num_batches(size)
    kl = torch.stack([one.kl for one in terms]).sum(0) * size / len(steps)
    return descent.records(), Terms(nll * size / descent.seen, kl)


def checked_theta(theta: WeightDistribution, network: BayesianNetwork, name: str) -> WeightDistribution:
    """Return a given theta in the network's type; raise unless it has a finite mean and scale for every weight."""
    expected = (network.layout.dimension,)
    for part, value in (("mu", theta.mu), ("rho", theta.rho)):
        if value.shape != expected:
            raise ValueError(f"{name}'s {part} has shape {tuple(value.shape)}, the random weights {expected}")
        refuse_non_finite(value, f"{name}'s {part}", remedy="it must come from a finished training")
    mu, rho = (value.detach().to(network.device, network.dtype) for value in (theta.mu, theta.rho))
    return WeightDistribution(mu, rho)


def _adam_state(first: Tensor, second: Tensor, steps: int) -> dict[str, Tensor]:
    return {"step": torch.tensor(float(steps), device=first.device), "exp_avg": first, "exp_avg_sq": second}
