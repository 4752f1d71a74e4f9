"""Estimators for rows in groups."""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metaprior as mp
from metaprior.sklearn import MetaClassifier, MetaRegressor, group_prior

SMALL: dict[str, Any] = {"hidden": (6,), "draws": 6, "steps": 90, "random_state": 0}
GROUPS, ROWS = 12, 10


def table(seed: int = 0, groups: int = GROUPS, rows: int = ROWS) -> tuple[Any, Any, Any]:
    """Return rows of groups that differ in level and slope, far from unit size."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"shop {number}" for number in range(groups)], rows)
    level, slope = (np.repeat(rng.normal(0, 1, groups), rows) for _ in range(2))
    x = rng.uniform(-2, 2, (groups * rows, 2))
    y = level + (1 + 0.5 * slope) * x[:, 0] + 0.3 * rng.normal(size=groups * rows)
    order = rng.permutation(len(y))
    return (1000 + 100 * x)[order], (50 * y)[order], labels[order]


X, Y, LABELS = table()
KINDS = np.where(np.median(Y) < Y, "high", "low")


@pytest.fixture(scope="module")
def regressor() -> MetaRegressor:
    """Return a regressor with draws of the prior."""
    return MetaRegressor(**SMALL).fit(X, Y, groups=LABELS)


@pytest.fixture(scope="module")
def point() -> MetaRegressor:
    """Return a regressor with a point."""
    return MetaRegressor(**{**SMALL, "prior": "point"}).fit(X, Y, groups=LABELS)


@pytest.fixture(scope="module", params=["draws", "point"])
def classifier(request: pytest.FixtureRequest) -> MetaClassifier:
    """Return a classifier."""
    return MetaClassifier(**{**SMALL, "prior": request.param}).fit(X, KINDS, groups=LABELS)


@pytest.fixture(params=["draws", "point"])
def either(request: pytest.FixtureRequest, regressor: MetaRegressor, point: MetaRegressor) -> MetaRegressor:
    """Return a regressor with each kind of prior."""
    return regressor if request.param == "draws" else point


@pytest.fixture
def routing() -> Iterator[None]:
    """Turn metadata routing on."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# --- what is forecast -------------------------------------------------------------------------------------------------


def test_known_groups_are_forecast_from_their_own_rows(either: MetaRegressor) -> None:
    own = LABELS == "shop 3"
    adapted = either.adapt(X[own], Y[own])
    assert adapted.n_rows == ROWS
    np.testing.assert_array_equal(either.predict(X[:9], groups=["shop 3"] * 9), adapted.predict(X[:9]))


def test_rows_of_several_groups_have_the_forecasts_that_each_group_has_alone(either: MetaRegressor) -> None:
    asked = np.array(["shop 1", "never seen", "shop 2", "shop 1", "other", "shop 2"])
    together = either.forecast(X[:6], groups=asked)
    for label in set(asked):
        rows = asked == label
        alone = either.forecast(X[:6][rows], groups=asked[rows])
        np.testing.assert_allclose(together.mean[rows], alone.mean, rtol=1e-12)
        np.testing.assert_allclose(together.std[rows], alone.std, rtol=1e-12)
        np.testing.assert_allclose(together.quantile(0.9)[rows], alone.quantile(0.9), rtol=1e-7)
        np.testing.assert_allclose(together.log_prob(Y[:6])[rows], alone.log_prob(Y[:6][rows]), rtol=1e-9)


def test_rows_without_a_known_group_are_of_a_new_one(either: MetaRegressor) -> None:
    new = either.predict(X[:5], return_std=True)
    np.testing.assert_allclose(
        new, either.predict(X[:5], groups=["a", "b", "c", "d", "e"], return_std=True), rtol=1e-12
    )
    known = either.predict(X[:5], groups=LABELS[:5], return_std=True)
    assert np.mean(known[1]) < 0.8 * np.mean(new[1])


def test_groups_explain_what_inputs_do_not(either: MetaRegressor) -> None:
    x, y, labels = table()
    unseen = MetaRegressor(**{**SMALL, "prior": either.prior}).fit(x[:80], y[:80], groups=labels[:80])
    assert unseen.score(x[80:], y[80:], groups=labels[80:]) > 0.8 > 0.7 > unseen.score(x[80:], y[80:])


