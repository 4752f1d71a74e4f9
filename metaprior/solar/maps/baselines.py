r"""Forecasts without a network, which any trained network should beat.

Inputs are windows (N, I, H, W), whose last frame is the present; a forecast is (N, L, H, W). All are point forecasts;
``with_noise`` turns one into normal distributions whose scale at each lead time is that of its errors on other data
(``error_scale``).
"""

import io
import math
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from metaprior.checks import check_integer, refuse_non_finite
from metaprior.forecasts import GaussianForecast, check_shape

LOWEST_CLEAR_SKY = 20.0
"""W/m2 of clear sky below which the sun is so low that a clear-sky index is a ratio of errors."""

LARGEST_INDEX = 2.0
"""Largest plausible clear-sky index, the limit of pvlib."""

SMOOTHNESS = 10.0
COARSEST_SIDE = 8
MOST_LEVELS = 6
"""Settings of the motion estimate; docs/solar/scores.md explains the choice."""


def persistence(inputs: Tensor, target_len: int) -> Tensor:
    """Return the last frame for every lead time."""
    _check_windows(inputs, target_len)
    return inputs[:, -1:].repeat(1, target_len, 1, 1)


def smart_persistence(inputs: Tensor, clear_sky_now: Tensor, clear_sky_then: Tensor) -> Tensor:
    r"""Forecast with the clear-sky index of the last frame, $\hat y_l = k\,c_l$ with $k = y_0 / c_0$, in W/m2.

    ``clear_sky_now`` (N, H, W) is $c_0$, ``clear_sky_then`` (N, L, H, W) is $c_l$. The index is clamped to 0 and
    LARGEST_INDEX. A pixel with $c_0$ below LOWEST_CLEAR_SKY has no index of its own and takes that of the window's
    other pixels, $\sum y_0 / \sum c_0$ over those that have one; if none has, the last value is held.
    """
    _check_windows(inputs)
    last = inputs[:, -1]
    _check_clear_sky(clear_sky_now, last.shape, "clear_sky_now")
    leads = clear_sky_then.shape[1:2]
    _check_clear_sky(clear_sky_then, torch.Size([len(last), *leads, *last.shape[1:]]), "clear_sky_then")
    high = clear_sky_now >= LOWEST_CLEAR_SKY
    own = last / torch.where(high, clear_sky_now, 1.0)
    of_window = (last * high).sum((1, 2)) / (clear_sky_now * high).sum((1, 2)).clamp(min=LOWEST_CLEAR_SKY)
    index = torch.where(high, own, of_window[:, None, None]).clamp(0, LARGEST_INDEX)  # (N, H, W)
    some = high.any(2).any(1)[:, None, None, None]
    return torch.where(some, index[:, None] * clear_sky_then, last[:, None])


def _check_clear_sky(values: Tensor, shape: torch.Size, name: str) -> None:
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)} for these inputs, got {tuple(values.shape)}")
    refuse_non_finite(values, name)
    if float(values.min()) < 0:
        raise ValueError(f"{name} must be irradiance in W/m2 of 0 or more, got {float(values.min()):g}")


class FlowForecast(NamedTuple):
    """Frames (N, L, H, W), and the number of windows without motion, which hold the last frame."""

    frames: Tensor
    without_motion: int


def optical_flow(inputs: Tensor, target_len: int, *, progress: bool = False) -> FlowForecast:
    """Return the last frame, advected by the motion between the last two frames (pysteps; ``metaprior[flow]``).

    Motion is estimated by anisotropic diffusion (Proesmans et al. 1994) and followed backwards from each pixel
    (semi-Lagrangian, Germann and Zawadzki 2002), with linear interpolation. Pixels into which unseen air enters from
    the border hold their last value. Frames without structure have no motion; they are counted.
    """
    _check_windows(inputs, target_len)
    if inputs.shape[1] < 2 or min(inputs.shape[2:]) < COARSEST_SIDE:
        raise ValueError(
            f"inputs must have at least 2 frames of at least {COARSEST_SIDE} pixels a side to estimate motion, got "
            f"shape {tuple(inputs.shape)}"
        )
    motion, extrapolate = _pysteps()
    frames = inputs[:, -2:].to("cpu", torch.float64).numpy()
    forecast = torch.empty(len(frames), target_len, *inputs.shape[2:], dtype=torch.float64)
    still = 0
    for number in tqdm(range(len(frames)), desc="optical flow", unit="window", disable=not progress, delay=1):
        velocity = motion(frames[number], lam=SMOOTHNESS, num_levels=_levels(inputs.shape[2:]))  # (2, H, W)
        still += not velocity.any()
        moved, last = extrapolate(frames[number, -1], velocity, target_len), frames[number, -1]
        forecast[number] = torch.from_numpy(np.where(np.isnan(moved), last, moved))  # NaN is air from outside
    return FlowForecast(forecast.to(inputs), still)


def _levels(size: torch.Size) -> int:
    """Return the levels of the image pyramid, which halves the shorter side to about COARSEST_SIDE pixels."""
    return min(MOST_LEVELS, 1 + int(math.log2(min(size) / COARSEST_SIDE)))


def require_optical_flow() -> None:
    """Raise ModuleNotFoundError, naming what to install, unless ``optical_flow`` can run."""
    _pysteps()


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


def error_scale(points: Tensor, targets: Tensor, *, daylight: Tensor | None = None) -> Tensor:
    """Return the root mean squared error of point forecasts (N, L, H, W) at each lead time, (L,), for ``with_noise``.

    Use windows that are not scored later. Pixels at which ``daylight`` is False do not count.
    """
    check_shape(targets, points.shape)
    light = torch.ones_like(targets, dtype=torch.bool) if daylight is None else daylight
    check_shape(light, points.shape)
    squared = torch.where(light, (points - targets).double(), 0.0).square()
    scale = (squared.sum((0, 2, 3)) / light.sum((0, 2, 3))).sqrt()
    if not bool(((scale > 0) & scale.isfinite()).all()):
        raise ValueError(
            f"the scale of the errors at each lead time must be positive and finite, got {scale.tolist()}. Every lead "
            "time needs daylight pixels, none of them NaN, and a forecast that is not always right"
        )
    return scale.to(points.dtype)


def with_noise(point: Tensor, scale: Tensor) -> GaussianForecast:
    """Return normal distributions around a point forecast (N, L, H, W) with one scale for each lead time, (L,).

    The forecast is a mixture of two equal components, so that everything that takes a forecast takes it.
    """
    if point.ndim != 4 or scale.shape != point.shape[1:2]:
        raise ValueError(
            "a point forecast must be (windows, lead times, rows, columns) and scale one value for each lead time, "
            f"got shapes {tuple(point.shape)} and {tuple(scale.shape)}"
        )
    if not bool((scale > 0).all()):
        raise ValueError(f"every scale must be positive, got {scale.tolist()}")
    return GaussianForecast(point.expand(2, *point.shape), scale.to(point).reshape(1, 1, -1, 1, 1))


def _check_windows(inputs: Tensor, target_len: int = 1) -> None:
    if inputs.ndim != 4 or not inputs.numel():
        raise ValueError(f"inputs must be (windows, frames, rows, columns), got shape {tuple(inputs.shape)}")
    check_integer("target_len", target_len, 1)
    refuse_non_finite(inputs[:, -2:], "the last input frames")
