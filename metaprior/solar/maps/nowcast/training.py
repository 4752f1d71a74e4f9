"""The prior of the package: networks trained on simulated worlds alone.

``python -m metaprior.solar.maps.nowcast.training FOLDER`` makes it again.
"""

import argparse
import math
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.progress import progress_bar
from metaprior.solar.maps.nowcast.bank import Bank, Batch
from metaprior.solar.maps.nowcast.distribution import components
from metaprior.solar.maps.nowcast.forecaster import Nowcaster
from metaprior.solar.maps.nowcast.inputs import LEADS, prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork

WORLDS, STEPS, MEMBERS = 4000, 7000, 2
"""Worlds in the bank, steps of the training of each network, and number of networks."""
BATCH, CROP = 16, 80
LEARNING_RATE, WARM_UP, AVERAGED = 2e-3, 100, 0.002
"""Largest learning rate, steps until it is reached, and the weight of a step in the average of the weights."""
LEAST_CHANGE = 0.5
"""Windows count by the inverse of what the moved frame is wrong in, plus this, in units of y."""


def loss_of(network: torch.nn.Module, batch: Batch) -> Tensor:
    """Return the mean CRPS over windows, each relative to the error of the last frame moved along the flow."""
    prepared = prepare(batch.frames, batch.known, batch.minutes)
    return relative_loss(network(prepared.x), prepared.x, (batch.targets - prepared.loc) / prepared.scale)


def relative_loss(outputs: Tensor, x: Tensor, targets: Tensor) -> Tensor:
    """Return the mean CRPS over windows, each relative to the error of the last frame moved along the flow.

    Args:
        outputs: Of the network, (N, 4 L, H, W).
        x: Its inputs, among them the moved frames.
        targets: In its units, (N, L, H, W); NaN where they are missing.
    """
    present = targets.isfinite()
    zeros = torch.zeros_like(targets)
    targets = torch.where(present, targets, zeros)
    scores = torch.where(present, mixture.crps(*components(outputs), targets), zeros)
    count = present.sum((1, 2, 3)).clamp_min(1)
    wrong = torch.where(present, (targets - x[:, 1 : 1 + LEADS]).abs(), zeros)
    return (scores.sum((1, 2, 3)) / (wrong.sum((1, 2, 3)) + LEAST_CHANGE * count)).mean()


def train(
    bank: Bank,
    *,
    steps: int = STEPS,
    seed: int = 0,
    width: int = 16,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> NowcastNetwork:
    """Return a network trained on windows of the bank: the average of its weights over the last steps."""
    torch.manual_seed(seed)
    network = NowcastNetwork(width)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(1 - AVERAGED)
    )
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
            if (step + 1) % 500 == 0:
                say(f"network {seed}, step {step + 1}: mean loss {total / 500:.4f}")
                total = 0.0
            bar.update()
    network.load_state_dict(average.module.state_dict())
    return network.eval()


def _rate(step: int, steps: int) -> float:
    """Return the learning rate as a share of the largest: it rises, and then falls along a cosine to 1 %."""
    rise = min(1.0, (step + 1) / WARM_UP)
    return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def train_member(folder: Path, number: int, worlds: int, steps: int) -> dict[str, Tensor]:
    """Return the weights of network ``number`` after training on the bank in ``folder``, with one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return train(Bank(folder, worlds), steps=steps, seed=number).state_dict()


def main() -> None:
    """Draw worlds, train networks on them in processes of their own, and write them to the folder that is named."""
    parser = argparse.ArgumentParser(description="Train the prior of nowcasts on simulated worlds.")
    parser.add_argument("folder", help="where the prior is written")
    parser.add_argument("--worlds", type=int, default=WORLDS, help=f"simulated worlds ({WORLDS}; 1 MB each on disk)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps of each network ({STEPS})")
    parser.add_argument("--members", type=int, default=MEMBERS, help=f"networks, one core each ({MEMBERS})")
    parser.add_argument("--bank", help="folder in which the worlds are kept (a temporary one)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given.bank or temporary)
        Bank(folder, given.worlds).draw(seed=0)
        with ProcessPoolExecutor(given.members, get_context("spawn")) as pool:
            trained = [
                pool.submit(train_member, folder, number, given.worlds, given.steps) for number in range(given.members)
            ]
            networks = [NowcastNetwork() for _ in trained]
            for network, one in zip(networks, trained, strict=True):
                network.load_state_dict(one.result())
    told = (
        f"{given.worlds} simulated worlds, {given.steps} steps of {BATCH} windows for each of {given.members} networks",
    )
    Nowcaster(tuple(networks), (1 / given.members,) * given.members, told=told).save(given.folder)


if __name__ == "__main__":
    main()
