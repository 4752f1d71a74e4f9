"""One forecast of several: the mixture of an ensemble's forecasts of the same targets."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metaprior.forecasts.forecast import Forecast
from metaprior.forecasts.numpy_forecast import NumpyForecast


def merged(forecasts: Sequence[Any], weights: Sequence[float] | Tensor | None) -> Any:
    """Return the mixture of forecasts, in NumPy arrays if one of them is; see ``Forecast.mixture``."""
    members = [one.tensors if isinstance(one, NumpyForecast) else one for one in forecasts]
    _check_members(members)
    shares = _shares(weights, len(members))
    found = type(members[0])._joined(members, component_weights(members, shares))
    return NumpyForecast(found) if any(isinstance(one, NumpyForecast) for one in forecasts) else found


def _check_members(members: Sequence[Any]) -> None:
    if not members:
        raise ValueError("forecasts must be at least one forecast, got none")
    first = members[0]
    for number, one in enumerate(members):
        if not isinstance(one, Forecast):
            raise TypeError(f"forecasts[{number}] must be a forecast, got {type(one).__name__}. Try model.predict(x)")
        if type(one) is not type(first):
            raise TypeError(
                f"all forecasts must be of one kind, got {type(first).__name__} and, as forecasts[{number}], "
                f"{type(one).__name__}. Try one likelihood for all members"
            )
        if one.mean.shape != first.mean.shape:
            raise ValueError(
                f"all forecasts must be of the same targets, got shape {tuple(first.mean.shape)} and, as "
                f"forecasts[{number}], {tuple(one.mean.shape)}. Try the same inputs for all members"
            )
        if one.mean.device != first.mean.device:
            raise ValueError(
                f"all forecasts must be on one device, got {first.mean.device} and, as forecasts[{number}], "
                f"{one.mean.device}"
            )


def _shares(weights: Sequence[float] | Tensor | None, members: int) -> list[float]:
    shares = [1.0] * members if weights is None else [float(weight) for weight in weights]
    if len(shares) != members or not all(math.isfinite(one) and one >= 0 for one in shares) or not sum(shares) > 0:
        raise ValueError(f"weights must be {members} numbers >= 0, one for each forecast, not all zero, got {weights}")
    return [share / sum(shares) for share in shares]


def component_weights(members: Sequence[Forecast], shares: Sequence[float]) -> Tensor:
    """Return the weights of all components, (S,) or (S, N): those of each member add up to its share."""
    columns = []
    for one, share in zip(members, shares, strict=True):
        if one.weights is None:
            columns.append(one.mean.new_full((len(one.samples), 1), share / len(one.samples)))
        else:
            columns.append(share * one.weights.flatten(1))
    width = max(own.shape[1] for own in columns)
    weights = torch.cat([own.expand(-1, width) for own in columns])
    return weights[:, 0] if width == 1 else weights


def joined_field(values: Sequence[Tensor], components: Sequence[int], axes: int) -> Tensor:
    """Return a field of all components: each member's, in a shape that broadcasts to (S, N, ...), one after the other.

    Args:
        values: the field of each member.
        components: the number of components of each member.
        axes: the number of axes of the forecasts' samples.
    """
    whole = [value.reshape(*[1] * (axes - value.ndim), *value.shape) for value in values]
    own = torch.broadcast_shapes(*(value.shape[1:] for value in whole))
    return torch.cat([value.expand(count, *own) for value, count in zip(whole, components, strict=True)])
