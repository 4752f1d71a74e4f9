"""Estimators for one table."""

import copy
import io
import pickle
import pickletools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import metaprior as mp
from metaprior.sklearn import BayesClassifier, BayesRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "members": 2, "steps": 150, "samples": 20, "random_state": 0}
Either = type[BayesRegressor] | type[BayesClassifier]


def table(rows: int = 120, seed: int = 0) -> tuple[Any, Any]:
    """Return inputs and targets far from unit size, with more noise where the second input is large."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    y = 3 * x[:, 0] + np.exp(x[:, 1] - 1) * rng.normal(size=rows)
    return 50 + 10 * x, 1000 + 100 * y


X, Y = table()
LABELS = np.array(["high", "low", "medium"])[np.digitize(-X[:, 0], [-53, -47])]
FRAME = pd.DataFrame({"width": X[:, 0], "height": X[:, 1], "kind": np.where(X[:, 1] > 50, "tall", "flat")})


@pytest.fixture(scope="module")
def regressor() -> BayesRegressor:
    """Return a fitted regressor."""
    return BayesRegressor(**SMALL).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> BayesClassifier:
    """Return a fitted classifier."""
    return BayesClassifier(**SMALL).fit(X, LABELS)


@pytest.fixture(scope="module", params=["regressor", "classifier"])
def either(request: pytest.FixtureRequest) -> Any:
    """Return each of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def routing() -> Iterator[None]:
    """Turn metadata routing on."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def certain(estimator: Any, x: Any = X[:20]) -> Any:
    """Return all that is known about the rows, as one array."""
    if isinstance(estimator, BayesClassifier):
        return estimator.predict_proba(x)
    return np.stack([*estimator.predict(x, return_std=True), *estimator.predict_interval(x)])


# --- what is forecast -------------------------------------------------------------------------------------------------


def test_intervals_cover_what_they_say_where_the_noise_depends_on_the_inputs() -> None:
    x, y = table(400)
    model = BayesRegressor(hidden=(16,), members=3, steps=600, random_state=0).fit(x, y)
    new, truth = table(2000, seed=1)
    low, high = model.predict_interval(new)
    held = (low < truth) & (truth < high)
    quiet = new[:, 1] < 50
    assert held.mean() == pytest.approx(0.9, abs=0.03)
    assert held[quiet].mean() == pytest.approx(0.9, abs=0.06)
    assert held[~quiet].mean() == pytest.approx(0.9, abs=0.06)
    assert np.mean((high - low)[quiet]) < 0.7 * np.mean((high - low)[~quiet])
    assert model.score(new, truth) > 0.85
    assert model.calibrated_


def test_intervals_quantiles_and_the_forecast_agree(regressor: BayesRegressor) -> None:
    forecast, (low, high) = regressor.forecast(X), regressor.predict_interval(X, level=0.5)
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, forecast.mean)
    np.testing.assert_array_equal(std, forecast.std)
    np.testing.assert_allclose(low, regressor.predict_quantile(X, 0.25), rtol=1e-12)
    np.testing.assert_allclose([low, high], regressor.predict_quantile(X, [0.25, 0.75]), rtol=1e-12)
    np.testing.assert_allclose(forecast.std**2, forecast.epistemic**2 + forecast.aleatoric**2)


def test_probabilities_sum_to_one_and_the_labels_are_the_most_probable(classifier: BayesClassifier) -> None:
    found = classifier.predict_proba(X)
    np.testing.assert_allclose(found.sum(1), 1, rtol=0, atol=1e-15)
    assert classifier.classes_.tolist() == ["high", "low", "medium"]
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[found.argmax(1)])
    assert classifier.score(X, LABELS) > 0.9


def test_each_of_several_targets_has_its_own_forecast() -> None:
    both = np.column_stack([Y, -5 * X[:, 0]])
    model = BayesRegressor(**SMALL).fit(X, both)
    low, high = model.predict_interval(X)
    assert model.predict(X).shape == low.shape == high.shape == both.shape
    assert model.predict_quantile(X, [0.1, 0.5, 0.9]).shape == (3, *both.shape)
    assert model.score(X, both) > 0.8
    assert BayesRegressor(**SMALL).fit(X, Y[:, None]).predict(X).shape == (len(X), 1)


def test_targets_of_other_units_have_the_same_forecast_in_these_units(regressor: BayesRegressor) -> None:
    other = BayesRegressor(**SMALL).fit(0.001 * X - 7, 1e9 * Y)
    np.testing.assert_allclose(certain(other, 0.001 * X - 7), 1e9 * certain(regressor, X), rtol=1e-6)


def test_a_row_of_weight_two_is_there_twice_and_one_of_weight_zero_is_not() -> None:
    weights = np.r_[np.full(40, 2.0), np.zeros(40), np.ones(40)]
    rows = np.repeat(np.arange(len(X)), weights.astype(int))
    full_batch = {**SMALL, "batch_size": 200}
    weighted = BayesRegressor(**full_batch).fit(X, Y, sample_weight=weights)
    repeated = BayesRegressor(**full_batch).fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)
    assert weighted.mixture_ == pytest.approx(repeated.mixture_, rel=1e-4)
    assert np.abs(weighted.predict(X) - BayesRegressor(**full_batch).fit(X, Y).predict(X)).max() > 1


def test_a_last_batch_of_one_row_that_fills_up_does_no_harm() -> None:
    """One of two members learns from 101 rows, the other from 100 and one that does not count; a batch is 100."""
    x, y = table(201)
    assert BayesRegressor(**SMALL).fit(x, y).score(x, y) > 0.7


def test_a_class_of_one_row_has_a_probability() -> None:
    labels = np.array(["usual"] * (len(X) - 1) + ["rare"])
    found = BayesClassifier(**SMALL).fit(X, labels).predict_proba(X)
    assert found.shape == (len(X), 2)
    assert np.all((found[:, 0] > 0) & (found[:, 0] < 0.5))


# --- settings ---------------------------------------------------------------------------------------------------------


def test_two_ensembles_are_mixed_by_the_rows_that_were_left_out(regressor: BayesRegressor) -> None:
    assert list(regressor.mixture_) == [(0.2, 1.0), (0.5, 0.3)]
    assert sum(regressor.mixture_.values()) == pytest.approx(1)
    assert regressor.calibrated_
    assert regressor.n_iter_ == 2 * SMALL["steps"] == sum(record.steps for record in regressor.history_)


@pytest.mark.parametrize(
    ("settings", "rows"), [({"members": 1}, 120), ({"calibrate": False}, 120), ({}, 19), ({"early_stopping": True}, 20)]
)
def test_without_calibration_there_is_one_ensemble_that_learns_from_all_rows(
    settings: dict[str, Any], rows: int
) -> None:
    model = BayesRegressor(**{**SMALL, **settings}).fit(X[:rows], Y[:rows])
    assert not model.calibrated_
    assert model.mixture_ == {(0.5, 0.3): 1.0}
    assert model.n_iter_ <= SMALL["steps"]


def test_copies_of_few_rows_are_not_enough_to_leave_some_out() -> None:
    model = BayesRegressor(**SMALL).fit(np.repeat(X[:5], 20, axis=0), np.repeat(Y[:5], 20))
    assert not model.calibrated_


def test_settings_that_are_given_make_one_ensemble() -> None:
    model = BayesRegressor(**SMALL, temperature=1.0, prior_std=0.5).fit(X, Y)
    assert model.mixture_ == {(1.0, 0.5): 1.0}
    assert model.calibrated_
    colder = BayesRegressor(**SMALL, temperature=0.1).fit(X, Y)
    assert list(colder.mixture_) == [(0.1, 1.0), (0.1, 0.3)]


def test_early_stopping_stops_early() -> None:
    rng = np.random.default_rng(0)
    noise = BayesRegressor(**{**SMALL, "steps": 400, "lr": 0.05}, early_stopping=True, patience=5)
    noise.fit(rng.normal(size=(60, 5)), rng.normal(size=60))
    assert noise.n_iter_ < 2 * 400
    assert all(record.validation is not None for record in noise.history_)


def test_a_default_fit_takes_three_thousand_steps_or_twenty_passes() -> None:
    from metaprior.sklearn.table_settings import TableSettings

    settings = TableSettings.of(BayesRegressor())
    assert [settings.steps_of(rows) for rows in (10, 15_000, 15_001, 100_000)] == [3000, 3000, 3020, 20_000]


def deep(inputs: int, outputs: int) -> nn.Module:
    """Return a network in single precision."""
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, outputs))


@pytest.mark.parametrize("kind", [BayesRegressor, BayesClassifier])
def test_a_network_of_ones_own(kind: Either) -> None:
    model = kind(**SMALL, module=deep).fit(X, LABELS if kind is BayesClassifier else Y)
    assert model.score(X, LABELS if kind is BayesClassifier else Y) > 0.7
    np.testing.assert_array_equal(certain(pickle.loads(pickle.dumps(model))), certain(model))
    assert model.get_params()["module"] is clone(model).module is deep


def test_limits_of_a_likelihood_are_in_the_units_of_the_targets() -> None:
    y = np.clip(Y, 900, 1200)
    model = BayesRegressor(**SMALL, likelihood=mp.CensoredGaussian(lower=900, upper=1200)).fit(X, y)
    low, high = model.predict_interval(X)
    assert low.min() == 900
    assert high.max() == 1200
    with pytest.raises(ValueError, match=r"targets must lie between lower=900.0 and upper=1100.0, got 1"):
        BayesRegressor(**SMALL, likelihood=mp.CensoredGaussian(lower=900, upper=1100)).fit(X, y)


def test_counts_have_whole_quantiles() -> None:
    counts = np.random.default_rng(0).poisson(np.exp((X[:, 0] - 40) / 10))
    model = BayesRegressor(**SMALL, likelihood=mp.Poisson()).fit(X, counts)
    assert model.score(X, counts) > 0.4
    bounds = np.stack(model.predict_interval(X))
    np.testing.assert_array_equal(bounds, bounds.round())
    assert bounds.min() >= 0


@pytest.mark.parametrize("likelihood", [mp.Gaussian(), mp.Gaussian(noise=50.0), mp.StudentT(), mp.Quantiles()])
def test_likelihoods_of_real_targets(likelihood: mp.Likelihood) -> None:
    model = BayesRegressor(**SMALL, likelihood=likelihood).fit(X, Y)
    assert model.score(X, Y) > 0.7
    np.testing.assert_array_equal(certain(pickle.loads(pickle.dumps(model))), certain(model))


# --- in scikit-learn --------------------------------------------------------------------------------------------------


def test_settings_are_searched_also_those_in_arrays() -> None:
    grid = {"temperature": [0.5, "auto"], "members": np.arange(1, 3), "steps": np.array([20])}
    search = GridSearchCV(BayesRegressor(**SMALL), grid, cv=2).fit(X, Y)
    assert set(search.best_params_) == set(grid)
    assert search.predict(X).shape == Y.shape


def test_cross_validation() -> None:
    assert cross_val_score(BayesRegressor(**{**SMALL, "members": 1}), X, Y, cv=3).min() > 0.6
    found = cross_val_predict(BayesClassifier(**SMALL), X, LABELS, cv=3, method="predict_proba")
    assert found.shape == (len(X), 3)
    assert (np.unique(LABELS)[found.argmax(1)] == LABELS).mean() > 0.8


def test_a_pipeline_from_text_to_intervals() -> None:
    encode = ColumnTransformer([("kind", OneHotEncoder(sparse_output=False), ["kind"])], remainder=StandardScaler())
    for columns in (encode, encode.set_output(transform="pandas")):
        model = make_pipeline(columns, BayesRegressor(**SMALL)).fit(FRAME, Y)
        assert model.score(FRAME, Y) > 0.7
        low, high = model[-1].predict_interval(model[:-1].transform(FRAME))
        assert np.all(low < high)
    assert model[-1].feature_names_in_.tolist()[-2:] == ["remainder__width", "remainder__height"]
    mean, std = model.predict(FRAME, return_std=True)
    assert mean.shape == std.shape == Y.shape


def test_scaling_in_front_changes_nothing(regressor: BayesRegressor) -> None:
    scaled = make_pipeline(StandardScaler(), BayesRegressor(**SMALL)).fit(X, Y)
    np.testing.assert_allclose(scaled.predict(X), regressor.predict(X), rtol=1e-6)


def test_other_estimators_take_it_in() -> None:
    fast = {**SMALL, "members": 1, "lr": 0.03}
    calibrated = CalibratedClassifierCV(BayesClassifier(**fast), cv=2).fit(X, LABELS)
    assert calibrated.score(X, LABELS) > 0.8
    own = [("bayes", BayesRegressor(**fast)), ("ridge", Ridge())]
    assert StackingRegressor(own, Ridge(), cv=2).fit(X, Y).score(X, Y) > 0.7
    both = [("bayes", BayesClassifier(**fast)), ("linear", LogisticRegression())]
    assert StackingClassifier(both, LogisticRegression(), cv=2).fit(X, LABELS).score(X, LABELS) > 0.8


def test_weights_are_routed_through_a_pipeline(routing: None) -> None:
    weights = np.where(X[:, 0] > 50, 1.0, 0.0)
    own = BayesRegressor(**SMALL).set_fit_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    routed = make_pipeline(scaler, own).fit(X, Y, sample_weight=weights)
    alone = BayesRegressor(**SMALL).fit(StandardScaler().fit_transform(X), Y, sample_weight=weights)
    np.testing.assert_array_equal(routed.predict(X), alone.predict(StandardScaler().fit_transform(X)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_have_names(frame: Callable[..., Any], regressor: BayesRegressor) -> None:
    columns = {"width": X[:, 0], "height": X[:, 1]}
    named = BayesRegressor(**SMALL).fit(frame(columns), pd.Series(Y))
    assert named.feature_names_in_.tolist() == ["width", "height"]
    np.testing.assert_array_equal(certain(named, frame(columns)), certain(regressor, X))
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        named.predict(frame({"height": X[:, 1], "width": X[:, 0]}))


def test_settings_are_read_set_cloned_and_shown(either: Any) -> None:
    other = clone(either).set_params(hidden=(3, 3), likelihood=None)
    assert other.get_params() == {**either.get_params(), "hidden": (3, 3)}
    assert "hidden=(3, 3)" in repr(other)
    assert type(either).__name__ in either._repr_html_()
    with pytest.raises(ValueError, match="Invalid parameter 'widths'"):
        other.set_params(widths=3)


# --- state ------------------------------------------------------------------------------------------------------------


def test_a_fit_depends_on_the_seed_alone(either: Any) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    again = clone(either).fit(X, Y if isinstance(either, BayesRegressor) else LABELS)
    np.testing.assert_array_equal(certain(again), certain(either))
    np.testing.assert_array_equal(certain(again), certain(again))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 1
    other = clone(either).set_params(random_state=1).fit(X, Y if isinstance(either, BayesRegressor) else LABELS)
    assert np.abs(certain(other) - certain(either)).max() > 1e-3


def test_a_random_state_goes_on() -> None:
    state = np.random.RandomState(0)
    first, second = (BayesRegressor(**{**SMALL, "random_state": state}).fit(X, Y) for _ in range(2))
    assert not np.array_equal(certain(first), certain(second))
    again = BayesRegressor(**{**SMALL, "random_state": np.random.RandomState(0)}).fit(X, Y)
    np.testing.assert_array_equal(certain(first), certain(again))


def test_what_was_saved_forecasts_bitwise_the_same(either: Any, tmp_path: Path) -> None:
    joblib.dump(either, tmp_path / "model.joblib")
    for restored in (joblib.load(tmp_path / "model.joblib"), pickle.loads(pickle.dumps(either)), copy.deepcopy(either)):
        np.testing.assert_array_equal(certain(restored), certain(either))
        assert restored.mixture_ == either.mixture_
        assert restored.history_ == either.history_
    np.testing.assert_array_equal(certain(pickle.loads(pickle.dumps(restored))), certain(either))


def test_a_pickle_holds_no_objects_of_torch(either: Any) -> None:
    operations = pickletools.genops(io.BytesIO(pickle.dumps(either, protocol=2)))
    classes = [text for operation, text, _ in operations if operation.name == "GLOBAL"]
    assert any("BayesRegressor" in text or "BayesClassifier" in text for text in classes)
    assert [text for text in classes if "torch" in text] == []


def test_a_fit_that_fails_leaves_nothing_of_the_one_before(regressor: BayesRegressor) -> None:
    other = copy.deepcopy(regressor).set_params(lr=1e9)
    with pytest.raises(mp.TrainingDiverged):
        other.fit(X, Y)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        other.predict(X)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 50}, r"hidden must be widths such as \(50, 50\) or \(\), got 50"),
        ({"hidden": (8, 0)}, r"hidden must be widths such as \(50, 50\) or \(\), got \(8, 0\)"),
        ({"hidden": "50"}, r"hidden must be widths such as \(50, 50\) or \(\), got '50'"),
        ({"members": 0}, "members must be an integer of at least 1, got 0"),
        ({"members": 2.5}, r"members must be an integer of at least 1, got 2\.5"),
        ({"calibrate": "no"}, "calibrate must be True or False, got 'no'"),
        ({"temperature": 0}, "temperature must be 'auto' or a positive number, got 0"),
        ({"temperature": "cold"}, "temperature must be 'auto' or a positive number, got 'cold'"),
        ({"prior_std": float("inf")}, "prior_std must be 'auto' or a positive number, got inf"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"lr": "fast"}, "lr must be a positive number, got 'fast'"),
        ({"early_stopping": "yes"}, "early_stopping must be True or False, got 'yes'"),
        ({"validation_fraction": 1}, "validation_fraction must be a number between 0 and 1, both excluded, got 1"),
        ({"patience": 0}, "patience must be an integer of at least 1, got 0"),
        ({"samples": 1}, "samples must be an integer of at least 2, got 1"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0, got 0"),
        ({"n_jobs": 1.5}, r"n_jobs must be None or an integer other than 0, got 1\.5"),
        ({"likelihood": "gaussian"}, "likelihood must be None or one for the targets of a .*, got 'gaussian'"),
        ({"likelihood": mp.Bernoulli()}, r"likelihood must be None or one for the targets of a .*, got Bernoulli\(\)"),
        ({"module": nn.Linear(2, 2)}, "module must be a function of the numbers .*, got Linear"),
        ({"module": lambda inputs, outputs: None}, "module must be a function .*, got one that returns None"),
    ],
)
@pytest.mark.parametrize("kind", [BayesRegressor, BayesClassifier])
def test_settings_are_checked_by_fit(kind: Either, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**{**SMALL, **settings}).fit(X, LABELS if kind is BayesClassifier else Y)


def test_likelihoods_of_the_other_estimator_are_refused() -> None:
    with pytest.raises(ValueError, match=r"targets of a BayesRegressor, .* got Categorical\(\)"):
        BayesRegressor(likelihood=mp.Categorical()).fit(X, Y)
    with pytest.raises(ValueError, match=r"targets of a BayesClassifier, such as Categorical\(\), got Gaussian"):
        BayesClassifier(likelihood=mp.Gaussian()).fit(X, LABELS)


def test_data_are_checked_by_fit() -> None:
    model = BayesRegressor(**SMALL)
    with pytest.raises(ValueError, match=r"y must have at least two different values, got only 3\.0"):
        model.fit(X, np.full(len(X), 3.0))
    with pytest.raises(ValueError, match=r"y must have at least two different values, got only 0\.1 in column 1"):
        model.fit(X, np.column_stack([Y, np.full(len(X), 0.1)]))
    with pytest.raises(ValueError, match="y must have at least two different values, got only"):
        model.fit(X, Y, sample_weight=np.eye(len(X))[0])
    with pytest.raises(ValueError, match=r"validation_fraction must leave rows on both sides, got 0\.1 of 4 rows"):
        BayesRegressor(**SMALL, early_stopping=True).fit(X[:4], Y[:4])
    with pytest.raises(ValueError, match="y must have at least two classes, got one class, 'one'"):
        BayesClassifier(**SMALL).fit(X, ["one"] * len(X))
    with pytest.raises(ValueError, match="BayesRegressor does not accept missing values"):
        model.fit(np.where(X > 59, np.nan, X), Y)
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got 90"):
        BayesRegressor(**{**SMALL, "steps": 5}).fit(X, Y).predict_interval(X, level=90)


def test_a_column_that_marks_rows_of_tiny_weight_keeps_its_scale() -> None:
    """Its weighted spread is nearly zero; divided by that, its rows would be far from all others."""
    draw = np.random.default_rng(0)
    light = np.arange(200) < 40
    x = np.column_stack([draw.normal(size=200), light, ~light]).astype(float)
    fitted = BayesRegressor(hidden=(4,), members=1, steps=5, random_state=0)
    fitted.fit(x, x[:, 0] + 3 * light, sample_weight=np.where(light, 1e-6, 1.0))
    assert np.abs((x - fitted.x_mean_) / fitted.x_scale_).max() < 10
