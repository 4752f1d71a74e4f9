r"""Scores: how badly a forecast missed a target, in double precision; NaN for a missing target.

| score | of | formula | region |
|---|---|---|---|
| ``"quantile"`` | numbers | $\max(a - y, y - b)$, with a and b the central quantiles at the level | $[a - q, b + q]$ |
| ``"std"`` | numbers | $\lvert y - \bar y\rvert / s$ | $\bar y \pm q s$ |
| ``"aps"`` | labels | $\sum_{c: p_c > p_y} p_c + u p_y$, with u uniform | classes with a score of at most q |
| ``"aps_deterministic"`` | labels | the same with u = 0 | the same; the most probable class is always in it |
| ``"lac"`` | labels | $1 - p_y$ | the same |

Both scores of numbers are $\max(a - y, y - b)/s$ with other a, b and s. Equally probable classes are ordered by their
number.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import refuse_non_finite, targets
from metaprior.evaluation import shaped_targets
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, check_shape
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.noise import Noise

INTERVAL_SCORES = ("quantile", "std")
SET_SCORES = ("aps", "aps_deterministic", "lac")
ROUNDING = 4 * torch.finfo(torch.float64).eps
"""Relative rounding error of a bound, by which intervals are wider: a target whose score is the threshold is inside."""


def check_score(score: str, known: tuple[str, ...]) -> None:
    """Raise ValueError for a score that is not among the known ones."""
    if score not in known:
        raise ValueError(f"score must be one of {', '.join(map(repr, known))}, got {score!r}")


def as_forecast(forecast: object) -> Forecast:
    """Return a forecast in tensors; raise TypeError for what is none."""
    found = forecast.tensors if isinstance(forecast, NumpyForecast) else forecast
    if not isinstance(found, Forecast):
        raise TypeError(
            f"forecast must be what predict(x) returns, got {type(forecast).__name__}. Try model.predict(x_held_out)."
        )
    return found


class _Frame(NamedTuple):
    """An interval, and the unit in which it is widened; shapes of the targets."""

    low: Tensor
    high: Tensor
    unit: Tensor


def _frame(forecast: Forecast, score: str, level: float) -> _Frame:
    if isinstance(forecast, CategoricalForecast | BernoulliForecast):
        raise TypeError(
            f"intervals must be asked of a forecast of real-valued targets, got a {type(forecast).__name__}. "
            "Try conformal.sets(forecast, labels), or score='aps' over tasks."
        )
    if score == "std":
        mean, std = forecast.mean.double(), forecast.std.double()
        if not bool((std > 0).all()):
            raise ValueError(f"std of the forecast must be positive for score='std', got {float(std.min())}")
        frame = _Frame(mean, mean, std)
    else:
        low, high = forecast.quantile([(1 - level) / 2, (1 + level) / 2]).double()
        frame = _Frame(low, high, torch.ones_like(low))
    for name, values in frame._asdict().items():
        refuse_non_finite(values, f"{name} of the forecast")
    return frame


def interval_scores(forecast: Forecast, given: object, score: str, level: float) -> Tensor:
    """Return the scores (N, ...) of real-valued targets."""
    low, high, unit = _frame(forecast, score, level)
    y = _targets(forecast, given, low.shape).double()
    return torch.maximum(low - y, y - high) / unit


def bounds(forecast: Forecast, score: str, level: float, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number whose score is at most ``limits``, in the forecast's type.

    Where no number has such a score, which takes a negative threshold, both are the middle of the forecast's interval.
    """
    low, high, unit = _frame(forecast, score, level)
    wider = limits * unit
    slack = ROUNDING * torch.where(wider.isinf(), 0.0, low.abs() + high.abs() + wider.abs())
    middle = low + (high - low) / 2
    found = torch.minimum(low - wider - slack, middle), torch.maximum(high + wider + slack, middle)
    return found[0].to(forecast.mean.dtype), found[1].to(forecast.mean.dtype)


def label_scores(forecast: Forecast, given: object, score: str, noise: Noise) -> Tensor:
    """Return the scores (N, ...) of labels."""
    scores = class_scores(forecast, score, noise)
    labels = _targets(forecast, given, scores.shape[:-1])
    present = forecast.present(labels)
    classes, known = scores.shape[-1], torch.where(present, labels, 0)
    if bool(((known < 0) | (known >= classes) | (known != known.long())).any()):
        raise ValueError(f"labels must be integers from 0 to {classes - 1}, got {known.min()} to {known.max()}")
    own = scores.gather(-1, known.long().unsqueeze(-1)).squeeze(-1)
    return torch.where(present, own, torch.nan)


def class_scores(forecast: Forecast, score: str, noise: Noise) -> Tensor:
    """Return the scores that each class would have, (N, ..., C): classes are on the last axis."""
    if not isinstance(forecast, CategoricalForecast | BernoulliForecast):
        raise TypeError(
            f"sets must be asked of a forecast of labels, got a {type(forecast).__name__}. "
            "Try conformal.intervals(forecast, y), or score='quantile' over tasks."
        )
    p = forecast.probabilities.double().movedim(class_axis(forecast), -1)
    refuse_non_finite(p, "the probabilities of the forecast")
    if score == "lac":
        return 1 - p
    if score == "aps_deterministic":
        return adaptive_scores(p, torch.zeros_like(p[..., 0]))
    u = torch.rand(p.shape[:-1], dtype=p.dtype, generator=noise.generator())
    return adaptive_scores(p, u.to(p.device))


def adaptive_scores(p: Tensor, u: Tensor) -> Tensor:
    """Return the probability of all classes before each one, and u times its own; p is (..., C) and u is (...)."""
    ordered, order = p.sort(dim=-1, descending=True, stable=True)
    before = torch.zeros_like(p).scatter(-1, order, ordered.cumsum(-1) - ordered)
    return before + u.unsqueeze(-1) * p


def class_axis(forecast: Forecast) -> int:
    """Return the axis of the classes in a forecast's probabilities."""
    return -1 if isinstance(forecast, BernoulliForecast) else 1


def _targets(forecast: Forecast, given: object, expected: torch.Size) -> Tensor:
    y = shaped_targets(forecast, targets(given, device=forecast.mean.device))
    check_shape(y, expected)
    return y
