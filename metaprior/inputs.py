"""Inputs x of a network: a tensor, or a tuple or dictionary of tensors; the observations are on the first axis of each.

A module is called with the parts of a tuple as positional arguments, and with those of a dictionary as keyword
arguments, as ``torch.func.functional_call`` and ``torch.export`` do. What a network returns may have parts, too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Axes = int | tuple[int, ...] | dict[str, int]
"""Number of axes of every part."""


def has_parts(x: object) -> bool:
    """Return whether x is several tensors (or arrays), and not one."""
    return not isinstance(x, Tensor) and isinstance(x, tuple | Mapping)  # of a Mapping it takes a microsecond


def parts_of(x: Inputs) -> tuple[Tensor, ...]:
    """Return the parts of x in order; of a single tensor, itself."""
    if not has_parts(x):
        return (x,)  # type: ignore[return-value]
    return tuple(x.values()) if isinstance(x, Mapping) else x  # type: ignore[return-value]


def named_parts(x: Any, name: str = "x") -> dict[str, Any]:
    """Return the parts of x by what messages call them: x itself, x[0] and x[1], or x["image"] and x["wind"]."""
    if not has_parts(x):
        return {name: x}
    if isinstance(x, Mapping):
        return {f'{name}["{key}"]' if isinstance(key, str) else f"{name}[{key!r}]": part for key, part in x.items()}
    return {f"{name}[{place}]": part for place, part in enumerate(x)}


def holds_tensors(x: Any) -> bool:
    """Return whether x, or a part of it, is a tensor, so that what comes back is one too, and not an array."""
    return any(isinstance(part, Tensor) for part in parts_of(x))


def rebuilt(like: Any, parts: Sequence[Any]) -> Any:
    """Return parts in the form of ``like``: one, a tuple, or a dictionary with the same keys."""
    if not has_parts(like):
        return parts[0]
    return dict(zip(like, parts, strict=True)) if isinstance(like, Mapping) else tuple(parts)


def map_parts(function: Callable[[Any], Any], x: Any) -> Any:
    """Return what a function gives for every part of x, in the form of x."""
    if not has_parts(x):
        return function(x)
    return rebuilt(x, [*map(function, parts_of(x))])


def size_of(x: Inputs) -> int:
    """Return the number of observations."""
    return len(parts_of(x)[0])


def device_of(x: Inputs) -> torch.device:
    """Return the device that x is on."""
    return parts_of(x)[0].device


def rows_of(x: Inputs, index: Any) -> Any:
    """Return some observations of x; ``index`` is what indexes a tensor."""
    return map_parts(lambda part: part[index], x)


def split(x: Inputs, sizes: int | list[int]) -> list[Any]:
    """Return consecutive observations of x in groups of one size, or of these sizes."""
    return [rebuilt(x, own) for own in zip(*(part.split(sizes) for part in parts_of(x)), strict=True)]


def concatenate(several: Sequence[Inputs]) -> Any:
    """Return the observations of several x, one after the other."""
    return _together(torch.cat, several)


def stack(several: Sequence[Inputs]) -> Any:
    """Return several x of equal shapes along a new first axis."""
    return _together(torch.stack, several)


def _together(function: Callable[[list[Tensor]], Tensor], several: Sequence[Any]) -> Any:
    first = several[0]
    if not has_parts(first):
        return function([*several])
    if isinstance(first, Mapping):  # by name: the order of keys may differ
        return {name: function([x[name] for x in several]) for name in first}
    return tuple(function([*own]) for own in zip(*several, strict=True))


def arguments(x: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return the positional and the keyword arguments that a module is called with."""
    return ((), x) if isinstance(x, dict) else (parts_of(x), {})


def call(module: nn.Module, x: Inputs) -> Any:
    """Return the outputs of a module for inputs x."""
    positional, named = arguments(x)
    return module(*positional, **named)


def copied(x: Inputs) -> Any:
    """Return a copy of x, for a module whose first layer may work in place and must not change the data."""
    return map_parts(torch.clone, x)


def form_of(x: Any) -> tuple[tuple[int, ...], ...]:
    """Return the shape of every part."""
    return tuple(tuple(part.shape) for part in parts_of(x))


def axes_of(x: Inputs) -> Axes:
    """Return the number of axes of every part, in the form of x."""
    return map_parts(lambda part: part.ndim, x)  # type: ignore[no-any-return]
