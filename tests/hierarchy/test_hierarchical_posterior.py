r"""Networks without hidden layers, whose outputs are their weights: 2,000 of them make good averages of few samples."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import metaprior as mp
from metaprior.hierarchy.hierarchical_posterior import HierarchicalPosterior, given_theta
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums, fit_psi
from metaprior.network import BayesianNetwork
from metaprior.scaling import TargetScale
from metaprior.weights import WeightDistribution, inverse_softplus

MANY = 2000
NOISE = 0.3
ONE = torch.ones(1, 1, dtype=torch.float64)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def full(value: float) -> Tensor:
    return torch.full((MANY,), value, dtype=torch.float64)


def some_psi(*, doubt: float = 1.0) -> HyperPosterior:
    """m = 0.5, s = 0.4, r = log 0.7, t = 0.3."""
    return HyperPosterior(full(0.5), full(0.4 * doubt), full(math.log(0.7)), full(0.3 * doubt))


def posterior(weights: WeightDistribution, psi: HyperPosterior) -> HierarchicalPosterior:
    network = BayesianNetwork(nn.Linear(1, MANY, bias=False, dtype=torch.float64))
    scale = TargetScale.identity(weights.mu)
    return HierarchicalPosterior(network, mp.Gaussian(noise=NOISE), weights, target_scale=scale, hyper=psi)


def conjugate(prior_mean: Tensor, prior_precision: Tensor, count: int, mean: Tensor) -> WeightDistribution:
    """After ``count`` observations with this mean, one of each weight."""
    precision = prior_precision + count / NOISE**2
    mu = (prior_precision * prior_mean + count / NOISE**2 * mean) / precision
    return WeightDistribution(mu, inverse_softplus(precision.rsqrt()), {})


def root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_under_a_theta_it_is_the_conjugate_posterior_under_that_theta() -> None:
    psi, observed = some_psi(), numbers(MANY, seed=1)
    found = conjugate(psi.mean, psi.precision, 4, observed)
    theta = psi.sample(numbers(MANY, seed=2), numbers(MANY, seed=3))
    exact = conjugate(theta.mu, theta.sigma**-2, 4, observed)
    under = given_theta(found, psi, theta)
    torch.testing.assert_close(under.mu, exact.mu, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(under.sigma, exact.sigma, rtol=1e-11, atol=0)


def test_without_data_it_is_the_prior_under_that_theta() -> None:
    psi = some_psi()
    theta = psi.sample(numbers(3, MANY, seed=2), numbers(3, MANY, seed=3))  # a stack
    under = given_theta(psi.centre(), psi, theta)
    torch.testing.assert_close(under.mu, theta.mu, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(under.sigma, theta.sigma, rtol=1e-11, atol=0)


def test_a_posterior_wider_than_its_prior_knows_nothing_of_the_data() -> None:
    psi = some_psi()
    wide = WeightDistribution(psi.mean, full(5.0), {})
    theta = psi.sample(numbers(MANY, seed=2), numbers(MANY, seed=3))
    torch.testing.assert_close(given_theta(wide, psi, theta).sigma, theta.sigma, rtol=1e-11, atol=0)


def test_without_data_forecasts_are_of_the_prior_with_both_uncertainties() -> None:
    r"""Mean $m$ and variance $s^2 + E\sigma^2$, $E\sigma^2 = e^{2r + 2t^2}$, within 2 %."""
    psi = some_psi()
    drawn = posterior(psi.centre(), psi).predict(ONE, samples=100).means  # type: ignore[attr-defined]
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.02)
    variance = 0.4**2 + 0.7**2 * math.exp(2 * 0.3**2)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.02)


def test_parts_of_the_uncertainty_are_the_known_ones() -> None:
    r"""Without data: $s$ from the prior, $\sqrt{E\sigma^2}$ from the task, within 3 %; the noise exactly."""
    psi = some_psi()
    split = posterior(psi.centre(), psi).split(ONE)
    assert split.prior.shape == split.task.shape == split.std.shape == (1, MANY)
    assert root_mean_square(split.prior) == pytest.approx(0.4, rel=0.03)
    assert root_mean_square(split.task) == pytest.approx(0.7 * math.exp(0.3**2), rel=0.03)
    torch.testing.assert_close(split.data, torch.full_like(split.data, NOISE))


def test_parts_add_up_to_the_forecasts_uncertainty() -> None:
    """Root mean squares over 2,000 weights agree within 1 %."""
    psi, observed = some_psi(), numbers(MANY, seed=1)
    for count in (0, 3):
        both = posterior(conjugate(psi.mean, psi.precision, count, observed), psi)
        total = root_mean_square(both.predict(ONE, samples=200, seed=1).std)
        assert root_mean_square(both.split(ONE).std) == pytest.approx(total, rel=0.01)


def test_data_of_the_task_take_both_parts_away() -> None:
    psi, observed = some_psi(), numbers(MANY, seed=1)
    splits = [posterior(conjugate(psi.mean, psi.precision, n, observed), psi).split(ONE, phis=8) for n in (0, 2, 30)]
    for few, more in pairwise(splits):
        assert root_mean_square(more.task) < 0.7 * root_mean_square(few.task)
        assert root_mean_square(more.prior) < 0.7 * root_mean_square(few.prior)


def test_a_known_prior_has_no_part_in_it() -> None:
    """Less than a fifth of the task's: the noise of 32 x 16 samples, cut off at zero."""
    psi = some_psi(doubt=0.0)
    split = posterior(psi.centre(), psi).split(ONE)
    assert root_mean_square(split.prior) < 0.2 * root_mean_square(split.task)
    assert root_mean_square(split.task) == pytest.approx(0.7, rel=0.03)


