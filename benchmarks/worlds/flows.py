"""Optical flow of pysteps: the best plain method, and with the trend of the frame's brightness."""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.solar.optical_flow import optical_flow, proesmans
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.inputs import LEADS, filled

PLAIN = ("flow (Proesmans)", "flow (Lucas-Kanade)")
TREND = tuple(f"{name}, trend {how}" for name in PLAIN for how in ("added", "multiplied"))


def flows(window: Batch) -> dict[str, Tensor]:
    """Return point forecasts (1, L, H, W) of a window by name, those of ``PLAIN`` and of ``TREND``."""
    frames, _ = filled(window.frames)
    low, span = frames.min(), (frames.max() - frames.min()).clamp_min(1e-30)
    scaled = (frames - low) / span
    plain = [optical_flow(scaled, LEADS).frames, _lucas_kanade(scaled)]
    found = dict(zip(PLAIN, (low + span * one for one in plain), strict=True))
    means = frames.mean((2, 3))[0]
    steps = torch.arange(1, LEADS + 1)[:, None, None]
    ratio = means[-1] / means[-2] if float(means[-2]) > 0 else torch.ones(())
    for name in PLAIN:
        found[f"{name}, trend added"] = found[name] + steps * (means[-1] - means[-2])
        found[f"{name}, trend multiplied"] = found[name] * ratio**steps
    return found


def motions(frames: Tensor) -> dict[str, Callable[[], object]]:
    """Return what estimates the motion alone, without moving a frame, by name; frames are (1, I, H, W)."""
    seen = frames[0].double().numpy()
    return {
        "proesmans": lambda: proesmans(seen[-2:]),
        "lucas_kanade": lambda: _dense_lucas_kanade(seen),
    }


def _lucas_kanade(frames: Tensor) -> Tensor:
    """Return the last frame moved along the dense Lucas-Kanade field of pysteps; without features it stays."""
    with redirect_stdout(io.StringIO()):
        from pysteps.extrapolation.semilagrangian import extrapolate  # type: ignore[import-untyped]
    seen = frames[0].double().numpy()
    moved = extrapolate(seen[-1], _dense_lucas_kanade(seen), LEADS)
    return torch.from_numpy(np.where(np.isnan(moved), seen[-1], moved))[None].to(frames)


def _dense_lucas_kanade(frames: NDArray[np.floating]) -> NDArray[np.floating]:
    with redirect_stdout(io.StringIO()):
        from pysteps.motion.lucaskanade import dense_lucaskanade  # type: ignore[import-untyped]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of frames without features
        velocity: NDArray[np.floating] = dense_lucaskanade(frames)
    return velocity
