"""A few weight samples in place of many."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.compression import CompressionLoss, _kernel, chosen_samples
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.forecasts.numpy_forecast import NumpyForecast
from metaprior.posterior import CompressedPosterior, Posterior
from metaprior.scaling import TargetScale


def make(likelihood: mp.Likelihood | None = None, outputs: int = 1) -> Posterior:
    torch.manual_seed(0)
    network = mp.BayesianNetwork(mp.MLP(2, [8], outputs).double())
    units = TargetScale(torch.tensor([100.0]).double(), torch.tensor([5.0]).double())
    return Posterior(
        network, likelihood or mp.Gaussian(noise=0.1), network.initial(0.5), target_scale=units, input_axes=2
    )


def inputs(count: int = 40, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_exchanges_reach_what_no_single_exchange_lowers_and_are_close_to_the_best_subset() -> None:
    outputs = torch.randn(10, 6, 1, generator=torch.Generator().manual_seed(0)).double()
    kernel = _kernel(outputs)

    def distance(chosen: tuple[int, ...]) -> float:
        return float(kernel[list(chosen)][:, list(chosen)].sum())

    found = tuple(chosen_samples(outputs, 3))
    others = [tuple({*found} - {one} | {new}) for one in found for new in range(10) if new not in found]
    assert all(distance(other) >= distance(found) for other in others)
    everything = sorted(distance(one) for one in itertools.combinations(range(10), 3))
    assert distance(found) <= everything[len(everything) // 20]


def test_the_kernel_is_the_distance_of_the_first_two_moments() -> None:
    outputs = torch.randn(7, 5, 1, generator=torch.Generator().manual_seed(1)).double()
    away = (outputs - outputs.mean(0)) / (outputs - outputs.mean(0)).square().mean().sqrt()
    chosen = [0, 2, 3]
    first, second = away[chosen].mean(0), away[chosen].square().mean(0) - away.square().mean(0)
    expected = (first.square() + second.square() / 2).mean() * len(chosen) ** 2
    torch.testing.assert_close(_kernel(outputs)[chosen][:, chosen].sum(), expected)


def test_chosen_samples_predict_more_like_all_than_random_ones() -> None:
    posterior, x, new = make(), inputs(200), inputs(100, seed=1)
    full = posterior.predict(new, samples=1000, seed=5)
    small = posterior.compress(8, x)
    chosen = CompressionLoss.between(full, small.predict(new))
    drawn = [CompressionLoss.between(full, posterior.predict(new, samples=8, seed=seed)) for seed in range(10)]
    assert chosen.mean < 0.6 * min(one.mean for one in drawn) + 0.4 * sum(one.mean for one in drawn) / 10
    assert chosen.std < sum(one.std for one in drawn) / 10


def test_the_loss_is_that_of_the_forecasts_and_the_contract_is_that_of_a_posterior() -> None:
    posterior, x = make(), inputs()
    y = 100 + torch.zeros(40, 1).double()
    small = posterior.compress(5, x, y, candidates=60, seed=3)
    assert isinstance(small, CompressedPosterior)
    forecast, full = small.predict(x), posterior.predict(x, samples=60, seed=3)
    assert isinstance(forecast, GaussianForecast)
    assert small.loss == CompressionLoss.between(full, forecast, y)
    assert small.loss.nll == pytest.approx(float((full.log_prob(y) - forecast.log_prob(y)).mean()))
    assert posterior.compress(5, x, candidates=60).loss.nll is None
    torch.testing.assert_close(small.predict(x, samples=90, seed=8).mean, forecast.mean)
    torch.testing.assert_close(small.predict(x, batch_size=7).mean, forecast.mean)
    assert isinstance(small.predict(x.numpy()), NumpyForecast)
    torch.testing.assert_close(small.widened(2.0).predict(x).std, 2 * forecast.std)
    torch.testing.assert_close(forecast.epistemic, forecast.means.std(0, correction=0))
    assert "weight samples 5" in repr(small)


def test_all_candidates_lose_nothing_but_a_denominator() -> None:
    posterior, x = make(), inputs()
    whole = posterior.compress(20, x, candidates=20)
    assert whole.loss.mean < 1e-12
    full, forecast = posterior.predict(x, samples=20), whole.predict(x)
    torch.testing.assert_close(forecast.epistemic.square(), full.epistemic.square() * 19 / 20)


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [(mp.HeteroscedasticGaussian(), 2), (mp.Categorical(), 3), (mp.Bernoulli(), 1), (mp.GaussianMixture(2), 6)],
)
def test_every_likelihood_can_be_compressed(likelihood: mp.Likelihood, outputs: int) -> None:
    posterior = make(likelihood, outputs)
    if not likelihood.continuous:
        posterior = replace(posterior, target_scale=TargetScale.identity(posterior.weights.mu))
    small = posterior.compress(6, inputs(), candidates=100)
    found: Forecast = small.predict(inputs())
    assert found.mean.shape == posterior.predict(inputs()).mean.shape
    assert 0 < small.loss.mean < 0.3


def test_what_cannot_be_compressed_is_refused() -> None:
    posterior, x = make(), inputs()
    with pytest.raises(ValueError, match="k must be an integer of at least 2, got 1"):
        posterior.compress(1, x)
    with pytest.raises(ValueError, match=r"candidates must be at least k = 50, got 10. Try 500"):
        posterior.compress(50, x, candidates=10)
    with pytest.raises(ValueError, match="x must have 2 axes"):
        posterior.compress(2, x[0])
    with pytest.raises(TypeError, match="Try pruned, then compress"):
        posterior.compress(2, x, candidates=5).pruned(0.5)
    weightless = posterior.pruned(1.0).compress(2, np.asarray(x), candidates=5)
    assert math.isfinite(weightless.loss.mean)
