"""Steps on the posteriors of some tasks with psi held fixed: what one visit to a task does.

One program serves a stack of tasks (small networks) and a single one (large networks). With one task, a fixed theta and
all data in every step it is numerically identical to Bayes by Backprop.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior.checks import check_integer, check_positive, check_share
from metaprior.errors import TrainingDiverged
from metaprior.hierarchy.hyper_posterior import HyperPosterior
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.objectives import NOISE_LR_FACTOR, Terms, minibatch_free_energy
from metaprior.posterior import NUMBERS_AT_ONCE, sample_groups
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

ROWS = 6
"""Rows of a record: mu, rho, then Adam's first and second moments of both."""

FIRST_KL_WEIGHT = 1e-4
"""Weight of the KL at the start of its warm-up."""


@dataclass(frozen=True)
class LocalSteps:
    """The settings of a posterior's descent; ``HierarchicalVI.fit`` and ``.adapt`` explain each."""

    steps: int
    batch_size: int = 128
    lr: float = 1e-2
    samples: int = 1
    kl_warmup: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "samples"):
            check_integer(name, getattr(self, name), 1)
        check_positive("lr", self.lr)
        check_share("kl_warmup", self.kl_warmup)

    def num_batches(self, observations: int) -> int:
        """Return the number of mini-batches in one pass over the observations."""
        return math.ceil(observations / self.batch_size)

    def lr_at(self, step: float) -> float:
        """Return the learning rate at a step, which falls to zero along a cosine."""
        return 0.5 * self.lr * (1 + math.cos(math.pi * step / self.steps))

    def kl_weight_at(self, step: int) -> float:
        """Return the weight of the KL at a step, which rises to one by the same factor in every step."""
        warmup = self.kl_warmup * self.steps
        return FIRST_KL_WEIGHT ** (1 - (step + 1) / warmup) if step + 1 < warmup else 1.0


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


class Visit(NamedTuple):
    """The result of a visit: the stack's records, and for each task the mean terms, summed over its data."""

    records: Tensor
    nll: Tensor
    kl: Tensor


class SharedParameters:
    """Plain parameters and the likelihood's noise scale: point values that all tasks share, with Adam's moments."""

    def __init__(
        self, values: Mapping[str, Tensor], moments: Mapping[str, Tensor] | None = None, steps: int = 0
    ) -> None:
        self.values = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        noise = [value for name, value in self.values.items() if name == NOISE_RHO]
        others = [value for name, value in self.values.items() if name != NOISE_RHO]
        groups: list[dict[str, Any]] = [
            {"params": parameters, "factor": factor}
            for parameters, factor in ((others, 1.0), (noise, NOISE_LR_FACTOR))
            if parameters
        ]
        self._adam = torch.optim.Adam(groups) if groups else None
        if self._adam is not None and moments:
            for name, value in self.values.items():
                first, second = moments[f"first.{name}"], moments[f"second.{name}"]
                self._adam.state[value] = _adam_state(first.clone(), second.clone(), steps)

    def step(self, lr: float) -> None:
        """Take a step along the accumulated gradients, and reset them."""
        if self._adam is None:
            return
        for group in self._adam.param_groups:
            group["lr"] = lr * group["factor"]
        self._adam.step()
        self._adam.zero_grad()

    @property
    def moments(self) -> dict[str, Tensor]:
        """Return Adam's moments by name."""
        state = {} if self._adam is None else self._adam.state
        kept = {name: state[value] for name, value in self.values.items() if value in state}
        first = {f"first.{name}": entry["exp_avg"] for name, entry in kept.items()}
        return first | {f"second.{name}": entry["exp_avg_sq"] for name, entry in kept.items()}

    @property
    def steps(self) -> int:
        """Return the number of steps that were taken."""
        taken = [entry["step"] for entry in self._adam.state.values()] if self._adam is not None else []
        return int(taken[0]) if taken else 0

    def detached(self) -> dict[str, Tensor]:
        """Return a copy of the values."""
        return {name: value.detach().clone() for name, value in self.values.items()}


