"""Descent of the free energy of one data set, with held-out data and early stopping: the loop of Bayes by Backprop."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from metaprior.checks import check_integer
from metaprior.errors import TrainingDiverged
from metaprior.history import EpochRecord
from metaprior.network import evaluation_mode
from metaprior.noise import Noise
from metaprior.objectives import free_energy
from metaprior.priors import Prior
from metaprior.stack_descent import DescentPlan, FreeEnergy, SharedParameters, Stack, StackDescent, new_record
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution

HELD_OUT_SAMPLES = 16


@dataclass(frozen=True)
class Plan:
    """The settings of a fit; ``BayesByBackprop.fit`` explains each."""

    epochs: int
    batch_size: int
    lr: float
    samples: int
    weighting: str
    kl_warmup: float
    patience: int
    progress: bool

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            check_integer(name, getattr(self, name), 1)
        self.steps(1)  # checks the rest

    def steps(self, num_batches: int) -> DescentPlan:
        """Return the settings of all steps."""
        warmup = self.kl_warmup, True, self.weighting
        return DescentPlan(self.epochs * num_batches, self.batch_size, self.lr, self.samples, *warmup)


@dataclass(frozen=True)
class OfOneTask:
    """A prior over the weights of one network, as the prior of a stack of one task."""

    prior: Prior

    def kl_from(self, q: WeightDistribution, phi: Tensor) -> Tensor:
        """Return KL(q || prior) for q (1, D) and samples (1, S, D), shape (1,)."""
        return self.prior.kl_from(WeightDistribution(q.mu[0], q.rho[0]), phi[0]).unsqueeze(0)


class _EarlyStopping:
    """The weights to keep: the latest ones or, where data are held out, the best after the warm-up."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._score, self._epoch = plan, math.inf, 0
        self._weights: WeightDistribution | None = None

    def should_stop(self, q: WeightDistribution, record: EpochRecord) -> bool:
        """Remember the best weights; return whether the validation has not improved for ``patience`` epochs."""
        # The objective itself changes during the warm-up, so its epochs are not compared.
        if record.validation is None or record.epoch < self._plan.kl_warmup * self._plan.epochs:
            return False
        if record.validation < self._score:
            self._weights, self._score, self._epoch = q.detached(), record.validation, record.epoch
        return record.epoch - self._epoch >= self._plan.patience

    def weights(self, last: WeightDistribution) -> WeightDistribution:
        """Return the best weights, or the last ones where nothing was held out."""
        return self._weights or last.detached()


def descend(
    energy: FreeEnergy,
    prior: Prior,
    start: WeightDistribution,
    data: Examples,
    held_out: Examples | None,
    plan: Plan,
    noise: Noise,
) -> tuple[WeightDistribution, list[EpochRecord]]:
    """Minimise the free energy from ``start``.

    Args:
        energy: network, likelihood and temperature, in the network's units.
        prior: prior over the random weights.
        start: where means, scales and plain parameters start.
        data: the training data, in the network's units.
        held_out: data for early stopping.
        plan: the settings.
        noise: noise of weight samples and shuffling.

    Returns:
        The weights (of the best epoch, if data are held out) and the history.
    """
    stack = Stack(["the data"], [0], new_record(start).unsqueeze(0), 0, [data])
    num_batches, shared = math.ceil(data.size / plan.batch_size), SharedParameters(start.plain)
    steps = plan.steps(num_batches)
    descent, stopping = StackDescent(energy, stack, OfOneTask(prior), shared, steps, noise), _EarlyStopping(plan)
    q, history = WeightDistribution(descent.mu[0], descent.rho[0], shared.values), list[EpochRecord]()
    bar = tqdm(range(1, plan.epochs + 1), desc="Bayes by Backprop", unit="epoch", disable=not plan.progress, delay=1)
    for epoch in bar:
        now = range((epoch - 1) * num_batches, epoch * num_batches)
        terms = [descent.step(step, shared_lr=steps.lr_at(step)) for step in now]
        nll, kl = (float(sum(getattr(one, name) for one in terms)) / num_batches for name in ("nll", "kl"))
        q = WeightDistribution(descent.mu[0], descent.rho[0], shared.values)
        score = None
        if held_out is not None:
            score = held_out_free_energy(energy, prior, q, held_out, data.size, noise, plan.batch_size)
            _check_finite(epoch, validation=torch.tensor(score))
        history.append(
            EpochRecord(epoch, nll + kl, nll, kl, observations=data.size, steps=num_batches, validation=score)
        )
        bar.set_postfix(_postfix(history[-1]), refresh=False)
        if stopping.should_stop(q, history[-1]):
            break
    kept = stopping.weights(q)
    _check_finite(len(history), **{name.replace(".", " "): value for name, value in kept.named().items()})
    return kept, history


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
    pieces = [Examples(x[None], y[None]) for x, y in zip(*(part.split(batch_size) for part in held_out), strict=True)]
    with torch.no_grad(), evaluation_mode(energy.network.module):
        for group in energy.sample_groups(HELD_OUT_SAMPLES, len(q.mu), batch_size):
            phis = q.sample(fixed.normals(q.mu, group))
            nll = torch.stack([energy.nll(phis[None], piece, q.plain)[0] for piece in pieces]).sum()
            kl = prior.kl_from(q, phis)
            scaled = free_energy(nll, kl, num_observations=held_out.size, temperature=energy.temperature)
            total += float(scaled.nll + kl / num_training) * len(group) / HELD_OUT_SAMPLES
    return total


def _check_finite(epoch: int, **values: Tensor) -> None:
    for name, value in values.items():
        if not bool(value.isfinite().all()):
            bad = float(value[~value.isfinite()].flatten()[0])
            raise TrainingDiverged(
                f"the {name} became {bad} in epoch {epoch}, and nothing of this fit was kept. Try a smaller lr, a "
                "smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
            )


def _postfix(record: EpochRecord) -> dict[str, str]:
    shown = {"nll": record.nll, "kl": record.kl, "validation": record.validation}
    return {name: f"{value:.3f}" for name, value in shown.items() if value is not None}