def test_adding_groups_is_adapting_to_them(regressor: MetaRegressor) -> None:
    other = pickle.loads(pickle.dumps(regressor))
    x, y, _ = table(seed=1, groups=1)
    other.add_groups(x[:4], y[:4], ["new"] * 4)
    np.testing.assert_array_equal(other.predict(x, groups=["new"] * 10), regressor.adapt(x[:4], y[:4]).predict(x))
    other.add_groups(x[4:], y[4:], ["new"] * 6)
    np.testing.assert_array_equal(other.predict(x, groups=["new"] * 10), regressor.adapt(x, y).predict(x))
    assert other.groups_ == [*regressor.groups_, "new"]


def test_intervals_hold_what_they_say_with_five_groups() -> None:
    known, new, before, after = [], [], [], []
    for seed in range(2):
        x, y, labels = table(seed, groups=25)
        few, others = np.isin(labels, [f"shop {number}" for number in range(5)]), labels == "shop 5"
        learned, asked = few & (np.arange(250) < 150), few & (np.arange(250) >= 150)
        fitted = MetaRegressor((6,), draws=8, steps=250, random_state=0)
        fitted.fit(x[learned], y[learned], groups=labels[learned])
        known.append(inside(y[asked], *fitted.predict_interval(x[asked], groups=labels[asked])))
        new.append(inside(y[~few], *fitted.predict_interval(x[~few], groups=labels[~few])))
        before.append(fitted.predict(x[others], return_std=True)[1])
        after.append(fitted.adapt(x[others][:5], y[others][:5]).predict(x[others], return_std=True)[1])
    assert 0.8 < np.mean(np.concatenate(known)) < 0.99
    assert np.mean(np.concatenate(new)) > 0.85
    assert np.mean(after) < 0.7 * np.mean(before)


def inside(y: Any, low: Any, high: Any) -> Any:
    """Return which targets lie within their interval."""
    return (low < y) & (y < high)


def test_quantiles_and_intervals_agree(either: MetaRegressor) -> None:
    low, high = either.predict_interval(X[:4], level=0.8, groups=LABELS[:4])
    np.testing.assert_array_equal(low, either.predict_quantile(X[:4], (1 - 0.8) / 2, groups=LABELS[:4]))
    np.testing.assert_array_equal(high, either.predict_quantile(X[:4], (1 + 0.8) / 2, groups=LABELS[:4]))
    adapted = either.adapt(X[:3], Y[:3])
    np.testing.assert_array_equal(adapted.predict_interval(X[:4])[1], adapted.predict_quantile(X[:4], 0.95))


def test_units_and_names_of_groups_change_nothing(regressor: MetaRegressor) -> None:
    number = np.unique(LABELS, return_inverse=True)[1]
    other = MetaRegressor(**SMALL).fit(X / 1000 - 3, Y * 1e3 + 7, groups=number)
    np.testing.assert_allclose(
        other.predict(X / 1000 - 3, groups=number), 1e3 * regressor.predict(X, groups=LABELS) + 7, rtol=1e-5
    )


def test_without_groups_all_rows_are_of_one() -> None:
    fitted = MetaRegressor(**SMALL).fit(X, Y)
    assert fitted.groups_ is None
    one = MetaRegressor(**SMALL).fit(X, Y, groups=["all"] * len(Y))
    np.testing.assert_array_equal(fitted.predict(X), one.predict(X, groups=["all"] * len(Y)))


def test_a_linear_model_is_as_good_as_a_mixed_linear_model() -> None:
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    x, y, labels = table(groups=20, rows=16)
    train, test = np.arange(160), np.arange(160, 320)
    inputs = np.column_stack([np.ones(320), (x - 1000) / 100])
    found = mixed.MixedLM(y[train] / 50, inputs[train], labels[train], exog_re=inputs[train][:, :2]).fit()
    effects = np.array([found.random_effects[label] for label in labels[test]])
    linear = 50 * (inputs[test] @ found.fe_params + (inputs[test][:, :2] * effects).sum(1))
    ours = MetaRegressor((), draws=8, steps=200, random_state=0).fit(x[train], y[train], groups=labels[train])
    errors = [np.sqrt(np.mean((own - y[test]) ** 2)) for own in (ours.predict(x[test], groups=labels[test]), linear)]
    assert errors[0] < 1.05 * errors[1]


# --- labels -----------------------------------------------------------------------------------------------------------


