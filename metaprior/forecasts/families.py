r"""Forecasts that are mixtures of components of any one family, such as Student's t: what all of them share.

A family gives the mean, the variance, the distribution function and the density of each component. Everything else
follows: moments by the law of total variance, the distribution function and the density of the mixture as weighted
means, its quantiles by a root search, and its CRPS by numerical integration.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import ArrayLike
from metaprior.forecasts.forecast import Forecast, levels_of, log_mean_over_samples, targets_like
from metaprior.forecasts.inversion import invert_cdf

QUANTILE_TOLERANCE = 1e-9
"""Largest error of a quantile, in standard deviations of the forecast."""
PANEL_LEVELS = (0.001, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.999)
"""Levels whose quantiles divide the integral of the CRPS into panels; what lies beyond adds less than 1e-5 of it."""
PANEL_TOLERANCE = 1e-3
"""Largest error of a panel's end, in standard deviations: it does not have to be exact."""
NODES, NODE_WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(8))
"""Gauss-Legendre quadrature on [-1, 1]."""
NUMBERS_AT_ONCE = 2**21
"""Numbers (levels x components x targets) that a search for quantiles works on together."""


@dataclass(frozen=True, repr=False)
class MixtureForecast(Forecast):
    """A mixture of S components of one family per target; the base class of forecasts of your own.

    Subclasses are frozen dataclasses whose first field has shape (S, N, ...), with everything else in shapes that
    broadcast to it. They give ``samples``, ``variances``, ``component_cdf``, ``component_log_prob`` and ``widened``,
    and ``rescaled`` if targets may be standardised.
    """

    @property
    @abstractmethod
    def variances(self) -> Tensor:
        """Variance of the target in each component, (S, N, ...)."""

    @abstractmethod
    def component_cdf(self, values: Tensor) -> Tensor:
        """Return the probability, in each component, of a target at or below values: (S, N, ...).

        Values are (N, ...), or (K, 1, N, ...) for K values of each target, which gives (K, S, N, ...).
        """

    @abstractmethod
    def component_log_prob(self, values: Tensor) -> Tensor:
        """Return the log density (or mass), in each component, of values (N, ...): (S, N, ...)."""

    def component_below(self, values: Tensor) -> Tensor:
        """Return the probability, in each component, of a target below the values; differs from the cdf at atoms."""
        return self.component_cdf(values)

    @cached_property
    def aleatoric(self) -> Tensor:
        """Root of the mean of the components' variances."""
        return mixture.average(self.variances.expand(self.samples.shape), self.weights).sqrt()

    def cdf(self, targets: ArrayLike) -> Tensor:
        """Return the probability of a value at or below each target, elementwise; NaN for a missing target."""
        values = self._values(targets)
        return self._of_present(mixture.average(self.component_cdf(values), self.weights), values)

    def below(self, targets: ArrayLike) -> Tensor:
        """Return the probability of a value below each target; for a density the same as ``cdf``."""
        values = self._values(targets)
        return self._of_present(mixture.average(self.component_below(values), self.weights), values)

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log density (or mass) of each observation, the product of those of its outputs."""
        values = self._values(targets)
        return log_mean_over_samples(self.component_log_prob(values), self.weights, self.present(values))

    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the smallest value whose cdf reaches ``level``; for several levels (Q, N, ...)."""
        levels, wide = levels_of(level), self._doubled()
        size = max(1, NUMBERS_AT_ONCE // self.samples.numel())
        groups = [levels[start : start + size] for start in range(0, len(levels), size)]
        found = torch.cat([wide._quantiles(self._as_column(own), QUANTILE_TOLERANCE) for own in groups]).to(self.mean)
        return found if isinstance(level, Sequence) else found[0]

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the central interval that holds the target with probability ``level`` (at least, with atoms)."""
        levels_of(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def crps(self, targets: ArrayLike) -> Tensor:
        r"""Return the continuous ranked probability score of each target, NaN for a missing one.

        $$\mathrm{CRPS}(F, y) = \int_{-\infty}^y F(t)^2\,dt + \int_y^\infty (1 - F(t))^2\,dt$$

        by Gauss-Legendre quadrature between quantiles of the forecast, right to about 1e-5 of the standard deviation.
        """
        wide = self._doubled()
        observed = self._values(targets).double()
        inner = wide._quantiles(self._as_column(PANEL_LEVELS), PANEL_TOLERANCE)
        edges = torch.cat([inner, observed.nan_to_num(0.0)[None]]).sort(0).values
        nodes, node_weights = (self._as_column(part) for part in (NODES, NODE_WEIGHTS))
        score = torch.zeros_like(observed)
        for low, high in pairwise(edges):
            centre, half = (low + high) / 2, (high - low) / 2
            reached = wide._cdf(centre + half * nodes)
            score += half * (node_weights * torch.where(centre < observed, reached, 1 - reached).square()).sum(0)
        return self._of_present(score, observed).to(self.mean)

    def _values(self, targets: ArrayLike) -> Tensor:
        """Return targets in the forecast's shape and on its device."""
        return targets_like(targets, self.mean.shape, self.mean)

    def _quantiles(self, levels: Tensor, tolerance: float) -> Tensor:
        """Return the quantiles (Q, N, ...) at levels (Q, 1, ...), right to ``tolerance`` standard deviations."""
        return invert_cdf(self._cdf, *self._bracket(levels), levels, tolerance * self.std)

    def _cdf(self, values: Tensor) -> Tensor:
        """Return the mixture's distribution function at several values of each target, (K, N, ...)."""
        return mixture.average(self.component_cdf(values.unsqueeze(1)), self.weights, 1)

    def _as_column(self, numbers: Sequence[float]) -> Tensor:
        """Return numbers (K, 1, ...), in double precision, to broadcast against (K, N, ...)."""
        column = torch.tensor(numbers, dtype=torch.float64, device=self.mean.device)
        return column.reshape(-1, *[1] * self.mean.ndim)

    def _bracket(self, level: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return two values around each quantile, (Q, N, ...).

        By Cantelli's inequality it lies between $\mu - \sigma\sqrt{(1 - p)/p}$ and $\mu + \sigma\sqrt{p/(1 - p)}$.
        """
        odds = (level / (1 - level)).sqrt()
        slack = 1.001 * self.std + torch.finfo(torch.float64).tiny
        return self.mean - slack / odds, self.mean + slack * odds

    def _doubled(self) -> Self:
        tensors = {name: value for name, value in self._fields().items() if isinstance(value, Tensor)}
        return replace(self, **{name: value.detach().double() for name, value in tensors.items()})

    def _of_present(self, values: Tensor, targets: Tensor) -> Tensor:
        return torch.where(self.present(targets), values, torch.nan)
