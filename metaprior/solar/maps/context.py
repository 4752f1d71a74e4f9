"""A task's query windows in the frames' own units: what is forecast, what a forecast is compared with, and the way from
the network's numbers to them."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.solar import sun
from metaprior.solar.maps import baselines
from metaprior.solar.maps.tasks import MetaSolarPredictionDataset
from metaprior.solar.maps.units import Place
from metaprior.solar.maps.windows import Times, Window

PERSISTENCE, SMART_PERSISTENCE = "persistence", "smart_persistence"


class Context(NamedTuple):
    """N windows, L lead times, patches of H x W pixels."""

    windows: tuple[Window, ...]
    issued: Times
    """Time of the last input frame, (N,)."""
    inputs: Tensor
    """Input frames, (N, I, H, W)."""
    targets: Tensor
    """(N, L, H, W)."""
    loc: Tensor
    scale: Tensor
    """``value = loc + scale * network number``, to broadcast against the targets."""
    daylight: Tensor
    """(N, L, H, W), bool."""
    references: dict[str, Tensor]
    """Point forecasts that skill is measured against, (N, L, H, W)."""

    def decoded(self, forecast: GaussianForecast) -> GaussianForecast:
        """The network's forecast in the frames' own units."""
        return forecast.rescaled(self.loc, self.scale)


def context_of(dataset: MetaSolarPredictionDataset, windows: tuple[Window, ...]) -> Context:
    """Everything about these windows, read from the archive."""
    values = torch.from_numpy(np.stack([dataset.read(window) for window in windows]))
    inputs, targets = values[:, : dataset.input_len], values[:, dataset.input_len :]
    decodings = [_decoding(dataset, window) for window in windows]
    loc, scale = (torch.stack(part) for part in zip(*decodings, strict=True))
    return Context(
        windows,
        np.array([dataset.times_of(window)[dataset.input_len - 1] for window in windows]),
        inputs,
        targets,
        loc,
        scale,
        torch.stack([_daylight(dataset, window) for window in windows]),
        references_of(dataset, windows, inputs),
    )


def references_of(
    dataset: MetaSolarPredictionDataset, windows: tuple[Window, ...], inputs: Tensor
) -> dict[str, Tensor]:
    """Persistence and, where the sun's place is known, smart persistence."""
    references = {PERSISTENCE: baselines.persistence(inputs, dataset.target_len)}
    if has_coordinates(dataset):
        clear = torch.stack([_clear_sky(dataset, window) for window in windows])
        now, then = clear[:, 0], clear[:, 1:]
        references[SMART_PERSISTENCE] = baselines.smart_persistence(inputs, now, then)
    return references


def has_coordinates(dataset: MetaSolarPredictionDataset) -> bool:
    """Whether latitude and longitude are known."""
    return {"latitude", "longitude"} <= set(dataset.frames.coords)


def _decoding(dataset: MetaSolarPredictionDataset, window: Window) -> tuple[Tensor, Tensor]:
    assert dataset.units is not None
    times = dataset.times_of(window)[dataset.input_len :]
    loc, scale = dataset.units.decoding(times, dataset.place_of(window))
    return torch.from_numpy(loc), torch.from_numpy(scale)


def _clear_sky(dataset: MetaSolarPredictionDataset, window: Window) -> Tensor:
    """Of the last input frame and of the targets, (1 + L, H, W)."""
    place = dataset.place_of(window)
    assert isinstance(place, Place)
    assert place.latitude is not None
    assert place.longitude is not None
    times = dataset.times_of(window)[dataset.input_len - 1 :]
    return torch.tensor(sun.clear_sky(times, place.latitude, place.longitude), dtype=torch.float32)


def _daylight(dataset: MetaSolarPredictionDataset, window: Window) -> Tensor:
    """Of the targets, (L, H, W)."""
    frames = dataset.block(window)[dataset.input_len :]
    return torch.from_numpy(~sun.is_night(frames))
