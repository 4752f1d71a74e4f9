"""Learn from an archive's earlier windows: each network goes on training, and windows it did not see set its spread.

The windows are divided into ``FOLDS`` parts. One network after the other is trained on all parts but one; the part left
out tells how wide its distribution must be, and all of the networks together make the forecast. So no training is for
calibration alone, and a forecast is the average of several. Where windows are of few days, half of the forecast remains
that of the prior: what is learned from one afternoon need not hold in the next hour.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.progress import progress_bar
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.inputs import prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.training import relative_loss

FOLDS = 5
STEPS, BATCH, CROP = 100, 8, 96
"""Steps of each training, and crops and their pixels a side in a step."""
LEARNING_RATE = 1.5e-3


class Adapted(NamedTuple):
    """A forecaster that has learned from windows, and forecasts of each window by networks that did not see it."""

    forecaster: Nowcaster
    held_out: list[GaussianForecast]


def adapted(
    prior: Nowcaster,
    windows: Sequence[Batch],
    *,
    share: float = 1.0,
    steps: int = STEPS,
    seed: int = 0,
    progress: bool = False,
) -> Adapted:
    """Return the prior after learning from windows; its factors are not fitted.

    Args:
        prior: The networks to start from.
        windows: Earlier windows with their targets, at least two.
        share: Share of the learned networks in the forecast; the prior has the rest.
        steps: Steps of each training.
        seed: Seed of the crops.
        progress: Whether to show a progress bar.
    """
    seen = learned_from(windows)
    folds = min(FOLDS, len(windows))
    parts = [range(first, len(windows), folds) for first in range(folds)]
    tuned: list[NowcastNetwork] = []
    held_out: dict[int, GaussianForecast] = {}
    with progress_bar("learning from earlier windows", folds * steps, unit="steps", show=progress) as bar:
        for number, part in enumerate(parts):
            start = prior.networks[number % len(prior.networks)]
            others = [one for position, one in enumerate(seen) if position not in part]
            tuned.append(fine_tuned(start, others, steps=steps, seed=seed + number, tick=bar.update))
            own = _mixed(prior, tuned[-1:], share)
            held_out |= {position: own.predict(windows[position]) for position in part}
    return Adapted(_mixed(prior, tuned, share), [held_out[position] for position in range(len(windows))])


def _mixed(prior: Nowcaster, tuned: Sequence[NowcastNetwork], share: float) -> Nowcaster:
    """Return the mixture of tuned networks and, with the rest of the shares, of the prior."""
    own = (share / len(tuned),) * len(tuned)
    if share == 1:
        return Nowcaster(tuple(tuned), own)
    kept = tuple((1 - share) * one / sum(prior.shares) for one in prior.shares)
    return Nowcaster((*tuned, *prior.networks), (*own, *kept))


class Learned(NamedTuple):
    """What a network trains on: its inputs, targets in its units, and the moved frames among the inputs."""

    x: Tensor
    targets: Tensor


def learned_from(windows: Sequence[Batch]) -> list[Learned]:
    """Return windows as a network sees them; each is prepared once, as a whole."""
    found = []
    for window in windows:
        prepared = prepare(window.frames, window.known, window.minutes)
        found.append(Learned(prepared.x, (window.targets - prepared.loc) / prepared.scale))
    return found


def fine_tuned(
    network: NowcastNetwork,
    windows: Sequence[Learned],
    *,
    steps: int = STEPS,
    rate: float = LEARNING_RATE,
    seed: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> NowcastNetwork:
    """Return a copy of a network after further training on random crops of the windows."""
    generator = torch.Generator().manual_seed(seed)
    tuned = deepcopy(network).train()
    optimizer = torch.optim.Adam(tuned.parameters(), rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 10) * (1 - step / steps)
        batch = _crops(windows, generator)
        loss = relative_loss(tuned(batch.x), batch.x, batch.targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tuned.parameters(), 1.0)
        optimizer.step()
        tick()
    return tuned.eval()


def _crops(windows: Sequence[Learned], generator: torch.Generator) -> Learned:
    x, targets = [], []
    height, width = windows[0].x.shape[-2:]
    tall, wide = min(CROP, height), min(CROP, width)
    for _ in range(BATCH):
        number, top, left = (
            int(torch.randint(most, (1,), generator=generator))
            for most in (len(windows), height - tall + 1, width - wide + 1)
        )
        own = windows[number]
        x.append(own.x[..., top : top + tall, left : left + wide])
        targets.append(own.targets[..., top : top + tall, left : left + wide])
    return Learned(torch.cat(x), torch.cat(targets))
