"""The prior of the package: networks trained on simulated worlds alone.

``python -m metaprior.solar.maps.nowcast.training FOLDER`` makes it again.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from metaprior.likelihoods.gaussian import CRPSGaussian
from metaprior.progress import progress_bar
from metaprior.solar.maps.nowcast.bank import Bank, Batch
from metaprior.solar.maps.nowcast.inputs import LEADS, prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork

WORLDS, STEPS, MEMBERS = 3000, 4000, 2
"""Worlds in the bank, steps of the training of each network, and number of networks."""
BATCH, CROP = 16, 80
LEARNING_RATE, WARM_UP, AVERAGED = 2e-3, 100, 0.002
"""Largest learning rate, steps until it is reached, and the weight of a step in the average of the weights."""
LIKELIHOOD = CRPSGaussian(weight=1.0)
LEAST_CHANGE = 0.5
"""Windows count by the inverse of what the moved frame is wrong in, plus this, in units of y."""


def loss_of(network: torch.nn.Module, batch: Batch) -> Tensor:
    """Return the mean CRPS over windows, each relative to the error of the last frame moved along the flow."""
    prepared = prepare(batch.frames, batch.known, batch.minutes)
    targets = (batch.targets - prepared.loc) / prepared.scale
    present = targets.isfinite()
    targets = torch.where(present, targets, torch.zeros_like(targets))
    scores = torch.where(present, LIKELIHOOD.elementwise_nll(network(prepared.x), targets, {}), torch.zeros_like(targets))
    count = present.sum((1, 2, 3)).clamp_min(1)
    wrong = torch.where(present, (targets - prepared.x[:, 1 : 1 + LEADS]).abs(), torch.zeros_like(targets))
    return (scores.sum((1, 2, 3)) / (wrong.sum((1, 2, 3)) + LEAST_CHANGE * count)).mean()


def train(bank: Bank, *, steps: int = STEPS, seed: int = 0, width: int = 16, progress: bool = True) -> NowcastNetwork:
    """Return a network trained on windows of the bank: the average of its weights over the last steps."""
    torch.manual_seed(seed)
    network = NowcastNetwork(width)
    average = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(1 - AVERAGED))
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=1e-3)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    batches = bank.batches(size=BATCH, crop=CROP, seed=seed)
    total = 0.0
    with progress_bar(f"training network {seed}", steps, unit="steps", show=progress) as bar:
        for step in range(steps):
            loss = loss_of(network, next(batches))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            rates.step()
            average.update_parameters(network)
            if not math.isfinite(float(loss.detach())):
                raise RuntimeError(f"the loss of step {step} of network {seed} is {float(loss.detach())}")
            total += float(loss.detach())
            if (step + 1) % 100 == 0:
                bar.set_postfix(loss=f"{total / 100:.4f}")
                total = 0.0
            bar.update()
    network.load_state_dict(average.module.state_dict())
    return network.eval()


def _rate(step: int, steps: int) -> float:
    """Return the learning rate as a share of the largest: it rises, and then falls along a cosine to 1 %."""
    rise = min(1.0, (step + 1) / WARM_UP)
    return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))
