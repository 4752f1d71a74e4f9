"""Weights of observations: a weight of k is the same as k copies."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.methods.fit_data import hold_out
from metaprior.minibatches import ShuffledData, WeightedExamples
from metaprior.scaling import TargetMoments
from metaprior.stack_descent import FreeEnergy
from metaprior.tasks.task import Examples
from tests.methods.made_up import assert_same_fit, method, plane, small_net

WHOLE: dict[str, Any] = {"steps": 15, "batch_size": 1000, "progress": False}
COUNTS = torch.tensor([2, 0, 1, 3, 1, 1] * 5)


def repeated(*parts: Tensor) -> list[Tensor]:
    return [part.repeat_interleave(COUNTS, 0) for part in parts]


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("likelihood", [mp.Gaussian(), mp.Gaussian(noise=0.5), mp.Gaussian(per_channel=True)])
def test_integer_weights_are_repetitions(likelihood: mp.Likelihood, standardize: bool) -> None:
    x, y = plane()
    expected = method(likelihood, standardize=standardize).fit(*repeated(x, y), **WHOLE)
    found = method(likelihood, standardize=standardize).fit(x, y, sample_weight=COUNTS.numpy(), **WHOLE)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)
    for one, other in zip(expected.history_, found.history_, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-10)
        assert other.observations == one.observations == 40


def test_integer_weights_are_repetitions_of_labels_and_of_incomplete_targets() -> None:
    x, y = plane()
    labels = (y > 4).long()
    expected = method(mp.Categorical(), module=small_net(2)).fit(*repeated(x, labels), **WHOLE)
    found = method(mp.Categorical(), module=small_net(2)).fit(x, labels, sample_weight=COUNTS, **WHOLE)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)
    two = torch.stack([y, x[:, 0]], 1)
    two[::4, 0], two[::6] = torch.nan, torch.nan  # a part, and a row of weight 2, which is dropped with its weight
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = method(module=small_net(2)).fit(*repeated(x, two), **WHOLE)
        found = method(module=small_net(2)).fit(x, two, sample_weight=COUNTS, **WHOLE)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)
    assert found.history_[0].observations == 30


def test_an_observation_of_weight_zero_has_no_influence() -> None:
    x, y = plane()
    weights = torch.ones(31)
    weights[30] = 0
    expected = method().fit(x, y, **WHOLE)
    found = method().fit(torch.cat([x, x[:1]]), torch.cat([y, y[:1] + 1e6]), sample_weight=weights, **WHOLE)
    assert_same_fit(expected, found, rtol=1e-10, atol=1e-12)


def test_minibatches_sum_to_the_whole_free_energy() -> None:
    x, y = plane()
    weights, network = torch.rand(30, dtype=torch.float64), mp.BayesianNetwork(small_net())
    data, q = Examples(x, y.unsqueeze(1)), network.initial()
    energy, phis = FreeEnergy(network, mp.Gaussian(noise=0.5)), q.mu[None, None]
    batches = ShuffledData([data], [0], 7, "uniform", mp.Noise(0), weights=weights[None])
    assert float(batches.observations) == pytest.approx(float(weights.sum()))
    one_pass = [batch for batch, _ in zip(batches, range(batches.count), strict=False)]
    found = sum(float(energy.nll(phis, batch.examples, {}, batch.weights)) for batch in one_pass)
    residual = (y - network(q.mu, {}, x)[:, 0]) / 0.5
    expected = weights @ (0.5 * residual**2 + np.log(0.5 * np.sqrt(2 * np.pi)))
    assert found == pytest.approx(float(expected), rel=1e-10)


def test_large_weights_narrow_the_posterior_as_that_much_data_would() -> None:
    """A conjugate linear model: the precision of a weight is w * sum(x^2) / s^2 + 1."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 1, dtype=torch.float64, generator=generator)
    for weight in (1.0, 9.0):
        torch.manual_seed(0)
        linear = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
        bnn = mp.BayesByBackprop(linear, mp.Gaussian(noise=1.0), standardize=False)
        fit = {"steps": 600, "samples": 16, "lr": 0.05, "kl_warmup": 0.0, "progress": False}
        bnn.fit(x, 0 * x, sample_weight=torch.full((20,), weight), **fit)  # type: ignore[arg-type]
        assert isinstance(bnn.posterior_, mp.Posterior)
        expected = float(weight * x.square().sum() + 1) ** -0.5
        assert float(bnn.posterior_.weights.sigma) == pytest.approx(expected, rel=0.05)


def test_weights_stay_with_their_observations_when_some_are_held_out() -> None:
    data = WeightedExamples(Examples(torch.arange(20.0), torch.arange(20.0)), torch.arange(20.0))
    for part in hold_out(data, 0.25, mp.Noise(0)):
        assert part.weights is not None
        assert torch.equal(part.weights, part.examples.x)
    x, y = plane()
    bnn = method().fit(x, y, sample_weight=COUNTS, validation=0.2, **WHOLE)
    assert all(record.validation is not None for record in bnn.history_)


def test_moments_of_weighted_targets_are_those_of_repeated_ones() -> None:
    _, y = plane()
    two = torch.stack([y, y.square()], 1)
    two[3:6, 1] = torch.nan
    expected, found = TargetMoments.of(*repeated(two)), TargetMoments.of(two, COUNTS)
    torch.testing.assert_close(found[1:], expected[1:])
    pair = expected.two_targets(two)
    torch.testing.assert_close(pair.mean(0), expected.mean)
    torch.testing.assert_close(pair.var(0, correction=0), expected.variance)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(29), r"one weight for each of 30 observations, got the shape \(29,\)"),
        (np.ones((30, 1)), r"got the shape \(30, 1\)"),
        (np.zeros(30), "above 0 somewhere, got 0.0 to 0.0"),
        (np.linspace(-1, 1, 30), "at least 0, and above 0 somewhere, got -1.0 to 1.0"),
        (np.full(30, np.nan), "sample_weight has 30 NaN or infinite values"),
    ],
)
def test_weights_that_are_none_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method().fit(*plane(), sample_weight=weights, **WHOLE)
