"""Estimators for one table: Bayesian networks with standardised inputs, calibrated by rows that they left out."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils import Tags, metadata_routing  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data  # type: ignore[import-untyped]
from torch import nn

from metaprior.forecasts import Forecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.likelihoods import BalancedGaussian, Categorical, Likelihood
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.methods.cross_fit import mixing_weights
from metaprior.models.small import MLP
from metaprior.priors import NormalPrior
from metaprior.sklearn.adapted import expected, probabilities
from metaprior.sklearn.checked import integer, widths
from metaprior.sklearn.state import files_of, folder_of
from metaprior.sklearn.table_settings import TableSettings
from metaprior.sklearn.threads import threads

Array = npt.NDArray[Any]
ModuleFactory = Callable[[int, int], nn.Module]
"""Makes a network from its numbers of inputs and outputs."""
LEAST_SHARE = 0.01
"""An ensemble of a smaller share in the mixture is not asked for forecasts."""


class _TableEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators have in common."""

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        activation: Literal["relu", "silu", "tanh"] = "relu",
        module: ModuleFactory | None = None,
        likelihood: Likelihood | None = None,
        members: int = 5,
        calibrate: bool = True,
        temperature: float | Literal["auto"] = "auto",
        prior_std: float | Literal["auto"] = "auto",
        steps: int | None = None,
        batch_size: int = 100,
        lr: float = 1e-2,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        samples: int = 100,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden, self.activation, self.module, self.likelihood = hidden, activation, module, likelihood
        self.members, self.calibrate, self.temperature, self.prior_std = members, calibrate, temperature, prior_std
        self.steps, self.batch_size, self.lr = steps, batch_size, lr
        self.early_stopping, self.validation_fraction, self.patience = early_stopping, validation_fraction, patience
        self.samples, self.random_state, self.n_jobs, self.verbose = samples, random_state, n_jobs, verbose

    @abstractmethod
    def _default_likelihood(self) -> Likelihood: ...

    @abstractmethod
    def _takes(self, likelihood: Any) -> bool:
        """Return whether a likelihood is one for the targets of this estimator."""

    def _chosen_likelihood(self) -> Likelihood:
        """Return the likelihood of the fit; raise for what is none."""
        default = self._default_likelihood()
        if self.likelihood is not None and not self._takes(self.likelihood):
            raise ValueError(
                f"likelihood must be None or one for the targets of a {type(self).__name__}, such as {default!r}, "
                f"got {self.likelihood!r}"
            )
        return default if self.likelihood is None else self.likelihood

    def _fit(self, X: Array, y: Array, outputs: int, weights: Array | None) -> Self:
        """Fit checked rows, targets and weights; ``outputs`` are those of the network."""
        self.__dict__.pop("_methods", None)  # a fit that fails leaves an estimator that is not fitted
        settings = TableSettings.of(self)
        counted = np.ones(len(X)) if weights is None else weights
        settings.check_rows(int(np.count_nonzero(counted)))
        self.x_mean_, self.x_scale_ = _mean_and_scale(X, counted)
        self._outputs, self._seed = outputs, settings.seed
        different = len(np.unique(np.column_stack([X, y])[counted > 0], axis=0))
        self.calibrated_ = settings.calibrated(min(float(counted.sum()), different))
        recipes = settings.recipes(self.calibrated_)
        with threads(self.n_jobs):
            methods = [self._fitted(X, y, weights, recipe, settings) for recipe in recipes]
        found = [method.left_out_ for method in methods] if self.calibrated_ else []
        self.mixture_ = dict(zip(recipes, mixing_weights(found) if found else [1.0], strict=True))
        self.history_ = [record for method in methods for record in method.history_]
        self.n_iter_ = sum(record.steps for record in self.history_)
        self._methods = methods
        return self

    def _fitted(
        self, X: Array, y: Array, weights: Array | None, recipe: tuple[float, float], settings: TableSettings
    ) -> BayesByBackprop:
        """Return an ensemble that has learned from the rows."""
        temperature, std = recipe
        method = BayesByBackprop(
            self._module(X.shape[1], self._outputs),
            self._chosen_likelihood(),
            prior=NormalPrior(std),
            members=settings.members,
            temperature=temperature,
            seed=settings.seed,
        )
        return method.fit(
            self._scaled(X),
            y,
            sample_weight=weights,
            steps=settings.steps_of(len(X)),
            batch_size=settings.batch_size,
            lr=settings.lr,
            samples=1,
            validation=settings.validation,
            patience=settings.patience,
            cross_fit=self.calibrated_,
            progress=bool(self.verbose),
        )

    def _module(self, inputs: int, outputs: int) -> nn.Module:
        """Return the network with its first weights, which the seed decides."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            if self.module is None:
                return MLP(inputs, widths(self.hidden), outputs, self.activation).double()
            return _made(self.module, inputs, outputs).double()

    def _scaled(self, X: Array) -> Array:
        return (X - self.x_mean_) / self.x_scale_

    def forecast(self, X: Any) -> NumpyForecast:
        """Return the forecast of every row, as an object with all that is known about it (``metaprior.Forecast``)."""
        check_is_fitted(self)
        x = self._scaled(validate_data(self, X, reset=False, dtype=np.float64, order="C"))
        shares = [*self.mixture_.values()]
        kept = [number for number, share in enumerate(shares) if share >= LEAST_SHARE]
        samples = max(2, -(-integer("samples", self.samples, least=2) // len(kept)))
        with threads(self.n_jobs):
            found = [self._methods[number].predict(x, samples=samples, seed=self._seed) for number in kept]
        return found[0] if len(found) == 1 else Forecast.mixture(found, [shares[number] for number in kept])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_methods")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the fit as the bytes of its files: no network is pickled."""
        state = dict(super().__getstate__())
        if methods := state.pop("_methods", None):
            state["_files"] = [files_of(method) for method in methods]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the fit from the bytes of its files."""
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._methods = [self._restored(own) for own in files]

    def _restored(self, files: Mapping[str, bytes]) -> BayesByBackprop:
        module = None if self.module is None else self._module(self.n_features_in_, self._outputs)
        with folder_of(files) as folder:
            return BayesByBackprop.load(folder, module)


class BayesRegressor(RegressorMixin, _TableEstimator):  # type: ignore[misc]
    """Regression with honest intervals: a small ensemble of Bayesian networks, calibrated on rows they left out.

    Each of five networks (``members``) has a distribution over its weights (Bayes by Backprop) and learns mean and
    noise of the target as functions of the inputs. Each leaves another fifth of the rows out; these rows decide on the
    spread of forecasts. Inputs and targets are standardised inside.

    Args:
        hidden: widths of the hidden layers.
        activation: "relu", "silu" or "tanh".
        module: makes a network of your own from its numbers of inputs and outputs, such as a function that returns an
            ``nn.Module``, in place of ``hidden``. (Importable, so that estimators can be pickled.)
        likelihood: what is assumed about targets; None is ``metaprior.BalancedGaussian()``, noise that depends on x.
            Limits and fixed noise are in the units of y. (A classifier takes a ``metaprior.Categorical``, its default.)
        members: number of networks.
        calibrate: let members leave rows out, and fit the spread of forecasts to them. It needs two members and ten
            different rows to learn from for each of them; otherwise all learn from all rows (``calibrated_``).
        temperature: of the posterior; below 1 the data count more.
        prior_std: standard deviation of the weights' prior. With "auto" for both there are two ensembles, a bold one
            (0.2 and 1) and a cautious one (0.5 and 0.3), which are mixed as the rows tell that they left out; without
            calibration only the cautious one.
        steps: gradient steps of an ensemble; None takes 3,000, or as many as 20 passes over a large table take.
        batch_size: rows in a step.
        lr: learning rate, falling to zero.
        early_stopping: hold ``validation_fraction`` of the rows out, stop when these do not improve, and keep the best.
        validation_fraction: see ``early_stopping``.
        patience: hundredths of the steps without an improvement after which to stop.
        samples: weight samples of each network in a forecast, divided between two ensembles; at least 2.
        random_state: seed of everything random; an integer makes a fit reproducible.
        n_jobs: threads, as joblib counts: None is one, which is the fastest for small networks, and -1 all.
        verbose: show a progress bar.

    After ``fit``: ``mixture_`` (the share of each ensemble, by temperature and prior), ``calibrated_`` (whether members
    have left rows out), ``history_`` (a record of every hundredth of the steps of each ensemble), ``n_iter_`` (steps of
    all), ``n_features_in_``, ``feature_names_in_``.
    """

    __metadata_request__predict: ClassVar[dict[str, Any]] = {"return_std": metadata_routing.UNUSED}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit rows X and targets y, (N,) or (N, targets); a weight of 2 is the same as a row that is there twice."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", y_numeric=True, multi_output=True)
        if len(X) < 2:
            raise ValueError(f"X must have at least 2 rows, whose targets have a scale, got n_samples={len(X)}")
        y, weights, likelihood = y.astype(np.float64), _weights(X, sample_weight), self._chosen_likelihood()
        if likelihood.continuous:
            _refuse_constant(y if weights is None else y[weights > 0])
        return self._fit(X, y, likelihood.num_outputs(1 if y.ndim == 1 else y.shape[1]), weights)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the expected target of every row, and with ``return_std=True`` its standard deviation."""
        return expected(self.forecast(X), return_std)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return the bounds of the central interval that holds the target with probability ``level``."""
        return self.forecast(X).interval(level)

    def predict_quantile(self, X: Any, level: float | Sequence[float]) -> Array:
        """Return the value that the target is below with probability ``level``; of several levels, an array each."""
        return self.forecast(X).quantile(level)

    def _default_likelihood(self) -> Likelihood:
        return BalancedGaussian()

    def _takes(self, likelihood: Any) -> bool:
        return isinstance(likelihood, Likelihood) and not likelihood.labels

    def __sklearn_tags__(self) -> Tags:
        """Return what scikit-learn asks about the estimator."""
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class BayesClassifier(ClassifierMixin, _TableEstimator):  # type: ignore[misc]
    """Classification with calibrated probabilities: as ``BayesRegressor``, for labels.

    Arguments are those of ``BayesRegressor``.

    After ``fit``: ``classes_``, ``mixture_``, ``calibrated_``, ``history_``, ``n_iter_``, ``n_features_in_``,
    ``feature_names_in_``.
    """

    classes_: Array

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit rows X and their labels y, text or numbers; a weight of 2 is the same as a row that is there twice."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weights, likelihood = _weights(X, sample_weight), self._chosen_likelihood()
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got one class, {classes.tolist()[0]!r}")
        self.classes_ = classes
        return self._fit(X, numbers, likelihood.num_outputs(len(classes)), weights)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class, in the order of ``classes_``."""
        return probabilities(self.forecast(X))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of every row."""
        found = self.predict_proba(X).argmax(1)
        return self.classes_[found]  # type: ignore[no-any-return]

    def _default_likelihood(self) -> Likelihood:
        return Categorical()

    def _takes(self, likelihood: Any) -> bool:
        return isinstance(likelihood, Categorical)


def _made(factory: ModuleFactory, inputs: int, outputs: int) -> nn.Module:
    """Return the network that a user's function makes, or raise."""
    wanted = "module must be a function of the numbers of inputs and outputs that returns a torch.nn.Module"
    if isinstance(factory, nn.Module) or not callable(factory):
        raise TypeError(f"{wanted}, got {factory!r}. Try lambda inputs, outputs: ...")
    module = factory(inputs, outputs)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{wanted}, got one that returns {module!r}")
    return module


def _weights(X: Array, sample_weight: Any) -> Array | None:
    """Return the checked weights of rows; None: all count as one."""
    if sample_weight is None:
        return None
    weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():  # older versions of scikit-learn let zeros pass
        raise ValueError("sample_weight must be above zero for at least one row, got zeros")
    return weights


def _mean_and_scale(X: Array, counted: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of every column, 1 for a constant one, given how often each row counts.

    A column that varies in rows of tiny weights alone, such as one that marks them, would have next to no spread, and
    these rows values in the thousands: the spread is at least half of that without weights.
    """
    mean = np.average(X, axis=0, weights=counted)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=counted))
    spread = np.maximum(spread, X[counted > 0].std(0) / 2)
    return mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)


def _refuse_constant(y: Array) -> None:
    """Raise for targets without a spread, which is their unit."""
    columns = y.reshape(len(y), -1)
    constant = np.flatnonzero(columns.std(0) <= 1e-12 * np.abs(columns.mean(0)))
    if len(constant):
        value, which = columns[0, constant[0]], f" in column {constant[0]}" if y.ndim == 2 else ""
        raise ValueError(f"y must have at least two different values, got only {value}{which}")
