"""What a method says about the targets of rows, in one form for all methods, and how it is scored.

A score needs only the mean, the log density and quantiles of each row's predictive distribution. So the same code
scores a Gaussian process, boosted quantiles and an ensemble of networks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaprior import mixture

FloatArray = npt.NDArray[np.float64]

CRPS_LEVELS = (np.arange(100) + 0.5) / 100
"""Levels of the quantiles that the CRPS is computed from: the midpoints of 100 equal parts of (0, 1)."""
INTERVAL = (0.05, 0.95)
BLOCK = 2**20
"""Numbers in a block of the quantiles' search."""


class Predictive(Protocol):
    """The predictive distributions of N rows, in the targets' own units."""

    @property
    def mean(self) -> FloatArray:
        """Expected target of each row, (N,)."""

    def log_prob(self, targets: FloatArray) -> FloatArray:
        """Return the log density of each target, (N,)."""

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the quantiles of each row, (Q, N)."""


class Rescalable(Predictive, Protocol):
    """A predictive distribution that can be told in other units."""

    def rescaled(self, loc: float, scale: float) -> Self:
        """Return the distribution of ``loc + scale * target``."""


@dataclass(frozen=True)
class Normals:
    """An equal mixture of S Gaussians for each of N rows: means and scales (S, N)."""

    means: FloatArray
    scales: FloatArray

    @property
    def mean(self) -> FloatArray:
        """The mean of the components' means."""
        mean: FloatArray = self.means.mean(0)
        return mean

    def log_prob(self, targets: FloatArray) -> FloatArray:
        """Return the log of the mean density of the components."""
        return mixture.log_density(*self._tensors(), torch.as_tensor(targets), self._weights).numpy()

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the quantiles of the mixtures, block by block."""
        means, scales = self._tensors()
        rows = max(1, BLOCK // (len(means) * len(levels)))
        parts = [
            mixture.quantiles(means[:, start : start + rows], scales[:, start : start + rows], levels, self._weights)
            for start in range(0, means.shape[1], rows)
        ]
        return torch.cat(parts, 1).numpy()

    def rescaled(self, loc: float, scale: float) -> "Normals":
        """Return the distribution of ``loc + scale * target``."""
        return Normals(loc + scale * self.means, scale * self.scales)

    def _tensors(self) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(self.means), torch.as_tensor(self.scales)

    @property
    def _weights(self) -> Tensor:
        """The components are the whole distribution, not samples of one."""
        return torch.full((len(self.means), 1), 1 / len(self.means), dtype=torch.float64)


@dataclass(frozen=True)
class QuantileTable:
    r"""Quantiles of N rows at a few levels, (Q, N): in between, linear in $\log\frac{p}{1-p}$, and so beyond the ends.

    The tails are therefore those of a logistic distribution. Quantiles that crossed are sorted. A table of quantiles
    has no density of its own (it would be infinite where two of them coincide): the log density is that of Gaussian
    kernels of width ``bandwidth`` at the 100 quantiles that the CRPS is computed from.
    """

    levels: tuple[float, ...]
    values: FloatArray
    bandwidth: float

    @property
    def mean(self) -> FloatArray:
        """The mean of 100 quantiles."""
        return self._kernels.mean

    def log_prob(self, targets: FloatArray) -> FloatArray:
        """Return the log density of the kernels."""
        return self._kernels.log_prob(targets)

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return interpolated quantiles."""
        known, wanted = _logit(np.asarray(self.levels)), _logit(np.asarray(levels))
        values = np.sort(self.values, axis=0)
        segment = np.clip(np.searchsorted(known, wanted) - 1, 0, len(known) - 2)
        share = (wanted - known[segment]) / (known[segment + 1] - known[segment])
        found: FloatArray = values[segment] + share[:, None] * (values[segment + 1] - values[segment])
        return found

    def rescaled(self, loc: float, scale: float) -> "QuantileTable":
        """Return the distribution of ``loc + scale * target``."""
        return QuantileTable(self.levels, loc + scale * self.values, scale * self.bandwidth)

    @cached_property
    def _kernels(self) -> Normals:
        centres = self.quantiles(CRPS_LEVELS.tolist())
        return Normals(centres, np.full_like(centres, self.bandwidth))


def _logit(levels: FloatArray) -> FloatArray:
    found: FloatArray = np.log(levels / (1 - levels))
    return found


@dataclass(frozen=True)
class Forecasted:
    """A forecast of this package as a predictive distribution."""

    forecast: object

    @property
    def mean(self) -> FloatArray:
        """The forecast's mean."""
        return _array(self.forecast.mean)  # type: ignore[attr-defined]

    def log_prob(self, targets: FloatArray) -> FloatArray:
        """Return the forecast's log density."""
        return _array(self.forecast.log_prob(targets))  # type: ignore[attr-defined]

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the forecast's quantiles."""
        return _array(self.forecast.quantile(list(levels)))  # type: ignore[attr-defined]


def _array(values: object) -> FloatArray:
    """Return a tensor or an array as a vector (or a table) in double precision."""
    found = np.asarray(values, dtype=np.float64)
    return found[..., 0] if found.ndim > 1 and found.shape[-1] == 1 else found


class Scores(NamedTuple):
    """Means over rows, in the targets' own units (NLL: nats); ``coverage_90`` is that of the central 90 % interval."""

    nll: float
    crps: float
    rmse: float
    coverage_90: float


def scores_of(predictive: Predictive, targets: FloatArray) -> Scores:
    """Return the scores of predictive distributions against targets; raise where one of them is not finite."""
    low, high = predictive.quantiles(INTERVAL)
    found = Scores(
        nll=-float(predictive.log_prob(targets).mean()),
        crps=float(crps(predictive, targets).mean()),
        rmse=math.sqrt(float(np.square(predictive.mean - targets).mean())),
        coverage_90=float(((low <= targets) & (targets <= high)).mean()),
    )
    if not all(map(math.isfinite, found)):
        raise ValueError(f"scores must be finite, got {found}")
    return found


def crps(predictive: Predictive, targets: FloatArray) -> FloatArray:
    r"""Return the continuous ranked probability score of each target, (N,), by its quantiles.

    $$\mathrm{CRPS}(F, y) = \int_0^1 2\,\big(1[y \le q_p] - p\big)\,(q_p - y)\,dp$$

    by the midpoint rule at 100 levels, which for a Gaussian is right to 0.1 %.
    """
    quantiles = predictive.quantiles(CRPS_LEVELS.tolist())
    return pinball(quantiles, CRPS_LEVELS, targets).mean(0)  # type: ignore[no-any-return]


def pinball(quantiles: FloatArray, levels: FloatArray, targets: FloatArray) -> FloatArray:
    """Return twice the pinball loss of quantiles (Q, N) at levels (Q,)."""
    found: FloatArray = 2 * ((targets <= quantiles) - levels[:, None]) * (quantiles - targets)
    return found


Forecaster = Callable[[FloatArray], Rescalable]
"""A trained method: features (N, F) to the predictive distribution of targets, in the units that it trained in."""