def test_more_tasks_leave_less_doubt_about_the_prior() -> None:
    r"""It falls like $\tau/\sqrt{M}$: from 3 tasks to 100 by more than a factor 4."""

    def doubt(tasks: int) -> float:
        mu = 0.5 + 0.7 * numbers(tasks, MANY, seed=tasks)
        sums = PosteriorSums.empty(mu[0]).updated(None, WeightDistribution(mu, torch.full_like(mu, -5.0), {}))
        psi = fit_psi(some_psi(), sums, mp.GaussianHyperprior(mean_std=3.0, scale=0.7), 200)
        return root_mean_square(posterior(psi.centre(), psi).split(ONE).prior)

    few, many = doubt(3), doubt(100)
    assert few > 4 * many
    assert few == pytest.approx(0.7 / math.sqrt(3), rel=0.3)


def test_labels_are_split_by_their_probabilities() -> None:
    """The parts' squares add up to p (1 - p), the variance of each class's 0 or 1, within 6 %."""
    classes = 3
    network = BayesianNetwork(nn.Linear(1, classes, bias=False, dtype=torch.float64))
    psi = HyperPosterior(*(value[:classes] for value in some_psi()))
    scale = TargetScale.identity(psi.mean)
    both = HierarchicalPosterior(network, mp.Categorical(), psi.centre(), target_scale=scale, hyper=psi)
    split = both.split(ONE, thetas=400, phis=4)
    probabilities = both.predict(ONE, samples=2000).probabilities  # type: ignore[attr-defined]
    torch.testing.assert_close(split.std**2, probabilities * (1 - probabilities), rtol=0.06, atol=0)
    assert bool((split.prior > 0).all())


def test_parts_of_a_forecast_add_up_and_are_in_the_ratio_of_the_split() -> None:
    psi = some_psi()
    prior = posterior(psi.centre(), psi)
    forecast: Any = prior.predict(ONE, samples=200)
    parts, split = forecast.parts, prior.split(ONE)
    torch.testing.assert_close(sum(part**2 for part in parts.values()), forecast.std**2)
    assert root_mean_square(parts["prior"]) == pytest.approx(root_mean_square(split.prior), rel=0.1)
    assert root_mean_square(parts["task"]) == pytest.approx(root_mean_square(split.task), rel=0.1)
    arrays: Any = prior.predict(ONE.numpy(), samples=200)
    assert all(isinstance(part, np.ndarray) for part in arrays.parts.values())


def test_the_same_seed_gives_the_same_split_and_one_sample_is_refused() -> None:
    psi = some_psi()
    prior = posterior(psi.centre(), psi)
    assert torch.equal(prior.split(ONE, thetas=4, phis=2).prior, prior.split(ONE, thetas=4, phis=2).prior)
    assert not torch.equal(prior.split(ONE, thetas=4, phis=2).prior, prior.split(ONE, thetas=4, phis=2, seed=1).prior)
    for thetas, phis in ((1, 5), (5, 1)):
        with pytest.raises(ValueError, match="thetas and phis must be at least 2"):
            prior.split(ONE, thetas=thetas, phis=phis)
