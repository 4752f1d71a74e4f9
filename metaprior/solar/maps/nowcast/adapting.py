"""Learn from an archive's earlier windows: each network goes on training, and windows it did not see set its spread.

The windows are divided into ``FOLDS`` parts. One network after the other is trained on all parts but one, and all of
them together make the forecast. The part left out tells how wide a network's distribution must be, and how much it
has gained: the forecast is a mixture with that of the prior, whose share is the one with the lowest CRPS on the windows
left out. So no training is for calibration alone, and what did not help is not used.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.progress import progress_bar
from metaprior.solar.maps.nowcast.backtest import score_forecast
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.distribution import mixed
from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.inputs import prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.training import relative_loss

FOLDS = 5
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the learned networks in the forecast that are tried."""
TOLERANCE = 1.01
"""The largest share is taken whose CRPS is at most this many times the lowest: on windows left out a single network
stands for the mixture of all that will make the forecast, which is better."""
STEPS, BATCH, CROP = 100, 8, 96
"""Steps of each training, and crops and their pixels a side in a step."""
LEARNING_RATE = 1.5e-3


class Adapted(NamedTuple):
    """A forecaster that has learned from windows, and forecasts of each window by networks that did not see it.

    ``share`` is that of the learned networks in both; the prior has the rest.
    """

    forecaster: Nowcaster
    held_out: list[GaussianForecast]
    share: float


def adapted(
    prior: Nowcaster,
    windows: Sequence[Batch],
    *,
    most: float = 1.0,
    steps: int = STEPS,
    seed: int = 0,
    progress: bool = False,
) -> Adapted:
    """Return the prior after learning from windows; its factors are not fitted.

    Args:
        prior: The networks to start from.
        windows: Earlier windows with their targets, at least two.
        most: Largest share of the learned networks in the forecast.
        steps: Steps of each training.
        seed: Seed of the crops.
        progress: Whether to show a progress bar.
    """
    seen = learned_from(windows)
    folds = min(FOLDS, len(windows))
    parts = [range(first, len(windows), folds) for first in range(folds)]
    tuned: list[NowcastNetwork] = []
    learned: dict[int, GaussianForecast] = {}
    with progress_bar("learning from earlier windows", folds * steps, unit="steps", show=progress) as bar:
        for number, part in enumerate(parts):
            start = prior.networks[number % len(prior.networks)]
            others = [one for position, one in enumerate(seen) if position not in part]
            tuned.append(fine_tuned(start, others, steps=steps, seed=seed + number, tick=bar.update))
            own = Nowcaster((tuned[-1],), (1.0,))
            learned |= {position: own.predict(windows[position]) for position in part}
    as_it_was = _mixed(prior, (), 0.0)
    pairs = [(learned[position], as_it_was.predict(window)) for position, window in enumerate(windows)]

    def held_out(share: float) -> Iterator[GaussianForecast]:
        return (mixed(pair, (share, 1 - share)) for pair in pairs)

    crps = {share: _mean_crps(held_out(share), windows) for share in SHARES if share <= most}
    best = max((share for share, own in crps.items() if own <= TOLERANCE * min(crps.values())), default=0.0)
    return Adapted(_mixed(prior, tuned, best), list(held_out(best)), best)


def _mean_crps(forecasts: Iterable[GaussianForecast], windows: Sequence[Batch]) -> float:
    """Return the mean over windows and lead times that have targets; NaN if none has."""
    scores = np.array(
        [score_forecast(one, window.targets).crps for one, window in zip(forecasts, windows, strict=True)]
    )
    scores = scores[np.isfinite(scores)]
    return float(scores.mean()) if scores.size else math.nan


def _mixed(prior: Nowcaster, tuned: Sequence[NowcastNetwork], share: float) -> Nowcaster:
    """Return the mixture of tuned networks and, with the rest of the shares, of the prior."""
    kept = tuple((1 - share) * one / sum(prior.shares) for one in prior.shares)
    if share == 0:
        return Nowcaster(prior.networks, kept)
    own = (share / len(tuned),) * len(tuned)
    return Nowcaster(tuple(tuned), own) if share == 1 else Nowcaster((*tuned, *prior.networks), (*own, *kept))


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
