"""Forecasts in NumPy arrays, for inputs that were."""

from functools import wraps
from typing import Any

from torch import Tensor

from metaprior.forecasts import Forecast


def as_numpy(value: Any) -> Any:
    """Return tensors as NumPy arrays, also inside tuples and dictionaries; everything else as it is."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, tuple):
        arrays = map(as_numpy, value)
        return type(value)(*arrays) if hasattr(value, "_fields") else tuple(arrays)
    if isinstance(value, dict):
        return {name: as_numpy(part) for name, part in value.items()}
    return value


class NumpyForecast:
    """A forecast whose attributes and methods return NumPy arrays; ``tensors`` is the forecast itself."""

    def __init__(self, tensors: Forecast) -> None:
        self.tensors = tensors

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tensors":
            raise AttributeError(name)
        value = getattr(self.tensors, name)
        if not callable(value):
            return as_numpy(value)
        return wraps(value)(lambda *arguments, **options: as_numpy(value(*arguments, **options)))

    def __dir__(self) -> list[str]:
        """Return what the forecast offers, for completion in notebooks."""
        return sorted({*super().__dir__(), *(name for name in dir(self.tensors) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return f"NumpyForecast({self.tensors!r})"
