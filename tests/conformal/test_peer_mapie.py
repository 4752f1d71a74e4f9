"""The same intervals and sets as MAPIE, from the same forecasts."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from metaprior import conformal
from metaprior.conformal.scores import adaptive_scores
from metaprior.conformal.threshold import threshold
from tests.conformal.made_up import classes, drawn, drawn_labels, normal

pytest.importorskip("mapie", reason="mapie is not installed")
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import APSConformityScore
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

HELD_OUT, NEW = 157, 40
Array = npt.NDArray[Any]


class Column(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted regressor whose prediction is a column of x."""

    def __init__(self, column: int = 0) -> None:
        self.column = column
        self.fitted_ = True

    def fit(self, x: Array, y: Array) -> "Column":
        return self

    def predict(self, x: Array) -> Array:
        return x[:, self.column]


class Probabilities(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose class probabilities are x."""

    def __init__(self, classes: int = 4) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)

    def fit(self, x: Array, y: Array) -> "Probabilities":
        return self

    def predict_proba(self, x: Array) -> Array:
        return x

    def predict(self, x: Array) -> Array:
        return x.argmax(1)


def numbers() -> tuple[Tensor, Tensor, Tensor]:
    mean, std = drawn(HELD_OUT + NEW), 0.3 + drawn(HELD_OUT + NEW, seed=1).abs()
    return mean, std, mean + std * drawn(HELD_OUT + NEW, seed=2)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_quantiles(level: float) -> None:
    mean, std, y = numbers()
    forecast = [normal(mean[part], std[part]) for part in (slice(HELD_OUT), slice(HELD_OUT, None))]
    columns = [
        torch.stack([*own.quantile([(1 - level) / 2, (1 + level) / 2]), own.mean], 1).numpy() for own in forecast
    ]
    peer = ConformalizedQuantileRegressor([Column(0), Column(1), Column(2)], confidence_level=level, prefit=True)
    peer.conformalize(columns[0], y[:HELD_OUT].numpy())
    _, expected = peer.predict_interval(columns[1], symmetric_correction=True)
    low, high = conformal.intervals(forecast[0], y[:HELD_OUT], level).interval(forecast[1])
    np.testing.assert_allclose(low, expected[:, 0, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(high, expected[:, 1, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_standardised_residuals_are_the_absolute_ones_of_standardised_targets(level: float) -> None:
    mean, std, y = numbers()
    peer = SplitConformalRegressor(Column(), confidence_level=level, conformity_score="absolute", prefit=True)
    peer.conformalize((mean / std)[:HELD_OUT, None].numpy(), (y / std)[:HELD_OUT].numpy())
    _, expected = peer.predict_interval((mean / std)[HELD_OUT:, None].numpy())
    found = conformal.intervals(normal(mean[:HELD_OUT], std[:HELD_OUT]), y[:HELD_OUT], level, score="std")
    low, high = found.interval(normal(mean[HELD_OUT:], std[HELD_OUT:]))
    np.testing.assert_allclose(low, std[HELD_OUT:].numpy() * expected[:, 0, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(high, std[HELD_OUT:].numpy() * expected[:, 1, 0], rtol=1e-9, atol=1e-12)


def labels() -> tuple[Tensor, Tensor]:
    probabilities = (1.5 * drawn(HELD_OUT + NEW, 4)).softmax(1)
    return probabilities, drawn_labels(probabilities)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_least_ambiguous_sets(level: float) -> None:
    p, y = labels()
    peer = SplitConformalClassifier(Probabilities(), confidence_level=level, conformity_score="lac", prefit=True)
    peer.conformalize(p[:HELD_OUT].numpy(), y[:HELD_OUT].numpy())
    _, expected = peer.predict_set(p[HELD_OUT:].numpy())
    found = conformal.sets(classes(p[:HELD_OUT]), y[:HELD_OUT], level, score="lac").sets(classes(p[HELD_OUT:]))
    np.testing.assert_array_equal(found, expected[:, :, 0])


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_adaptive_sets_with_the_same_random_numbers(level: float) -> None:
    """MAPIE subtracts u times the probability from the sum that includes the class; u here is 1 - u there."""
    p, y = labels()
    peer = APSConformityScore()
    peer.set_external_attributes(classes=np.arange(4), random_state=5)
    scores = peer.get_conformity_scores(y[:HELD_OUT].numpy(), p[:HELD_OUT].numpy(), y[:HELD_OUT].numpy())
    u = torch.from_numpy(1 - np.random.RandomState(5).uniform(size=HELD_OUT))
    own = adaptive_scores(p[:HELD_OUT], u).gather(1, y[:HELD_OUT, None])
    np.testing.assert_allclose(own, scores, rtol=1e-12)

    alpha = np.array([1 - level])
    peer.quantiles_ = peer.get_conformity_score_quantiles(scores, alpha, "prefit")
    limit = float(threshold(own[:, 0], level))
    assert limit == pytest.approx(float(peer.quantiles_[0]), rel=1e-12)
    expected = peer.get_prediction_sets(
        p[HELD_OUT:, :, None].numpy(), scores, alpha, "prefit", include_last_label="randomized"
    )
    u = torch.from_numpy(1 - np.random.RandomState(5).uniform(size=NEW))
    np.testing.assert_array_equal(adaptive_scores(p[HELD_OUT:], u) <= limit, expected[:, :, 0])
    assert math.isfinite(limit)
