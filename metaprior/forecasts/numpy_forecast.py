"""Forecasts in NumPy arrays, for inputs that were."""

from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from metaprior.checks import ArrayLike
from metaprior.forecasts import Forecast

Array = npt.NDArray[Any]


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

    mean: Array
    std: Array
    epistemic: Array
    aleatoric: Array
    samples: Array

    def __init__(self, tensors: Forecast) -> None:
        self.tensors = tensors

    if TYPE_CHECKING:  # what every forecast has, found by __getattr__ like the rest

        def quantile(self, level: float | Sequence[float]) -> Array:
            """Return the quantile at ``level``; for several levels, one after the other on a first axis."""

        def interval(self, level: float = 0.9) -> tuple[Array, Array]:
            """Return the central interval that holds the target with probability ``level``."""

        def log_prob(self, targets: ArrayLike) -> Array:
            """Return the log density (mass) of each observation."""

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
