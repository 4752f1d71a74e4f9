"""Forecasts for the rows of one group, with scikit-learn's names."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from metaprior.forecasts.numpy_forecast import NumpyForecast

if TYPE_CHECKING:
    from metaprior.sklearn.meta import MetaClassifier, MetaRegressor

Array = npt.NDArray[Any]


class AdaptedRegressor:
    """A ``MetaRegressor`` that knows rows of one group; ``MetaRegressor.adapt`` returns it.

    ``n_rows`` is the number of rows that it knows of the group.
    """

    def __init__(self, estimator: "MetaRegressor", support: tuple[Array, Array]) -> None:
        self.estimator, self._support, self.n_rows = estimator, support, len(support[0])

    def forecast(self, X: Any) -> NumpyForecast:
        """Return the forecast: mean, std, epistemic, aleatoric, quantile(level), log_prob(y), ..."""
        return self.estimator._forecast_of_group(X, self._support)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the expected target of every row, and with ``return_std=True`` its standard deviation."""
        return expected(self.forecast(X), return_std)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return the bounds of the central interval that holds the target with probability ``level``."""
        return self.forecast(X).interval(level)

    def predict_quantile(self, X: Any, level: float) -> Array:
        """Return the value that the target is below with probability ``level``."""
        return self.forecast(X).quantile(level)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.estimator!r}, {self.n_rows} rows)"


class AdaptedClassifier:
    """A ``MetaClassifier`` that knows rows of one group; ``MetaClassifier.adapt`` returns it.

    ``n_rows`` is the number of rows that it knows of the group.
    """

    def __init__(self, estimator: "MetaClassifier", support: tuple[Array, Array]) -> None:
        self.estimator, self._support, self.n_rows = estimator, support, len(support[0])

    @property
    def classes_(self) -> Array:
        """The labels, in the order of the columns of ``predict_proba``."""
        return self.estimator.classes_

    def forecast(self, X: Any) -> NumpyForecast:
        """Return the forecast: probabilities, epistemic, entropy, mutual_information, ..."""
        return self.estimator._forecast_of_group(X, self._support)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class."""
        return probabilities(self.forecast(X))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of every row."""
        return self.classes_[self.predict_proba(X).argmax(1)]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.estimator!r}, {self.n_rows} rows)"


def expected(forecast: NumpyForecast, return_std: bool) -> Array | tuple[Array, Array]:
    """Return the mean of a forecast, or its mean and standard deviation."""
    return (forecast.mean, forecast.std) if return_std else forecast.mean


def probabilities(forecast: NumpyForecast) -> Array:
    """Return class probabilities that add up to one."""
    found = np.asarray(forecast.probabilities, dtype=np.float64)
    return found / found.sum(1, keepdims=True)  # type: ignore[no-any-return]
