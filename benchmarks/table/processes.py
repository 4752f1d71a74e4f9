"""scikit-learn's Gaussian process with a length scale for each feature."""

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.gaussian_process import GaussianProcessRegressor  # type: ignore[import-untyped]
from sklearn.gaussian_process.kernels import (  # type: ignore[import-untyped]
    RBF,
    ConstantKernel,
    Kernel,
    Matern,
    WhiteKernel,
)

from benchmarks.table.peer import Peer, Rows, Trained
from benchmarks.table.predictive import FloatArray, Normals

KERNELS = {"RBF": RBF, "Matern 5/2": lambda scales, bounds: Matern(scales, bounds, nu=2.5)}
EVIDENCE_ROWS = 500
"""Rows that the kernel's parameters are found on: the evidence costs the cube of their number, dozens of times."""
MOST_ROWS = 3000
"""Rows that the process is conditioned on, once."""
BOUNDS = (1e-2, 1e3)
"""Of length scales, in standard deviations of the features; other bounds are scikit-learn's."""


class GaussianProcess(Peer):
    """Constant times a kernel with a length scale for each feature, plus white noise; parameters by the evidence."""

    candidates = tuple(KERNELS)

    def train(self, setting: str, rows: Rows, held_out: Rows | None) -> Trained:
        """Find the kernel's parameters on some rows, and condition on many."""
        order = np.random.default_rng(self.seed).permutation(len(rows.y))
        kernel = ConstantKernel() * KERNELS[setting](np.ones(rows.x.shape[1]), BOUNDS)
        found = self._process(kernel + WhiteKernel(0.1), rows, order[:EVIDENCE_ROWS], "fmin_l_bfgs_b")
        if len(order) > EVIDENCE_ROWS:
            found = self._process(found.kernel_, rows, order[:MOST_ROWS], None)

        def forecaster(x: FloatArray) -> Normals:
            mean, std = found.predict(x, return_std=True)
            return Normals(mean[None], std[None])

        return Trained(forecaster, setting)

    def _process(
        self, kernel: Kernel, rows: Rows, chosen: npt.NDArray[np.int64], optimizer: str | None
    ) -> GaussianProcessRegressor:
        process = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=optimizer, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length scale at its bound: the feature is not used
            return process.fit(rows.x[chosen], rows.y[chosen])