@dataclass(frozen=True)
class LocalDescent:
    """Network, likelihood (in the network's units) and noise: what every visit needs."""

    network: BayesianNetwork
    likelihood: Likelihood
    noise: Noise

    def tasks_at_once(self, plan: LocalSteps, numbers_per_observation: int) -> int:
        """Return how many posteriors are stacked, few enough for weights and activations to stay small."""
        numbers = max(ROWS * self.network.layout.dimension, plan.batch_size * numbers_per_observation)
        return max(1, NUMBERS_AT_ONCE // (plan.samples * numbers))

    def visit(
        self,
        stack: Stack,
        psi: HyperPosterior,
        shared: SharedParameters,
        plan: LocalSteps,
        *,
        steps: range,
        weight: float = 1.0,
        shared_lr: Sequence[float] | None = None,
    ) -> Visit:
        """Take some of a plan's steps on a stack, and return its records and terms.

        Args:
            stack: the tasks' records and data.
            psi: the prior, which is held fixed.
            shared: the parameters that all tasks share.
            plan: settings of the whole descent.
            steps: the steps of the plan to take.
            weight: weight of these tasks' gradient with respect to the shared parameters; on average over all tasks an
                observation has weight 1.
            shared_lr: learning rates of the shared parameters at each step; None leaves them as they are.
        """
        mu, rho = (stack.records[:, row].clone().requires_grad_() for row in (0, 1))
        adam = torch.optim.Adam([mu, rho], fused=mu.device.type in ("cpu", "cuda"))
        if stack.steps_taken:
            for row, value in enumerate((mu, rho)):
                first, second = stack.records[:, 2 + row].clone(), stack.records[:, 4 + row].clone()
                adam.state[value] = _adam_state(first, second, stack.steps_taken)
        sums, seen = Terms(torch.zeros_like(mu[:, 0]), torch.zeros_like(mu[:, 0])), 0
        plain = shared.detached() if shared_lr is None else shared.values
        batches, q = self._minibatches(stack, plan), WeightDistribution(mu, rho, plain)
        for count, step in enumerate(steps):
            adam.param_groups[0]["lr"] = plan.lr_at(step)
            noises = [self.noise.at(task=index, step=stack.steps_taken + count) for index in stack.indices]
            batch = next(batches)
            terms = self._accumulate_gradient(q, psi, batch, stack.size, noises, plan, plan.kl_weight_at(step))
            _refuse_divergence(terms, stack.names, step)
            adam.step()
            adam.zero_grad()
            if shared_lr is not None:
                for value in shared.values.values():
                    value.grad = None if value.grad is None else value.grad * (weight / len(stack.indices))
                shared.step(shared_lr[count])
            sums, seen = sums + terms, seen + batch.x.shape[1]
        moments = [adam.state[value][name] for name in ("exp_avg", "exp_avg_sq") for value in (mu, rho)]
        records = torch.stack([mu.detach(), rho.detach(), *moments], 1)
        _refuse_non_finite(records, stack.names)
        # In the gradient every batch of a pass has the same weight; in the reported sum every observation has.
        nll = sums.nll * stack.size / plan.num_batches(stack.size)  # sum over the observations that were seen
        return Visit(records, nll * stack.size / seen, sums.kl * stack.size / len(steps))

    def _accumulate_gradient(
        self,
        q: WeightDistribution,
        psi: HyperPosterior,
        batch: Examples,
        size: int,
        noises: Sequence[Noise],
        plan: LocalSteps,
        kl_weight: float,
    ) -> Terms:
        """Add the gradient of the tasks' free energies to the leaves of q; return the terms per observation, (B,)."""
        sums = Terms(torch.zeros_like(q.mu[:, 0]), torch.zeros_like(q.mu[:, 0]))
        num_batches = plan.num_batches(size)
        for group in sample_groups(plan.samples, ROWS * q.mu.numel()):
            epsilon = torch.stack([noise.normals(q.mu[0], group) for noise in noises])  # (B, S, D)
            phis = q.mu.unsqueeze(1) + q.sigma.unsqueeze(1) * epsilon
            terms = minibatch_free_energy(
                self.nll(phis, batch, q.plain),
                psi.kl_from(q),
                num_observations=size,
                num_batches=num_batches,
                kl_share=1 / num_batches,
            ).scaled(len(group) / plan.samples)
            (terms.nll + kl_weight * terms.kl).sum().backward()
            sums += terms.detached()
        return sums

    def nll(self, phis: Tensor, data: Examples, plain: Mapping[str, Tensor]) -> Tensor:
        """Return -log p(D_i | phi), summed over data (B, N, ...) and averaged over samples phis (B, S, D): (B,)."""

        def of_sample(phi: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.likelihood.nll(self.network(phi, plain, x), y, plain).sum()

        def of_task(samples: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.network.map_samples(lambda phi: of_sample(phi, x, y), samples).mean()

        return self.network.map_samples(of_task, phis, *data)

    def _minibatches(self, stack: Stack, plan: LocalSteps) -> Iterator[Examples]:
        """Iterate without end over each task's next mini-batches, stacked; every pass shuffles the data anew."""
        if plan.num_batches(stack.size) == 1:
            yield from repeat(_stacked(stack.data))
        turn, place = divmod(stack.steps_taken, plan.num_batches(stack.size))
        while True:
            noises = [self.noise.at(task=index, step=turn + 1).fork("shuffle") for index in stack.indices]
            orders = [torch.randperm(stack.size, generator=noise.generator()) for noise in noises]
            for rows in zip(*(order.split(plan.batch_size)[place:] for order in orders), strict=True):
                yield _stacked([_chosen(data, row) for data, row in zip(stack.data, rows, strict=True)])
            turn, place = turn + 1, 0


def _chosen(data: Examples, rows: Tensor) -> Examples:
    here = rows.to(data.x.device)
    return Examples(data.x[here], data.y[here])


def _stacked(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts]))


def _adam_state(first: Tensor, second: Tensor, steps: int) -> dict[str, Tensor]:
    return {"step": torch.tensor(float(steps), device=first.device), "exp_avg": first, "exp_avg_sq": second}


def _refuse_divergence(terms: Terms, names: Sequence[str], step: int) -> None:
    for what, values in (("nll", terms.nll), ("kl", terms.kl)):
        for name, value in zip(names, values.tolist(), strict=True):
            if not math.isfinite(value):
                raise TrainingDiverged(
                    f"the {what} of {name!r} became {value} at local step {step}; the step was not kept. Try a "
                    "smaller lr, a smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
                )


def _refuse_non_finite(records: Tensor, names: Sequence[str]) -> None:
    for name, record in zip(names, records, strict=True):
        if not bool(record.isfinite().all()):
            raise TrainingDiverged(f"the posterior of {name!r} is no longer finite; it was not kept. Try a smaller lr")
