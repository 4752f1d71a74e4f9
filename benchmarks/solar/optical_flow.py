"""Optical flow, a baseline of the benchmark: the last frame moves on as it has moved (the extra ``flow``)."""

import io
import math
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaprior.solar.maps.baselines import check_windows

SMOOTHNESS = 10.0
COARSEST_SIDE = 8
MOST_LEVELS = 6
"""Settings of the motion estimate; docs/solar/scores.md explains the choice."""


class FlowForecast(NamedTuple):
    """Frames (N, L, H, W), and the number of windows without motion, which hold the last frame."""

    frames: Tensor
    without_motion: int


def optical_flow(inputs: Tensor, target_len: int) -> FlowForecast:
    """Return the last frame, advected by the motion between the last two frames (pysteps; ``metaprior[flow]``).

    Motion is estimated by anisotropic diffusion (Proesmans et al. 1994) and followed backwards from each pixel
    (semi-Lagrangian, Germann and Zawadzki 2002), with linear interpolation. Pixels into which unseen air enters from
    the border hold their last value. Frames without structure have no motion; they are counted.
    """
    check_windows(inputs, target_len)
    if inputs.shape[1] < 2 or min(inputs.shape[2:]) < COARSEST_SIDE:
        raise ValueError(
            f"inputs must have at least 2 frames of at least {COARSEST_SIDE} pixels a side to estimate motion, got "
            f"shape {tuple(inputs.shape)}"
        )
    _, extrapolate = _pysteps()
    frames = inputs[:, -2:].to("cpu", torch.float64).numpy()
    forecast = torch.empty(len(frames), target_len, *inputs.shape[2:], dtype=torch.float64)
    still = 0
    for number in range(len(frames)):
        velocity = proesmans(frames[number])  # (2, H, W)
        still += not velocity.any()
        moved, last = extrapolate(frames[number, -1], velocity, target_len), frames[number, -1]
        forecast[number] = torch.from_numpy(np.where(np.isnan(moved), last, moved))  # NaN is air from outside
    return FlowForecast(forecast.to(inputs), still)


def proesmans(pair: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the motion (2, H, W) between two frames (2, H, W), by anisotropic diffusion."""
    motion, _ = _pysteps()
    found: NDArray[np.floating] = motion(pair, lam=SMOOTHNESS, num_levels=_levels(pair.shape[1:]))
    return found


def _levels(size: tuple[int, ...]) -> int:
    """Return the levels of the image pyramid, which halves the shorter side to about COARSEST_SIDE pixels."""
    return min(MOST_LEVELS, 1 + int(math.log2(min(size) / COARSEST_SIDE)))


def _pysteps() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Import motion estimate and extrapolation, on use: pysteps is optional and takes two seconds to import."""
    try:
        with redirect_stdout(io.StringIO()):  # pysteps prints the path of its configuration
            from pysteps.extrapolation.semilagrangian import extrapolate  # type: ignore[import-untyped]
            from pysteps.motion.proesmans import proesmans  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"optical flow needs pysteps ({error}): pip install 'metaprior[flow]'", name=error.name
        ) from error
    return proesmans, extrapolate
