"""The arguments of estimators, checked: NumPy's integers pass, as searches over settings give them."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from metaprior.checks import check_integer


def integer(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least ``least``, or raise."""
    check_integer(name, int(value) if isinstance(value, np.integer) else value, least)
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """Return a Boolean, or raise: text such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def positive(name: str, value: Any, instead: str = "") -> float:
    """Return a finite number above zero, or raise; ``instead`` is what the message offers beside it."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be {instead}a positive number, got {value!r}")
    return float(value)


def share(name: str, value: Any) -> float:
    """Return a number between 0 and 1, both excluded, or raise."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, both excluded, got {value!r}")
    return float(value)


def widths(hidden: Any) -> list[int]:
    """Return the widths of hidden layers, or raise."""
    found: list[Any] = list(hidden) if isinstance(hidden, Iterable) else [None]
    if not all(isinstance(width, int | np.integer) and not isinstance(width, bool) and width >= 1 for width in found):
        raise ValueError(f"hidden must be widths such as (50, 50) or (), got {hidden!r}")
    return [int(width) for width in found]
