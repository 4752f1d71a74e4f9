"""All methods of the small tables, by the names in the results."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from benchmarks.table.laplace_peers import KroneckerLaplace, LastLayerLaplace
from benchmarks.table.networks import DeepEnsemble, MCDropout
from benchmarks.table.ours import BackpropBenchmark, BackpropDefaults, Estimator
from benchmarks.table.predictive import FloatArray, Predictive
from benchmarks.table.processes import GaussianProcess
from benchmarks.table.trees import BoostedQuantiles, NGBoost


class Method(Protocol):
    """What can be fitted to a table; both times are CPU seconds of ``fit``, without and with the choice of settings."""

    fit_seconds: float
    total_seconds: float

    def fit(self, x: FloatArray, y: FloatArray) -> object:
        """Fit features (N, F) and targets (N,)."""

    def predictive(self, x: FloatArray) -> Predictive:
        """Return the predictive distributions of rows."""


OURS = "BayesRegressor, defaults"
ENSEMBLE = "deep ensemble"
PEERS: dict[str, Callable[[int, float], Method]] = {
    "Gaussian process": GaussianProcess,
    "boosted quantiles": BoostedQuantiles,
    ENSEMBLE: DeepEnsemble,
    "MC dropout": MCDropout,
    "Laplace, last layer": LastLayerLaplace,
    "Laplace, Kronecker": KroneckerLaplace,
    "NGBoost": NGBoost,
    "Bayes by Backprop, defaults": BackpropDefaults,
    "Bayes by Backprop, settings of uci": BackpropBenchmark,
}


def methods() -> dict[str, Callable[[int, float], Method]]:
    """Return all methods; the estimator only where the package has it."""
    return {OURS: Estimator, **PEERS} if has_estimator("BayesRegressor") else PEERS


def has_estimator(name: str) -> bool:
    """Return whether the package has a scikit-learn estimator of this name."""
    return find_spec("metaprior.sklearn") is not None and hasattr(import_module("metaprior.sklearn"), name)