def test_classes_keep_their_names(classifier: MetaClassifier) -> None:
    assert classifier.classes_.tolist() == ["high", "low"]
    p = classifier.predict_proba(X, groups=LABELS)
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(classifier.predict(X, groups=LABELS), classifier.classes_[p.argmax(1)])
    assert classifier.score(X, KINDS, groups=LABELS) > 0.85
    adapted = classifier.adapt(X[:6], KINDS[:6])
    assert set(adapted.predict(X)) <= {"high", "low"}
    assert adapted.predict_proba(X[:3]).shape == (3, 2)


def test_three_classes() -> None:
    kinds = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10
    fitted = MetaClassifier(**SMALL).fit(X, kinds, groups=LABELS)
    assert fitted.predict_proba(X, groups=LABELS).shape == (len(X), 3)
    assert fitted.score(X, kinds, groups=LABELS) > 0.75
    assert fitted.forecast(X[:3], groups=LABELS[:3]).entropy.shape == (3,)


def test_groups_whose_labels_are_all_the_same_are_learned_from(classifier: MetaClassifier) -> None:
    kinds = np.where(np.isin(LABELS, ["shop 0", "shop 1"]), "low", KINDS)
    fitted = MetaClassifier(**{**SMALL, "prior": classifier.prior}).fit(X, kinds, groups=LABELS)
    p = fitted.predict_proba(X[:8], groups=["shop 0"] * 8)
    assert 0.5 < p[:, 1].mean() < 0.999


def test_labels_of_new_rows_must_be_known(classifier: MetaClassifier) -> None:
    with pytest.raises(ValueError, match=r"y must have labels of fit, .*, got 'middle'"):
        classifier.adapt(X[:2], ["low", "middle"])


# --- as scikit-learn asks ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("routing")
def test_groups_are_routed() -> None:
    routed = MetaRegressor(**SMALL).set_fit_request(groups=True).set_score_request(groups=True)
    known = cross_val_score(routed, X, Y, cv=KFold(3, shuffle=True, random_state=0), params={"groups": LABELS})
    new = cross_val_score(routed, X, Y, cv=GroupKFold(3), params={"groups": LABELS})
    assert min(known) > 0.8 > np.mean(new)


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_through_a_pipeline_and_a_search() -> None:
    routed = MetaRegressor(**SMALL)
    routed.set_fit_request(groups=True).set_predict_request(groups=True).set_score_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), routed)
    search = GridSearchCV(pipeline, {"metaregressor__hidden": [(), (3,)]}, cv=GroupKFold(2))
    search.fit(X, Y, groups=LABELS)
    assert set(search.best_params_) == {"metaregressor__hidden"}
    fitted = search.best_estimator_
    assert fitted.score(X, Y, groups=LABELS) > 0.9 > fitted.score(X, Y)
    assert fitted.predict(X[:3], groups=LABELS[:3]).shape == (3,)


@pytest.mark.usefixtures("routing")
def test_the_labels_of_a_classifier_are_routed() -> None:
    routed = MetaClassifier(**SMALL).set_fit_request(groups=True).set_score_request(groups=True)
    assert np.mean(cross_val_score(routed, X, KINDS, cv=KFold(2), params={"groups": LABELS})) > 0.7


def test_the_same_seed_gives_the_same_forecasts_and_leaves_torch_alone(either: MetaRegressor) -> None:
    before = torch.get_rng_state()
    again = clone(either).fit(X, Y, groups=LABELS)
    np.testing.assert_array_equal(again.predict(X, groups=LABELS), either.predict(X, groups=LABELS))
    assert torch.equal(before, torch.get_rng_state())
    assert not np.array_equal(clone(either).set_params(random_state=1).fit(X, Y, LABELS).predict(X), either.predict(X))


def test_a_regressor_is_pickled_without_its_modules(either: MetaRegressor, tmp_path: Path) -> None:
    check_pickles(either, Y, tmp_path)


def test_a_classifier_is_pickled_without_its_modules(classifier: MetaClassifier, tmp_path: Path) -> None:
    check_pickles(classifier, KINDS, tmp_path)


class Names(pickle.Unpickler):
    """Collects the modules and names of what a pickle refers to."""

    found: list[str]

    @classmethod
    def of(cls, content: bytes) -> list[str]:
        """Return the names in a pickle."""
        reader = cls(io.BytesIO(content))
        reader.found = []
        reader.load()
        return reader.found

    def find_class(self, module: str, name: str) -> Any:
        """Note what is asked for."""
        self.found.append(f"{module}.{name}")
        return super().find_class(module, name)


