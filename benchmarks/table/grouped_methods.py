"""Methods for rows in groups: statsmodels' mixed linear model, pooled methods that are told the group, and ours."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np
from statsmodels.regression.mixed_linear_model import MixedLM  # type: ignore[import-untyped]
from statsmodels.tools.sm_exceptions import ConvergenceWarning  # type: ignore[import-untyped]

from benchmarks.table.grouped_data import GroupedRows, Groups
from benchmarks.table.methods import has_estimator
from benchmarks.table.ours import BackpropBenchmark
from benchmarks.table.peer import Peer, Unit
from benchmarks.table.predictive import FloatArray, Forecasted, Normals, Predictive
from benchmarks.table.trees import BoostedQuantiles


class GroupedMethod(ABC):
    """A method that is fitted to the rows of known groups, and forecasts rows of known and of new groups."""

    fit_seconds: float

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds = seed, seconds

    def fit(self, rows: GroupedRows) -> Self:
        """Fit, and note the CPU seconds that it took."""
        started = time.process_time()
        self.learn(rows)
        self.fit_seconds = time.process_time() - started
        return self

    @abstractmethod
    def learn(self, rows: GroupedRows) -> None:
        """Fit the rows of known groups."""

    @abstractmethod
    def known(self, x: FloatArray, groups: Groups) -> Predictive:
        """Return the predictive distributions of rows of known groups."""

    @abstractmethod
    def new(self, support: GroupedRows, x: FloatArray, groups: Groups) -> Predictive:
        """Return the predictive distributions of rows of new groups, of which the support rows are known."""


@dataclass(frozen=True)
class MixedParameters:
    """What the mixed model estimates: fixed effects (K,) and their covariance, that of random effects, the noise."""

    fixed: FloatArray
    fixed_covariance: FloatArray
    random_covariance: FloatArray
    noise: float


class MixedModel(GroupedMethod):
    r"""Random intercept and slopes, $y = z^T(\beta + u_g) + \epsilon$, by restricted maximum likelihood.

    The prediction is that of Gaussian conditioning given the estimated variances: it carries the noise, what the
    group's rows leave open of $u_g$, and the uncertainty of $\beta$.
    """

    def learn(self, rows: GroupedRows) -> None:
        """Estimate the parameters by statsmodels."""
        self._x, self._y, self._rows = Unit.of(rows.x), Unit.of(rows.y), rows
        design = self._design(rows.x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a variance of zero is a fit, too
            warnings.simplefilter("ignore", UserWarning)
            model = MixedLM(self._y.apply(rows.y), design, rows.groups, exog_re=design)
            found = model.fit(reml=True, method=["lbfgs", "bfgs", "cg"])
        count = design.shape[1]
        self.parameters = MixedParameters(
            np.asarray(found.fe_params),
            np.asarray(found.cov_params())[:count, :count],
            np.asarray(found.cov_re),
            float(found.scale),
        )

    def known(self, x: FloatArray, groups: Groups) -> Predictive:
        """Condition each group on its training rows; the fixed effects have seen them already."""
        return self._by_group(x, groups, self._rows, self._kriged)

    def new(self, support: GroupedRows, x: FloatArray, groups: Groups) -> Predictive:
        """Condition each new group on its support rows, from fixed effects that have not seen them."""
        return self._by_group(x, groups, support, self._conditioned)

    def _by_group(
        self, x: FloatArray, groups: Groups, given: GroupedRows, predict: Callable[..., tuple[FloatArray, FloatArray]]
    ) -> Normals:
        mean, variance = np.empty(len(x)), np.empty(len(x))
        for group in np.unique(groups):
            at, own = groups == group, given.of(given.groups == group)
            mean[at], variance[at] = predict(self._design(own.x), self._y.apply(own.y), self._design(x[at]))
        unit = Normals(mean[None], np.sqrt(variance + self.parameters.noise)[None])
        return unit.rescaled(float(self._y.loc), float(self._y.scale))

    def _kriged(self, z: FloatArray, y: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance (without noise) where the fixed effects were estimated with these rows, too."""
        p = self.parameters
        gain = wanted @ p.random_covariance @ z.T @ np.linalg.inv(self._covariance(z, p.random_covariance))
        rest = wanted - gain @ z  # what the fixed effects still add
        random = wanted @ p.random_covariance - gain @ z @ p.random_covariance
        variance = (random * wanted).sum(1) + (rest @ p.fixed_covariance * rest).sum(1)
        return wanted @ p.fixed + gain @ (y - z @ p.fixed), variance

    def _conditioned(self, z: FloatArray, y: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance (without noise) where fixed and random effects together are still uncertain."""
        p = self.parameters
        prior = p.random_covariance + p.fixed_covariance
        gain = wanted @ prior @ z.T @ np.linalg.inv(self._covariance(z, prior))
        variance = ((wanted @ prior - gain @ z @ prior) * wanted).sum(1)
        return wanted @ p.fixed + gain @ (y - z @ p.fixed), variance

    def _covariance(self, z: FloatArray, effects: FloatArray) -> FloatArray:
        found: FloatArray = z @ effects @ z.T + self.parameters.noise * np.eye(len(z))
        return found

    def _design(self, x: FloatArray) -> FloatArray:
        return np.column_stack([np.ones(len(x)), self._x.apply(x)])


class Pooled(GroupedMethod):
    """A method for plain tables that is told the group; for new groups it is fitted again, with their support rows."""

    def learn(self, rows: GroupedRows) -> None:
        """Fit the rows of the known groups."""
        self._rows, self._fitted = rows, self._fit(rows)

    def known(self, x: FloatArray, groups: Groups) -> Predictive:
        """Return the distributions for rows of groups that the fit has seen."""
        return self._predictive(self._fitted, x, groups)

    def new(self, support: GroupedRows, x: FloatArray, groups: Groups) -> Predictive:
        """Fit the rows of known groups and the support rows together."""
        together = GroupedRows(*(np.concatenate(parts) for parts in zip(self._rows, support, strict=True)))
        return self._predictive(self._fit(together), x, groups)

    def _fit(self, rows: GroupedRows) -> tuple[Peer, Groups]:
        """Return the fitted method, and the groups that it knows."""
        names = np.unique(rows.groups)
        inputs = self.inputs(rows.x, rows.groups, names)
        peer = self.peer(tuple(range(rows.x.shape[1], inputs.shape[1])))
        return peer.fit(inputs, rows.y), names

    def _predictive(self, fitted: tuple[Peer, Groups], x: FloatArray, groups: Groups) -> Predictive:
        peer, names = fitted
        return peer.predictive(self.inputs(x, groups, names))

    @abstractmethod
    def peer(self, plain: tuple[int, ...]) -> Peer:
        """Return the method; the columns of the group are not to be standardised."""

    @abstractmethod
    def inputs(self, x: FloatArray, groups: Groups, names: Groups) -> FloatArray:
        """Return the features with the group in columns of its own, after the others."""


class PooledQuantiles(Pooled):
    """Boosted quantiles, with the group as a category."""

    def peer(self, plain: tuple[int, ...]) -> Peer:
        """Return boosted quantiles."""
        return BoostedQuantiles(self.seed, self.seconds, plain)

    def inputs(self, x: FloatArray, groups: Groups, names: Groups) -> FloatArray:
        """Return the features and the group's number."""
        return np.column_stack([x, np.searchsorted(names, groups)])


class OneHotBackprop(Pooled):
    """Bayes by Backprop with the settings of ``uci``, with a column for each group."""

    def peer(self, plain: tuple[int, ...]) -> Peer:
        """Return Bayes by Backprop."""
        return BackpropBenchmark(self.seed, self.seconds, plain)

    def inputs(self, x: FloatArray, groups: Groups, names: Groups) -> FloatArray:
        """Return the features and zeros with a one for the group."""
        return np.column_stack([x, (groups[:, None] == names).astype(np.float64)])


class Estimator(GroupedMethod):
    """``metaprior.sklearn.MetaRegressor()`` with its defaults."""

    def learn(self, rows: GroupedRows) -> None:
        """Fit the columns as they are."""
        make: Any = import_module("metaprior.sklearn").MetaRegressor
        self._regressor = make(random_state=self.seed).fit(rows.x, rows.y, groups=rows.groups)

    def known(self, x: FloatArray, groups: Groups) -> Predictive:
        """Return the estimator's own forecast."""
        return Forecasted(self._regressor.forecast(x, groups=groups))

    def new(self, support: GroupedRows, x: FloatArray, groups: Groups) -> Predictive:
        """Add the new groups' rows, without learning again."""
        self._regressor.add_groups(support.x, support.y, groups=support.groups)
        return Forecasted(self._regressor.forecast(x, groups=groups))


OURS, MIXED = "MetaRegressor, defaults", "mixed linear model"
PEERS: dict[str, Callable[[int, float], GroupedMethod]] = {
    MIXED: MixedModel,
    "boosted quantiles, group as a category": PooledQuantiles,
    "Bayes by Backprop, one-hot groups": OneHotBackprop,
}


def methods() -> dict[str, Callable[[int, float], GroupedMethod]]:
    """Return all methods; the estimator only where the package has it."""
    return {OURS: Estimator, **PEERS} if has_estimator("MetaRegressor") else PEERS
