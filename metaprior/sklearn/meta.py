"""Estimators for tables whose rows belong to groups (patients, shops, plants), with few rows in each."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
from sklearn.metrics import accuracy_score, r2_score  # type: ignore[import-untyped]
from sklearn.utils import check_random_state, metadata_routing  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from metaprior.adaptation import Adaptation
from metaprior.checks import warn_caller
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.likelihoods import Categorical, Gaussian
from metaprior.methods.method import TaskMethod
from metaprior.sklearn import group_prior
from metaprior.sklearn.adapted import AdaptedClassifier, AdaptedRegressor, Array, expected, probabilities
from metaprior.sklearn.checked import integer, widths
from metaprior.sklearn.group_network import made
from metaprior.sklearn.group_prior import DRAWS, POINT, PriorSettings
from metaprior.sklearn.groups import labels_of, rows_by_group
from metaprior.sklearn.least_squares_labels import LabelScale, codes, fitted_scale
from metaprior.sklearn.state import files_of
from metaprior.tasks.task import Examples

ALL_ROWS = ""
"""The only group of a fit without groups."""
Support = tuple[Array, Array]
"""Standardised inputs and targets of a group's rows."""


class _GroupEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators have in common."""

    def __init__(
        self,
        hidden: Sequence[int] = (16,),
        activation: Literal["tanh", "silu", "relu"] = "tanh",
        prior: Literal["auto", "draws", "point"] = "auto",
        adaptation: Adaptation | Literal["closed_form"] = "closed_form",
        draws: int = 16,
        steps: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden, self.activation, self.prior, self.adaptation = hidden, activation, prior, adaptation
        self.draws, self.steps, self.random_state = draws, steps, random_state

    def _fit(self, X: Array, targets: Array, groups: Any) -> Self:
        """Learn the prior and keep the rows of all groups; X and targets are checked."""
        settings = self._settings()
        labels: list[Hashable] = [ALL_ROWS] * len(X) if groups is None else labels_of(groups, len(X))
        self.x_mean_, spread = X.mean(0), X.std(0)
        self.x_scale_ = np.where(spread > 0, spread, 1.0)
        x, rows = self._scaled(X), rows_by_group(labels)
        self._support = {label: (x[own], targets[own]) for label, own in rows.items()}
        self.groups_ = None if groups is None else list(rows)
        self.prior_, self._adaptation = settings.kind(len(rows), len(x)), settings.adaptation
        self._learn(settings, [_examples(*own) for own in self._support.values()])
        return self

    def _settings(self) -> PriorSettings:
        """Return the checked arguments of the constructor."""
        if self.prior not in ("auto", DRAWS, POINT):
            raise ValueError(f"prior must be 'auto', 'draws' or 'point', got {self.prior!r}")
        adaptation = None if isinstance(self.adaptation, str) else self.adaptation
        if adaptation is None and self.adaptation != "closed_form":
            raise ValueError(
                f"adaptation must be 'closed_form' or one like metaprior.Descent(), got {self.adaptation!r}"
            )
        if adaptation is not None and self.prior == DRAWS:
            raise ValueError(f"adaptation must be 'closed_form' with prior='draws', got {adaptation!r}")
        steps = None if self.steps is None else integer("steps", self.steps)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        draws, hidden = integer("draws", self.draws, least=2), tuple(widths(self.hidden))
        return PriorSettings(hidden, self.activation, self.prior, adaptation, draws, steps, seed)

    @abstractmethod
    def _learn(self, settings: PriorSettings, groups: list[Examples]) -> None:
        """Learn the prior from the groups."""

    @abstractmethod
    def _in_units(self, forecast: Forecast) -> Forecast:
        """Return the forecast of what was fitted, given that of the network."""

    @abstractmethod
    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Return inputs and targets as they are fitted, for rows that are given after ``fit``."""

    # --- forecasts ----------------------------------------------------------------------------------------------------

    def forecast(self, X: Any, groups: Any = None) -> NumpyForecast:
        """Return the forecast of every row, as an object with all that is known about it.

        Args:
            X: rows.
            groups: the group of every row. Groups that ``fit`` (or ``add_groups``) has seen are forecast from their
                rows, others as a new group before its first row. None: all rows are of new groups, or, if ``fit`` had
                no groups, of the table.
        """
        x = self._inputs(X)
        labels = self._labels(groups, len(x))
        found = rows_by_group(labels)
        parts = [self._forecast_with(self._support.get(label), x[rows]) for label, rows in found.items()]
        order = np.argsort(np.concatenate(list(found.values())))
        return NumpyForecast(self._in_units(_together(parts, torch.from_numpy(order))))

    def _labels(self, groups: Any, count: int) -> list[Hashable]:
        if self.groups_ is None:
            if groups is not None:
                raise ValueError("groups must be None, because fit was called without groups. Try fit(X, y, groups)")
            return [ALL_ROWS] * count
        if groups is None:
            return [_Unknown] * count
        labels = labels_of(groups, count)
        kinds, known = {type(label).__name__ for label in labels}, {type(label).__name__ for label in self._support}
        if not kinds & known and not self._support.keys() & set(labels):
            warn_caller(
                f"no group of these rows is known: labels are of type {', '.join(sorted(kinds))}, those of fit of type "
                f"{', '.join(sorted(known))}. All rows are forecast as new groups"
            )
        return labels

    def _forecast_of_group(self, X: Any, support: Support) -> NumpyForecast:
        return NumpyForecast(self._in_units(self._forecast_with(support, self._inputs(X))))

    def _forecast_with(self, support: Support | None, x: Array) -> Forecast:
        """Return the network's forecast of a group of which some rows are known."""
        posterior = self._learner.prior_predictive() if support is None else self._learner.adapt(_examples(*support))
        return posterior.predict(torch.from_numpy(x))

    def add_groups(self, X: Any, y: Any, groups: Any) -> Self:
        """Add rows of new groups, or more rows of known ones, without learning the prior again."""
        x, targets = self._new_rows(X, y)
        for label, rows in rows_by_group(labels_of(groups, len(x))).items():
            own = x[rows], targets[rows]
            if before := self._support.get(label):
                own = np.concatenate([before[0], own[0]]), np.concatenate([before[1], own[1]])
            self._support[label] = own
        self.groups_ = list(self._support)
        return self

    def _new_rows(self, X: Any, y: Any) -> Support:
        check_is_fitted(self)
        if self.groups_ is None:
            raise ValueError(
                "groups must have been given to fit, so that it learns how they differ, got None. Try fit(X, y, groups)"
            )
        x, targets = self._checked(X, y)
        return self._scaled(x), targets

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._scaled(validate_data(self, X, reset=False, dtype=np.float64, order="C"))

    def _scaled(self, X: Array) -> Array:
        return (X - self.x_mean_) / self.x_scale_  # type: ignore[no-any-return]

    # --- state --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the prior as the bytes of its files: no network is pickled."""
        state = dict(super().__getstate__())
        if learner := state.pop("_learner", None):
            state["_files"] = files_of(learner)
            state["_network"] = learner.module.arguments
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the prior from the bytes of its files."""
        state = dict(state)
        files, network = state.pop("_files", None), state.pop("_network", None)
        super().__setstate__(state)
        if files is not None:
            self._learner = group_prior.restored(files, self.prior_, made(0, *network), self._adaptation)

    _learner: TaskMethod


class _Unknown:
    """The label of rows whose group is not known."""


class MetaRegressor(RegressorMixin, _GroupEstimator):  # type: ignore[misc]
    """Regression for rows in groups: a network that knows how groups differ, and each group's own forecast.

    What groups have in common is learned from all of them. A group's forecast follows from this and from its own rows
    exactly, without training: groups of ``fit`` in ``predict(X, groups=...)``, a new one in ``adapt(X, y)``. A linear
    mixed model does the same for straight lines (``hidden=()``).

    Args:
        hidden: widths of the hidden layers, whose units every group weights differently; () is a linear model.
        activation: "tanh", "silu" or "relu".
        prior: what is learned about groups. "draws" of the posterior of the prior are honest with few groups; a "point"
            is learned from any number of rows. "auto" takes draws for up to 2,000 rows or fewer than 1,000 groups.
            (Draws are inferred from at most 2,000 rows; each group's forecast uses all of its rows.)
        adaptation: how a group's rows are used: "closed_form", the exact posterior of the last layer; or one such as
            ``metaprior.Descent()``, with a point.
        draws: draws of the prior.
        steps: gradient steps of every draw, or of the point; None takes 400 or 2,000.
        random_state: seed of everything random; an integer makes a fit reproducible.

    After ``fit``: ``groups_`` (the labels of the groups that are known; None without groups), ``prior_`` ("draws" or
    "point"), ``n_features_in_``, ``feature_names_in_``.
    """

    __metadata_request__predict: ClassVar[dict[str, Any]] = {"return_std": metadata_routing.UNUSED}

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from rows how groups differ, and keep the rows of each.

        Args:
            X: inputs, one row each; they are standardised inside.
            y: one number for each row.
            groups: the group of every row, any hashable labels. None: all rows are of one group, and the estimator is
                a Bayesian network for one table.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", y_numeric=True)
        self.y_mean_, spread = float(y.mean()), float(y.std())
        self.y_scale_ = spread if spread > 1e-12 * abs(self.y_mean_) else 1.0
        return self._fit(X, self._targets(y), groups)

    def adapt(self, X: Any, y: Any) -> AdaptedRegressor:
        """Return forecasts of one new group given some of its rows; nothing is trained, and the estimator stays."""
        return AdaptedRegressor(self, self._new_rows(X, y))

    def predict(self, X: Any, groups: Any = None, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the expected target of every row, and with ``return_std=True`` its standard deviation.

        ``groups`` is as in ``forecast``.
        """
        return expected(self.forecast(X, groups), return_std)

    def predict_interval(self, X: Any, level: float = 0.9, groups: Any = None) -> tuple[Array, Array]:
        """Return the bounds of the central interval that holds the target with probability ``level``."""
        return self.forecast(X, groups).interval(level)

    def predict_quantile(self, X: Any, level: float, groups: Any = None) -> Array:
        """Return the value that the target is below with probability ``level``."""
        return self.forecast(X, groups).quantile(level)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return R squared of ``predict(X, groups)``."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _learn(self, settings: PriorSettings, groups: list[Examples]) -> None:
        if self.prior_ == DRAWS:
            self._learner = group_prior.draws_of_prior(settings, groups, 1)
        else:
            self._learner = group_prior.point_prior(settings, groups, Gaussian(), 1)

    def _in_units(self, forecast: Forecast) -> Forecast:
        assert isinstance(forecast, GaussianForecast), "the likelihood is Gaussian"
        like = forecast.means
        return forecast.rescaled(like.new_tensor(self.y_mean_), like.new_tensor(self.y_scale_))

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        x, y = validate_data(self, X, y, reset=False, dtype=np.float64, order="C", y_numeric=True)
        return x, self._targets(y)

    def _targets(self, y: Array) -> Array:
        return (y.astype(np.float64) - self.y_mean_) / self.y_scale_


class MetaClassifier(ClassifierMixin, _GroupEstimator):  # type: ignore[misc]
    """Classification for rows in groups: as ``MetaRegressor``, for labels that mean the same in all groups.

    Arguments are those of ``MetaRegressor``. With draws, labels are regressed on as codes, and the outputs become
    probabilities by a factor that is fitted to labels left out.

    After ``fit``: ``classes_``, ``groups_``, ``prior_``, ``n_features_in_``, ``feature_names_in_``.
    """

    classes_: npt.NDArray[Any]
    scale_: LabelScale

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from rows how groups differ, and keep the rows of each.

        Args:
            X: inputs, one row each; they are standardised inside.
            y: the label of every row, text or numbers.
            groups: the group of every row, any hashable labels. None: all rows are of one group, and the estimator is
                a Bayesian network for one table.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got one class, {self.classes_[0]!r}")
        return self._fit(X, numbers, groups)

    def adapt(self, X: Any, y: Any) -> AdaptedClassifier:
        """Return forecasts of one new group given some of its rows; nothing is trained, and the estimator stays."""
        return AdaptedClassifier(self, self._new_rows(X, y))

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Return the probability of every class, in the order of ``classes_``; ``groups`` is as in ``forecast``."""
        return probabilities(self.forecast(X, groups))

    def predict(self, X: Any, groups: Any = None) -> Array:
        """Return the most probable class of every row; ``groups`` is as in ``forecast``."""
        found = self.predict_proba(X, groups).argmax(1)
        return self.classes_[found]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the accuracy of ``predict(X, groups)``."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _learn(self, settings: PriorSettings, groups: list[Examples]) -> None:
        count = len(self.classes_)
        if self.prior_ == POINT:
            self._learner = group_prior.point_prior(settings, groups, Categorical(), count)
            return
        coded = [self._coded(group) for group in groups]
        self._learner = group_prior.draws_of_prior(settings, coded, coded[0].y.shape[1])
        self.scale_ = fitted_scale(self._learner, coded, [group.y for group in groups], settings.seed)

    def _coded(self, group: Examples) -> Examples:
        return Examples(group.x, codes(group.y, len(self.classes_)))

    def _forecast_with(self, support: Support | None, x: Array) -> Forecast:
        if support is None or self.prior_ == POINT:
            return super()._forecast_with(support, x)
        coded = self._coded(_examples(*support))
        return super()._forecast_with((coded.x.numpy(), coded.y.numpy()), x)

    def _in_units(self, forecast: Forecast) -> Forecast:
        return self.scale_.forecast(forecast) if isinstance(forecast, GaussianForecast) else forecast

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        x, y = validate_data(self, X, y, reset=False, dtype=np.float64, order="C")
        numbers = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if unknown := sorted(set(y[self.classes_[numbers] != y].tolist())):
            raise ValueError(f"y must have labels of fit, {list(self.classes_)}, got {unknown[0]!r}")
        return x, numbers


def _examples(x: Array, y: Array) -> Examples:
    return Examples(torch.from_numpy(x), torch.from_numpy(y))


def _together(parts: list[Forecast], order: Tensor) -> Forecast:
    """Return one forecast of the rows of several groups, whose components have weights of their own, in this order."""
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: torch.cat([_of_rows(part, name) for part in parts], 1)[:, order]
        for name, value in parts[0]._fields().items()
        if isinstance(value, Tensor)
    }
    return replace(parts[0], **fields)


def _of_rows(forecast: Forecast, name: str) -> Tensor:
    """Return a tensor of a forecast with an axis for its rows, which broadcasting may have left out."""
    values: Tensor = getattr(forecast, name)
    if name == "weights":
        return values.flatten(1).expand(-1, len(forecast.mean))
    return values.expand_as(forecast.samples) if isinstance(forecast, GaussianForecast) else values
