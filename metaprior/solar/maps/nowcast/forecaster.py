"""Forecast the next frames of any archive: networks of the package, adapted and calibrated on the archive or not."""

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior import checkpoint
from metaprior.applications import applications
from metaprior.errors import CheckpointError
from metaprior.forecasts import GaussianForecast
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.folder import RunFolder
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.blocks import blend, blocks_of
from metaprior.solar.maps.nowcast.distribution import NowcastForecast, components
from metaprior.solar.maps.nowcast.inputs import LEADS, prepare
from metaprior.solar.maps.nowcast.network import NowcastNetwork

PRIOR = Path(__file__).parent / "prior"
"""The prior of the package."""
KIND = "Nowcaster"
LEAST_PIXELS = 16
"""Smaller frames are continued to this many pixels a side."""


@dataclass(frozen=True, eq=False)
class Nowcaster:
    """Forecasts the next ``LEADS`` frames of a product that it need not have seen.

    Args:
        networks: Networks whose forecasts are averaged as distributions.
        shares: Weight of each network.
        factors: Factor of the spread at each lead time.
        told: What the networks and factors come from, in words.
    """

    networks: tuple[NowcastNetwork, ...]
    shares: tuple[float, ...]
    factors: tuple[float, ...] = (1.0,) * LEADS
    told: tuple[str, ...] = ()

    @classmethod
    def pretrained(cls, folder: str | os.PathLike[str] = PRIOR) -> "Nowcaster":
        """Return the forecaster in a folder: by default the prior of the package, or one of your own.

        Args:
            folder: What ``save`` wrote, or the folder of a run of ``metaprior train`` with ``model.kind = "nowcast"``.
        """
        run = RunFolder(Path(folder))
        if run.prior.exists():
            return cls._of_run(run)
        tensors, about = checkpoint.read(folder, KIND)
        try:
            networks = [_network(one, number, tensors) for number, one in enumerate(about["networks"])]
            return cls(tuple(networks), tuple(about["shares"]), tuple(about["factors"]), tuple(about["told"]))
        except (KeyError, TypeError, RuntimeError) as error:
            raise CheckpointError(f"{folder} must hold networks of nowcasts, got another content ({error})") from error

    @classmethod
    def _of_run(cls, run: RunFolder) -> "Nowcaster":
        """Return the network of a run, with the spread that it was calibrated to."""
        applications()  # which know the network
        learner = MetaLearner.load(run.prior)
        if not isinstance(learner.network.module, NowcastNetwork):
            raise CheckpointError(
                f"{run.path} must be a run with model.kind 'nowcast', got a {type(learner.network.module).__name__}"
            )
        factor = learner.calibration_.factor(0) if learner.calibration_ else 1.0
        return cls((trained_network(learner),), (1.0,), (factor,) * LEADS, (f"the tasks of {run.path}",))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write networks, shares and factors to a folder."""
        about = {
            "networks": [network.config for network in self.networks],
            "shares": list(self.shares),
            "factors": list(self.factors),
            "told": list(self.told),
        }
        tensors = {
            f"{number}.{name}": value
            for number, network in enumerate(self.networks)
            for name, value in network.state_dict().items()
        }
        checkpoint.write(folder, KIND, tensors, about, beside=("card.md",))

    def predict(self, window: Batch) -> GaussianForecast:
        """Return the distribution of the next frames in the units of the frames; means (2 K, N, L, H, W).

        Frames larger than a block are forecast block by block; see ``blocks.py``.
        """
        height, width = window.frames.shape[-2:]
        parts = [(block, self._components(window.part(block))) for block in blocks_of(height, width)]
        means, scales = (blend([(block, pair[k]) for block, pair in parts], (height, width)) for k in (0, 1))
        shares = torch.tensor(self.shares, dtype=torch.float64).repeat_interleave(2) / 2
        factors = torch.tensor(self.factors).to(means)[:, None, None]
        return NowcastForecast(means, scales, weights=shares).widened(factors)

    @torch.no_grad()
    def _components(self, window: Batch) -> tuple[Tensor, Tensor]:
        """Return means and scales (2 K, N, L, H, W) of a window that fits in memory."""
        window, (height, width) = _continued(window), window.frames.shape[-2:]
        prepared = prepare(window.frames, window.known, window.minutes)
        found = [components(network(prepared.x)) for network in self.networks]
        loc, scale = prepared.loc, prepared.scale
        means = torch.cat([loc + scale * mean for mean, _ in found])
        scales = torch.cat([scale * spread for _, spread in found])
        return means[..., :height, :width], scales[..., :height, :width]

    def with_factors(self, factors: Sequence[float]) -> "Nowcaster":
        """Return the same networks with these factors of the spread."""
        return replace(self, factors=tuple(factors))


def trained_network(learner: MetaLearner) -> NowcastNetwork:
    """Return the network of a learner with the means of its weights."""
    network, theta = deepcopy(learner.network.module), learner.theta_
    assert isinstance(network, NowcastNetwork)
    named = {**learner.network.layout.split(theta.mu), **theta.plain}
    network.load_state_dict({name: named[name] for name in network.state_dict()})
    return network.eval()


def _continued(window: Batch) -> Batch:
    """Return a window whose frames have at least ``LEAST_PIXELS`` a side; those beyond the edge are copies of it."""
    height, width = window.frames.shape[-2:]
    below, right = max(0, LEAST_PIXELS - height), max(0, LEAST_PIXELS - width)
    if not below and not right:
        return window

    def larger(maps: Tensor) -> Tensor:
        whole = maps if maps.ndim == 4 else maps[:, None]
        padded = F.pad(whole, (0, right, 0, below), mode="replicate")
        return padded if maps.ndim == 4 else padded[:, 0]

    return window.each(larger)


def _network(config: Mapping[str, Any], number: int, tensors: Mapping[str, Tensor]) -> NowcastNetwork:
    network = NowcastNetwork(**config)
    own = f"{number}."
    network.load_state_dict({name.removeprefix(own): value for name, value in tensors.items() if name.startswith(own)})
    return network.eval()
