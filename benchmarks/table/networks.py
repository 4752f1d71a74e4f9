"""Networks with one hidden layer, several of them trained at once: deep ensemble, MC dropout, and means for Laplace."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.table.peer import Peer, Rows, Trained
from benchmarks.table.predictive import FloatArray, Normals

HIDDEN = 50
BATCH = 100
MEMBERS = 5
MASKS = 200
MIN_SCALE = 1e-3
"""Least standard deviation of a heteroscedastic network, in standard deviations of the targets."""


@dataclass(frozen=True)
class Descent:
    """Adam's steps of 100 rows, the first learning rate (falling to zero along a cosine), weight decay, dropout rate.

    ``decay`` is the precision of a Gaussian prior on the weights: the loss is the mean over rows plus
    ``decay`` |w|^2 / 2.
    """

    steps: int
    decay: float = 0.0
    dropout: float = 0.0
    lr: float = 1e-2


class Layers(NamedTuple):
    """Weights of M networks: (M, F, H), (M, 1, H), (M, H, O), (M, 1, O)."""

    first: Tensor
    first_bias: Tensor
    last: Tensor
    last_bias: Tensor

    @classmethod
    def drawn(cls, members: int, inputs: int, outputs: int, draw: torch.Generator) -> "Layers":
        """Return weights as ``torch.nn.Linear`` draws them."""

        def uniform(fan_in: int, *shape: int) -> Tensor:
            return ((2 * torch.rand(members, *shape, generator=draw) - 1) / math.sqrt(fan_in)).requires_grad_()

        first, first_bias = uniform(inputs, inputs, HIDDEN), uniform(inputs, 1, HIDDEN)
        return cls(first, first_bias, uniform(HIDDEN, HIDDEN, outputs), uniform(HIDDEN, 1, outputs))

    def __call__(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        """Return the outputs (M, N, O) of inputs (M, N, F); dropout is on inputs and hidden units."""
        hidden = torch.baddbmm(self.first_bias, F.dropout(x, dropout) if dropout else x, self.first).relu()
        return torch.baddbmm(self.last_bias, F.dropout(hidden, dropout) if dropout else hidden, self.last)


def trained_layers(rows: Rows, descent: Descent, *, members: int, noisy: bool, seed: int) -> Layers:
    """Return trained networks: with ``noisy`` they give mean and scale (NLL), without the mean only (squared error)."""
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in rows)
    layers = Layers.drawn(members, x.shape[1], 2 if noisy else 1, draw)
    optimizer = torch.optim.Adam(layers, lr=descent.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, descent.steps)
    order, size = torch.empty(members, 0, dtype=torch.long), min(BATCH, len(y))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the dropout masks
        for _ in range(descent.steps):
            if order.shape[1] < size:
                order = torch.argsort(torch.rand(members, len(y), generator=draw), 1)  # each member its own epoch
            batch, order = order[:, :size], order[:, size:]
            outputs, targets = layers(x[batch], descent.dropout), y[batch]
            losses = normal_nll(outputs, targets) if noisy else (outputs[..., 0] - targets).square() / 2
            loss = losses.mean(1).sum()
            if descent.decay:
                loss = loss + descent.decay / 2 * (layers.first.square().sum() + layers.last.square().sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return Layers(*(part.detach() for part in layers))


def normal_nll(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log density, without its constant."""
    mean, scale = mean_and_scale(outputs)
    return ((targets - mean) / scale).square() / 2 + scale.log()


def mean_and_scale(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return both outputs of a heteroscedastic network, (..., 2): the second is positive by softplus."""
    return outputs[..., 0], F.softplus(outputs[..., 1]) + MIN_SCALE


def _inputs(x: FloatArray, members: int) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float32).expand(members, -1, -1)


class DeepEnsemble(Peer):
    """Five networks that give mean and scale, an equal mixture (Lakshminarayanan et al. 2017)."""

    candidates = tuple(
        Descent(steps, decay)
        for steps, decay in (
            *((1000, 1e-2), (300, 1e-2), (3000, 1e-2), (300, 1e-1), (150, 1e-2)),
            *((1000, 1e-1), (3000, 1e-1), (10000, 1e-2), (10000, 1e-3)),
        )
    )

    def train(self, setting: Descent, rows: Rows, held_out: Rows | None) -> Trained:
        """Train the five networks, each in its own order of the rows."""
        layers = trained_layers(rows, setting, members=MEMBERS, noisy=True, seed=self.seed)

        def forecaster(x: FloatArray) -> Normals:
            mean, scale = mean_and_scale(layers(_inputs(x, MEMBERS)).double())
            return Normals(mean.numpy(), scale.numpy())

        return Trained(forecaster, setting)

    def cost(self, setting: Descent) -> float:
        """Return the steps."""
        return setting.steps


@dataclass(frozen=True)
class DropoutSetting:
    """A descent, and the noise's standard deviation 1/sqrt(tau): read off the held-out rows."""

    descent: Descent
    noise: float = math.nan


class MCDropout(Peer):
    """One network, dropout on inputs and hidden units when it predicts, too (Gal and Ghahramani 2016)."""

    candidates = tuple(
        DropoutSetting(Descent(steps, dropout=rate))
        for steps, rate in (
            *((4000, 0.01), (4000, 0.05), (4000, 0.1), (4000, 0.005)),
            *((12000, 0.005), (12000, 0.05), (1000, 0.05), (25000, 0.005)),
        )
    )
    noises = tuple(np.geomspace(0.005, 1.0, 60).tolist())

    def train(self, setting: DropoutSetting, rows: Rows, held_out: Rows | None) -> Trained:
        """Train the network; with held-out rows, choose the noise by their density."""
        rate = setting.descent.dropout
        layers = trained_layers(rows, setting.descent, members=1, noisy=False, seed=self.seed)

        def means(x: FloatArray) -> FloatArray:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                parts = [layers(_inputs(x, 1), rate)[0, :, 0] for _ in range(MASKS)]
            return torch.stack(parts).double().numpy()

        if held_out is not None:
            known = means(held_out.x)
            losses = [self.loss(_equal_noise(known, noise), held_out.y) for noise in self.noises]
            setting = replace(setting, noise=self.noises[int(np.argmin(losses))])
        return Trained(lambda x: _equal_noise(means(x), setting.noise), setting)

    def cost(self, setting: DropoutSetting) -> float:
        """Return the steps."""
        return setting.descent.steps


def _equal_noise(means: FloatArray, noise: float) -> Normals:
    return Normals(means, np.full_like(means, noise))
