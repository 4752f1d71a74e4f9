import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

import metaprior as mp
from metaprior.noise import Noise
from tests.test_weights import random_weights


def test_normal_prior_agrees_with_torch_distributions() -> None:
    q = random_weights(40, 0)
    expected = kl_divergence(Normal(q.mu, q.sigma), Normal(*torch.tensor([0.0, 0.3], dtype=torch.float64))).sum()
    torch.testing.assert_close(mp.NormalPrior(0.3).kl_from(q), expected, rtol=1e-12, atol=0)


def test_scale_mixture_density_agrees_with_torch_distributions() -> None:
    prior = mp.ScaleMixturePrior(0.25, 1.0, 0.01)
    parts = Normal(torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 0.01], dtype=torch.float64))
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64)), parts)
    w = torch.linspace(-3, 3, 61, dtype=torch.float64)
    torch.testing.assert_close(prior.log_prob(w), mixture.log_prob(w), rtol=1e-10, atol=1e-10)


def test_scale_mixture_kl_converges_to_numerical_integration() -> None:
    q = random_weights(3, 4)
    prior = mp.ScaleMixturePrior(0.5, 1.0, 0.1)
    integral = torch.zeros((), dtype=torch.float64)
    for mu, sigma in zip(q.mu, q.sigma, strict=True):
        w = torch.linspace(float(mu - 10 * sigma), float(mu + 10 * sigma), 200_001, dtype=torch.float64)
        log_q = Normal(mu, sigma).log_prob(w)
        integral += torch.trapezoid(log_q.exp() * (log_q - prior.log_prob(w)), w)
    noise = Noise(0).normal(torch.zeros(200_000, 3, dtype=torch.float64))
    estimates = [prior.kl_from(q, q.sample(part)) for part in noise.split(20_000)]
    error = torch.stack(estimates).std() / math.sqrt(len(estimates))
    estimate = prior.kl_from(q, q.sample(noise))
    assert error < 0.01 * integral
    assert (estimate - integral).abs() < 4 * error


def test_scale_mixture_of_equal_parts_is_the_normal_prior() -> None:
    q = random_weights(10, 2)
    noise = Noise(0).normal(torch.zeros(100_000, 10, dtype=torch.float64))
    estimate = mp.ScaleMixturePrior(0.3, 0.7, 0.7).kl_from(q, q.sample(noise))
    torch.testing.assert_close(estimate, mp.NormalPrior(0.7).kl_from(q), rtol=0.01, atol=0)


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 0.1), (1.0, 1.0, 0.1), (0.5, -1.0, 0.1), (0.5, 1.0, math.nan)])
def test_scale_mixture_refuses_nonsense(arguments: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        mp.ScaleMixturePrior(*arguments)


def test_normal_prior_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="std must be a positive number"):
        mp.NormalPrior(0.0)
