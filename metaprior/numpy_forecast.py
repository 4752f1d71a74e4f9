"""Forecasts for NumPy users: the same values as arrays."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor

from metaprior.forecasts import Forecast


def as_numpy(value: Any) -> Any:
    """Return tensors as NumPy arrays, also inside tuples; everything else as it is."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, tuple):
        arrays = map(as_numpy, value)
        return type(value)(*arrays) if hasattr(value, "_fields") else tuple(arrays)
    return value


class NumpyForecast:
    """A forecast whose attributes and methods return NumPy arrays; ``tensors`` is the forecast itself."""

    def __init__(self, tensors: Forecast) -> None:
        self.tensors = tensors

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tensors":
            raise AttributeError(name)
        value = getattr(self.tensors, name)
        return _returning_numpy(value) if callable(value) else as_numpy(value)

    def __repr__(self) -> str:
        return f"NumpyForecast({type(self.tensors).__name__})"


def _returning_numpy(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def converted(*arguments: Any, **options: Any) -> Any:
        return as_numpy(method(*arguments, **options))

    return converted
