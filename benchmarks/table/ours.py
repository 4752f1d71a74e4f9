"""This package's methods on a table: the estimator, and Bayes by Backprop as it is without one."""

import math
import time
from importlib import import_module
from typing import Any, ClassVar, Self

import torch

import metaprior as mp
from benchmarks.table.peer import Peer, Rows, Trained
from benchmarks.table.predictive import FloatArray, Forecasted, Normals, Predictive

HIDDEN = 50
SAMPLES = 200


class BackpropDefaults(Peer):
    """``BayesByBackprop`` with the defaults of the method."""

    def train(self, setting: None, rows: Rows, held_out: Rows | None) -> Trained:
        """Fit one network with 50 hidden units."""
        torch.manual_seed(self.seed)  # for the initial weights
        network = mp.MLP(rows.x.shape[1], [HIDDEN], 1)
        bnn = mp.BayesByBackprop(network, mp.Gaussian(), seed=self.seed)
        bnn.fit(rows.x, rows.y, progress=False, **self.fit_settings(len(rows.y)))

        def forecaster(x: FloatArray) -> Normals:
            forecast = bnn.predict(torch.as_tensor(x), samples=SAMPLES)
            means, scales, _ = forecast.components()  # type: ignore[attr-defined]
            return Normals(means.double().numpy(), scales.double().numpy())

        return Trained(forecaster, setting)

    def fit_settings(self, rows: int) -> dict[str, Any]:
        """Return the arguments of ``fit`` for a number of rows."""
        return {}


class BackpropBenchmark(BackpropDefaults):
    """``BayesByBackprop`` with the settings of ``python -m benchmarks uci``."""

    steps: ClassVar[int] = 5000

    def fit_settings(self, rows: int) -> dict[str, Any]:
        """Return epochs for the number of steps, of 100 rows and with four weight samples each."""
        epochs = math.ceil(self.steps / math.ceil(rows / 100))
        return {"epochs": epochs, "batch_size": 100, "lr": 1e-2, "samples": 4}


class Estimator:
    """``metaprior.sklearn.BayesRegressor()`` with its defaults: it standardises and chooses inside."""

    def __init__(self, seed: int, seconds: float) -> None:
        make: Any = import_module("metaprior.sklearn").BayesRegressor
        self._regressor = make(random_state=seed)

    def fit(self, x: FloatArray, y: FloatArray) -> Self:
        """Fit the columns as they are."""
        started = time.process_time()
        self._regressor.fit(x, y)
        self.fit_seconds = self.total_seconds = time.process_time() - started
        return self

    def predictive(self, x: FloatArray) -> Predictive:
        """Return the estimator's own forecast."""
        return Forecasted(self._regressor.forecast(x))
