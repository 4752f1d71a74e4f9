"""A task's query windows in the units of the frames: inputs, targets, reference forecasts, and how to decode others."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.solar import sun
from metaprior.solar.maps import baselines
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.maps.windows import Window, WindowReader

PERSISTENCE, SMART_PERSISTENCE = "persistence", "smart_persistence"


class Context(NamedTuple):
    """N windows, L lead times, patches of H x W pixels."""

    windows: tuple[Window, ...]
    issued: Times
    """Times of the last input frames, (N,)."""
    inputs: Tensor
    """Input frames, (N, I, H, W)."""
    targets: Tensor
    """Target frames, (N, L, H, W)."""
    loc: Tensor
    scale: Tensor
    """``value = loc + scale * network number``, to broadcast against the targets."""
    daylight: Tensor
    """Which target pixels are in daylight, (N, L, H, W), bool."""
    references: dict[str, Tensor]
    """Point forecasts that skill is measured against, (N, L, H, W)."""

    def decoded(self, forecast: GaussianForecast) -> GaussianForecast:
        """Return the network's forecast in the units of the frames."""
        return forecast.rescaled(self.loc, self.scale)


def context_of(reader: WindowReader, windows: tuple[Window, ...]) -> Context:
    """Read these windows, and return them with their decoding, daylight and references."""
    values = torch.from_numpy(np.stack([reader.read(window) for window in windows]))
    inputs, targets = values[:, : reader.input_len], values[:, reader.input_len :]
    loc, scale = (torch.stack(part) for part in zip(*map(reader.decoding, windows), strict=True))
    night = [sun.is_night(reader.block(window)[reader.input_len :]) for window in windows]
    return Context(
        windows,
        np.array([reader.issued(window) for window in windows]),
        inputs,
        targets,
        loc,
        scale,
        torch.from_numpy(~np.stack(night)),
        references_of(reader, windows, inputs),
    )


def references_of(reader: WindowReader, windows: tuple[Window, ...], inputs: Tensor) -> dict[str, Tensor]:
    """Return persistence and, where coordinates are known, smart persistence."""
    references = {PERSISTENCE: baselines.persistence(inputs, reader.target_len)}
    if has_coordinates(reader.frames):
        clear = torch.stack([_clear_sky(reader, window) for window in windows])
        references[SMART_PERSISTENCE] = baselines.smart_persistence(inputs, clear[:, 0], clear[:, 1:])
    return references


def _clear_sky(reader: WindowReader, window: Window) -> Tensor:
    """Return clear-sky irradiance at the last input frame and at the targets, (1 + L, H, W)."""
    times, place = reader.times(window)[reader.input_len - 1 :], reader.place(window)
    assert place is not None
    return torch.tensor(sun.clear_sky(times, *place), dtype=torch.float32)


def gaussian(forecast: object) -> GaussianForecast:
    """Return the forecast if it is Gaussian; raises TypeError otherwise."""
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(
            "maps need a Gaussian likelihood (Gaussian, HeteroscedasticGaussian or CRPSGaussian), got a "
            f"{type(forecast).__name__}"
        )
    return forecast