def check_pickles(fitted: Any, y: Any, folder: Path) -> None:
    """Check that a fitted estimator, and one of its groups, are restored bitwise."""
    content = pickle.dumps(fitted)
    assert not [name for name in Names.of(content) if name.startswith("torch") or "etwork" in name]
    joblib.dump(fitted, folder / "fitted.joblib")
    for restored in (pickle.loads(content), joblib.load(folder / "fitted.joblib")):
        np.testing.assert_array_equal(restored.predict(X, groups=LABELS), fitted.predict(X, groups=LABELS))
        np.testing.assert_array_equal(restored.predict(X), fitted.predict(X))
    adapted = fitted.adapt(X[:3], y[:3])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(adapted)).predict(X), adapted.predict(X))


def test_frames_keep_their_names() -> None:
    frame = pd.DataFrame(X, columns=["wind", "size"])
    fitted = MetaRegressor(**SMALL).fit(frame, pd.Series(Y), groups=pd.Series(LABELS, dtype="category"))
    assert fitted.feature_names_in_.tolist() == ["wind", "size"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"wind": "win"}))
    np.testing.assert_array_equal(
        fitted.predict(frame, groups=LABELS), MetaRegressor(**SMALL).fit(X, Y, LABELS).predict(X, groups=LABELS)
    )
    assert "MetaRegressor" in fitted._repr_html_()


def test_another_adaptation_is_an_argument() -> None:
    fitted = MetaRegressor((6,), adaptation=mp.Descent(steps=2), steps=30, random_state=0).fit(X, Y, groups=LABELS)
    assert fitted.prior_ == "point"
    together = fitted.forecast(X[:4], groups=["shop 1", "shop 2", "shop 2", "new"])
    assert together.std.shape == (4,)


def test_many_groups_are_learned_from_as_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_prior, "GROUPS_OF_A_POINT", 50)
    x, y, labels = table(groups=60, rows=35)
    fitted = MetaRegressor(**{**SMALL, "steps": 30}).fit(x, y, groups=labels)
    assert fitted.prior_ == "point"
    assert fitted._learner.calibration_ is not None
    few = MetaRegressor(**{**SMALL, "steps": 30}).fit(x, y, groups=np.arange(len(y)) % 3)
    assert few.prior_ == "draws"


def test_groups_of_one_row() -> None:
    labels = np.arange(len(Y))
    for prior in ("draws", "point"):
        fitted = MetaRegressor(**{**SMALL, "prior": prior, "steps": 60}).fit(X, Y, groups=labels)
        assert np.isfinite(fitted.predict(X, groups=labels)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "exact"}, "prior must be 'auto', 'draws' or 'point', got 'exact'"),
        ({"hidden": 16}, r"hidden must be widths such as \(50, 50\) or \(\), got 16"),
        ({"hidden": (0,)}, r"hidden must be widths such as \(50, 50\) or \(\), got \(0,\)"),
        ({"activation": "sine"}, "activation must be one of relu, silu, tanh, got 'sine'"),
        ({"adaptation": "descent"}, "adaptation must be 'closed_form' or one like metaprior.Descent"),
        ({"adaptation": mp.Descent(), "prior": "draws"}, "adaptation must be 'closed_form' with prior='draws'"),
        ({"draws": 1}, "draws must be an integer of at least 2, got 1"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
    ],
)
def test_arguments_are_checked_by_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetaRegressor(**{**SMALL, **settings}).fit(X, Y)


def test_groups_are_checked(regressor: MetaRegressor) -> None:
    with pytest.raises(ValueError, match=r"groups must be 3 labels, one for each row of X, got the shape \(2,\)"):
        regressor.predict(X[:3], groups=["a", "b"])
    with pytest.raises(ValueError, match="got 1 missing ones, first in row 1"):
        MetaRegressor(**SMALL).fit(X[:3], Y[:3], groups=["a", None, "b"])
    without = MetaRegressor(**{**SMALL, "steps": 20}).fit(X, Y)
    with pytest.raises(ValueError, match="groups must be None, because fit was called without groups"):
        without.predict(X, groups=LABELS)
    with pytest.raises(ValueError, match="groups must have been given to fit"):
        without.adapt(X, Y)


def test_labels_of_another_type_are_warned_of(regressor: MetaRegressor) -> None:
    with pytest.warns(
        UserWarning, match="no group of these rows is known: labels are of type int, those of fit of type"
    ):
        regressor.predict(X[:3], groups=[1, 2, 3])
