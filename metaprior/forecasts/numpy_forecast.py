"""Forecasts in NumPy arrays, for inputs that were."""

from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from metaprior import checks
from metaprior.checks import ArrayLike
from metaprior.forecasts.forecast import Forecast

Array = npt.NDArray[Any]


def as_numpy(value: Any) -> Any:
    """Return tensors as NumPy arrays and forecasts as forecasts in arrays, also inside tuples and dictionaries."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Forecast):
        return NumpyForecast(value)
    if isinstance(value, tuple):
        arrays = map(as_numpy, value)
        return type(value)(*arrays) if hasattr(value, "_fields") else tuple(arrays)
    if isinstance(value, dict):
        return {name: as_numpy(part) for name, part in value.items()}
    return value


def as_argument(value: Any) -> Any:
    """Return arrays, data frames and lists of numbers as tensors; everything else as it is."""
    if isinstance(value, list):
        value = np.asarray(value) if np.asarray(value).dtype.kind in "fiub" else value
    is_data = isinstance(value, np.ndarray) or hasattr(value, "to_numpy")
    return checks.as_plain_tensor(value, "y") if is_data else value


class NumpyForecast:
    """A forecast whose attributes and methods return NumPy arrays; ``tensors`` is the forecast itself.

    Methods take NumPy arrays, data frames, lists of numbers and tensors. A method that returns a forecast returns
    another one of this class.
    """

    mean: Array
    std: Array
    epistemic: Array
    aleatoric: Array
    samples: Array

    def __init__(self, tensors: Forecast) -> None:
        self.tensors = tensors

    if TYPE_CHECKING:  # what every forecast has, found by __getattr__ like the rest

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

        @wraps(value)
        def in_arrays(*arguments: Any, **options: Any) -> Any:
            given = {key: as_argument(one) for key, one in options.items()}
            return as_numpy(value(*map(as_argument, arguments), **given))

        return in_arrays

    def quantile(self, level: float | Sequence[float] | Array) -> Array:
        """Return the quantile at ``level`` in (0, 1); for several levels, one after the other on a first axis."""
        levels = level.tolist() if isinstance(level, np.ndarray | np.generic) else level
        found: Array = as_numpy(self.tensors.quantile(levels))
        return found

    def __dir__(self) -> list[str]:
        """Return what the forecast offers, for completion in notebooks."""
        return sorted({*super().__dir__(), *(name for name in dir(self.tensors) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return f"NumpyForecast({self.tensors!r})"
