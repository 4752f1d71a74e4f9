r"""Forecasts without a network, which any trained network should beat.

Inputs are windows (N, I, H, W), whose last frame is the present; a forecast is (N, L, H, W). All are point forecasts;
``with_noise`` turns one into normal distributions whose scale at each lead time is that of its errors on other data
(``error_scale``).
"""

import torch
from torch import Tensor

from metaprior.checks import check_integer, refuse_non_finite
from metaprior.forecasts import GaussianForecast, check_shape

LOWEST_CLEAR_SKY = 20.0
"""W/m2 of clear sky below which the sun is so low that a clear-sky index is a ratio of errors."""

LARGEST_INDEX = 2.0
"""Largest plausible clear-sky index, the limit of pvlib."""


def persistence(inputs: Tensor, target_len: int) -> Tensor:
    """Return the last frame for every lead time."""
    check_windows(inputs, target_len)
    return inputs[:, -1:].repeat(1, target_len, 1, 1)


def smart_persistence(inputs: Tensor, clear_sky_now: Tensor, clear_sky_then: Tensor) -> Tensor:
    r"""Forecast with the clear-sky index of the last frame, $\hat y_l = k\,c_l$ with $k = y_0 / c_0$, in W/m2.

    ``clear_sky_now`` (N, H, W) is $c_0$, ``clear_sky_then`` (N, L, H, W) is $c_l$. The index is clamped to 0 and
    LARGEST_INDEX. A pixel with $c_0$ below LOWEST_CLEAR_SKY has no index of its own and takes that of the window's
    other pixels, $\sum y_0 / \sum c_0$ over those that have one; if none has, the last value is held.
    """
    check_windows(inputs)
    last = inputs[:, -1]
    then = (len(last), *clear_sky_then.shape[1:2], *last.shape[1:])
    for name, values, shape in (("now", clear_sky_now, tuple(last.shape)), ("then", clear_sky_then, then)):
        if values.shape != shape:
            raise ValueError(f"clear_sky_{name} must have shape {shape} for these inputs, got {tuple(values.shape)}")
        refuse_non_finite(values, f"clear_sky_{name}")
        if float(values.min()) < 0:
            raise ValueError(f"clear_sky_{name} must be irradiance in W/m2 of 0 or more, got {float(values.min()):g}")
    high = clear_sky_now >= LOWEST_CLEAR_SKY
    own = last / torch.where(high, clear_sky_now, 1.0)
    of_window = (last * high).sum((1, 2)) / (clear_sky_now * high).sum((1, 2)).clamp(min=LOWEST_CLEAR_SKY)
    index = torch.where(high, own, of_window[:, None, None]).clamp(0, LARGEST_INDEX)  # (N, H, W)
    some = high.any(2).any(1)[:, None, None, None]
    return torch.where(some, index[:, None] * clear_sky_then, last[:, None])


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


def check_windows(inputs: Tensor, target_len: int = 1) -> None:
    """Raise unless inputs are windows (N, I, H, W) whose last two frames are finite."""
    if inputs.ndim != 4 or not inputs.numel():
        raise ValueError(f"inputs must be (windows, frames, rows, columns), got shape {tuple(inputs.shape)}")
    check_integer("target_len", target_len, 1)
    refuse_non_finite(inputs[:, -2:], "the last input frames")
