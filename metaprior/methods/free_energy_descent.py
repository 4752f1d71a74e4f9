"""Stochastic descent of the free energy of one data set: the loop inside Bayes by Backprop."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from metaprior.checks import check_integer, check_positive, check_share
from metaprior.errors import TrainingDiverged
from metaprior.history import EpochRecord
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.objectives import (
    MINIBATCH_SHARES,
    NOISE_LR_FACTOR,
    Terms,
    free_energy,
    minibatch_free_energy,
)
from metaprior.posterior import sample_groups
from metaprior.priors import Prior
from metaprior.weights import WeightDistribution

HELD_OUT_SAMPLES = 16


@dataclass(frozen=True)
class Data:
    """Inputs and targets in the network's types and units."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor) -> "Data":
        return Data(self.x[index], self.y[index])


@dataclass(frozen=True)
class Minibatch:
    """Batch i of M of the data, which has the share pi_i of the KL."""

    data: Data
    num_observations: int
    num_batches: int
    kl_share: float


@dataclass(frozen=True)
class Model:
    """Everything that the free energy depends on, except data and weights."""

    network: BayesianNetwork
    likelihood: Likelihood
    prior: Prior
    temperature: float
    numbers_per_observation: int = 1

    def sample_groups(self, samples: int, observations: int) -> Iterator[range]:
        """Iterate over groups of weight samples whose weights and activations stay small."""
        weights = self.network.layout.dimension
        return sample_groups(samples, max(weights, observations * self.numbers_per_observation))

    def nll_and_kl(self, q: WeightDistribution, data: Data, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return Monte Carlo E_q[-log p(D|w)], summed over data, and KL(q || p), for weight noise (S, D)."""
        phis = q.sample(noise)

        def nll(phi: Tensor) -> Tensor:
            return self.likelihood.nll(self.network(phi, q.plain, data.x), data.y, q.plain).sum()

        return self.network.map_samples(nll, phis).mean(), self.prior.kl_from(q, phis)

    def minibatch_terms(self, q: WeightDistribution, batch: Minibatch, noise: Tensor) -> Terms:
        """Return the mini-batch's part of the free energy, per observation."""
        nll, kl = self.nll_and_kl(q, batch.data, noise)
        return minibatch_free_energy(
            nll,
            kl,
            num_observations=batch.num_observations,
            num_batches=batch.num_batches,
            kl_share=batch.kl_share,
            temperature=self.temperature,
        )

    def held_out_free_energy(
        self, q: WeightDistribution, held_out: Data, num_training: int, noise: Noise, batch_size: int
    ) -> float:
        """Return the free energy per observation: the nll of held-out data plus the KL of the training.

        The weight noise is the same every time, so that epochs differ only in the weights.
        """
        fixed, total = noise.fork("held-out"), 0.0
        batches = torch.arange(len(held_out), device=q.mu.device).split(batch_size)
        with torch.no_grad(), evaluation_mode(self.network.module):
            for group in self.sample_groups(HELD_OUT_SAMPLES, batch_size):
                weight_noise = fixed.normals(q.mu, group)
                nlls, kls = zip(*(self.nll_and_kl(q, held_out[i], weight_noise) for i in batches), strict=True)
                nll, kl = torch.stack(nlls).sum(), kls[0]
                scaled = free_energy(nll, kl, num_observations=len(held_out), temperature=self.temperature)
                total += float(scaled.nll + kl / num_training) * len(group) / HELD_OUT_SAMPLES
        return total


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
        for name in ("epochs", "batch_size", "samples", "patience"):
            check_integer(name, getattr(self, name), 1)
        check_positive("lr", self.lr)
        if self.weighting not in MINIBATCH_SHARES:
            raise ValueError(f"unknown weighting {self.weighting!r}; known are {', '.join(MINIBATCH_SHARES)}")
        check_share("kl_warmup", self.kl_warmup)

    @property
    def warmup_epochs(self) -> float:
        """Epochs over which the KL's weight rises to one."""
        return self.kl_warmup * self.epochs


class _EarlyStopping:
    """The weights to keep: the latest ones or, where data are held out, the best after the warm-up."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._score, self._epoch = plan, math.inf, 0
        self._weights: WeightDistribution | None = None

    def should_stop(self, q: WeightDistribution, record: EpochRecord) -> bool:
        """Remember the best weights; return whether the validation has not improved for ``patience`` epochs."""
        # The objective itself changes during the warm-up, so its epochs are not compared.
        if record.validation is None or record.epoch < self._plan.warmup_epochs:
            return False
        if record.validation < self._score:
            self._weights, self._score, self._epoch = q.detached(), record.validation, record.epoch
        return record.epoch - self._epoch >= self._plan.patience

    def weights(self, last: WeightDistribution) -> WeightDistribution:
        """Return the best weights, or the last ones where nothing was held out."""
        return self._weights or last.detached()


def descend(
    model: Model, start: WeightDistribution, data: Data, held_out: Data | None, plan: Plan, noise: Noise
) -> tuple[WeightDistribution, list[EpochRecord]]:
    """Minimise the free energy from ``start``; return the weights (of the best epoch, if data are held out) and the
    history."""
    q = start.map(_leaf)
    num_batches = math.ceil(len(data) / plan.batch_size)
    optimizer = _optimizer(q, plan.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.epochs * num_batches)
    stopping, history, step = _EarlyStopping(plan), list[EpochRecord](), 0
    bar = tqdm(range(1, plan.epochs + 1), desc="Bayes by Backprop", unit="epoch", disable=not plan.progress, delay=1)
    for epoch in bar:
        sums = Terms(torch.zeros_like(q.mu[0]), torch.zeros_like(q.mu[0]))
        for batch in _minibatches(data, plan, noise.at(step=epoch)):
            kl_weight = _kl_weight(step, plan.warmup_epochs * num_batches)
            optimizer.zero_grad()
            terms = _accumulate_gradient(model, q, batch, noise.at(step=step), plan.samples, kl_weight)
            _refuse_divergence(epoch, step, nll=terms.nll, kl=terms.kl)
            optimizer.step()
            schedule.step()
            sums, step = sums + terms, step + 1
        mean = sums.scaled(1 / num_batches)
        score = model.held_out_free_energy(q, held_out, len(data), noise, plan.batch_size) if held_out else None
        _refuse_divergence(epoch, step, validation=score)
        nll, kl = float(mean.nll), float(mean.kl)
        history.append(
            EpochRecord(epoch, nll + kl, nll, kl, observations=len(data), steps=num_batches, validation=score)
        )
        bar.set_postfix(_postfix(history[-1]), refresh=False)
        if stopping.should_stop(q, history[-1]):
            break
    kept = stopping.weights(q)
    for name, value in kept.named().items():
        if not bool(torch.isfinite(value).all()):
            _refuse_divergence(len(history), step, **{name: math.nan})
    return kept, history


def _optimizer(q: WeightDistribution, lr: float) -> torch.optim.Adam:
    """Return Adam; the likelihood's own parameters, which every observation informs, take larger steps."""
    noise = [value for name, value in q.plain.items() if name == NOISE_RHO]
    weights = [q.mu, q.rho, *(value for name, value in q.plain.items() if name != NOISE_RHO)]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": noise, "lr": NOISE_LR_FACTOR * lr}]
    return torch.optim.Adam(groups, lr=lr, fused=q.mu.device.type in ("cpu", "cuda"))


def _accumulate_gradient(
    model: Model, q: WeightDistribution, batch: Minibatch, noise: Noise, samples: int, kl_weight: float
) -> Terms:
    """Add the mini-batch's gradient to the leaves of q, one group of weight samples at a time; return the terms."""
    sums = Terms(torch.zeros_like(q.mu[0]), torch.zeros_like(q.mu[0]))
    for group in model.sample_groups(samples, len(batch.data)):
        terms = model.minibatch_terms(q, batch, noise.normals(q.mu, group)).scaled(len(group) / samples)
        (terms.nll + kl_weight * terms.kl).backward()
        sums += terms.detached()
    return sums


def _minibatches(data: Data, plan: Plan, noise: Noise) -> Iterator[Minibatch]:
    """Iterate once over all data, shuffled."""
    order = torch.randperm(len(data), generator=noise.fork("shuffle").generator()).to(data.x.device)
    pieces = order.split(plan.batch_size)
    for index, share in zip(pieces, MINIBATCH_SHARES[plan.weighting](len(pieces)), strict=True):
        yield Minibatch(data[index], len(data), len(pieces), share)


def _refuse_divergence(epoch: int, step: int, **values: Tensor | float | None) -> None:
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise TrainingDiverged(
                f"the {name} became {float(value)} at step {step} (epoch {epoch}), and nothing of this fit was kept. "
                "Try a smaller lr, a smaller relative_sigma, or inputs of a common scale (mean 0, standard deviation 1)"
            )


def _kl_weight(step: int, warmup_steps: float) -> float:
    """Return the weight of the KL at a step, which rises linearly to one."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def _postfix(record: EpochRecord) -> dict[str, str]:
    shown = {"nll": record.nll, "kl": record.kl, "validation": record.validation}
    return {name: f"{value:.3f}" for name, value in shown.items() if value is not None}
