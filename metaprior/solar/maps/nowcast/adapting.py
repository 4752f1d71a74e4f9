"""Learn from an archive's earlier windows: each network goes on training, and windows it did not see set its spread.

With ``FOLDS`` parts of the windows, a network is trained on all parts but one, ``FOLDS`` times; the part left out tells
how wide its distribution must be, and all of the networks together make the forecast. So no training is only for
calibration, and a forecast is the average of several.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.distribution import components
from metaprior.solar.maps.nowcast.inputs import prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.training import relative_loss

FOLDS = 5
STEPS, BATCH, CROP = 100, 8, 96
"""Steps of each training, and crops and their pixels a side in a step."""
LEARNING_RATE = 5e-4


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
    which: str = "all",
    seed: int = 0,
) -> NowcastNetwork:
    """Return a copy of a network after further training on random crops of the windows."""
    generator = torch.Generator().manual_seed(seed)
    tuned = deepcopy(network).train()
    parameters = [p for name, p in tuned.named_parameters() if which == "all" or name.startswith("output") or "modulation" in name]
    optimizer = torch.optim.Adam(parameters, rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 10) * (1 - step / steps)
        batch = _crops(windows, generator)
        loss = relative_loss(tuned(batch.x), batch.x, batch.targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
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
