"""Ways to infer theta on a Gaussian target, whose posterior is known, and on evidence that is not finite."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.hierarchy.theta_inference import THETA, LogEvidence, State, ThetaInference, with_gradient
from metaprior.noise import Noise

CENTRE = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
PRECISION = torch.tensor([[4.0, 1.5, 0.0], [1.5, 2.0, 0.5], [0.0, 0.5, 9.0]], dtype=torch.float64)
POSTERIOR_PRECISION = PRECISION + torch.eye(3)
POSTERIOR_MEAN = torch.linalg.solve(POSTERIOR_PRECISION, PRECISION @ CENTRE)


def gaussian(z: Tensor) -> Tensor:
    """Return a log evidence whose product with the prior N(0, I) is a Gaussian."""
    return -0.5 * (((z - CENTRE) @ PRECISION) * (z - CENTRE)).sum(1)


def run(inference: ThetaInference, evidence: LogEvidence = gaussian, seed: int = 0) -> tuple[Tensor, State]:
    noise = Noise(seed)
    state = inference.start(torch.zeros(3, dtype=torch.float64), noise)
    while state.rounds < inference.rounds:
        state = inference.advance(state, evidence, noise)
    return inference.thetas(state, noise), state


def test_chains_have_the_moments_of_the_posterior() -> None:
    """2,000 chains: means within 4 standard errors, covariances within 10 % of the variances."""
    draws, state = run(mp.HMC(draws=2000, trajectories=20, leapfrog=20, anchored_steps=50))
    covariance = torch.linalg.inv(POSTERIOR_PRECISION)
    std = covariance.diagonal().sqrt()
    assert ((draws.mean(0) - POSTERIOR_MEAN).abs() / std).max() < 4 / math.sqrt(2000)
    assert ((draws.T.cov() - covariance).abs() / (std[:, None] * std)).max() < 0.1
    assert 0.6 < float(state.tensors["accepted"].mean()) <= 1
    torch.testing.assert_close(state.log_evidence, gaussian(draws))


def test_anchored_draws_are_the_maxima_of_their_own_objectives() -> None:
    draws, state = run(mp.Anchored(draws=5, steps=800))
    expected = torch.linalg.solve(POSTERIOR_PRECISION, PRECISION @ CENTRE + state.tensors["anchors"], left=False)
    torch.testing.assert_close(draws, expected, rtol=1e-3, atol=1e-3)


def test_the_variational_optimum_has_the_exact_mean_and_the_factorised_scales() -> None:
    """Scales within 10 %: they are estimated from draws; the bound lies below the evidence by the known gap."""
    inference = mp.Variational(draws=1000, steps=600, samples=16, lr=0.05)
    draws, state = run(inference)
    std = POSTERIOR_PRECISION.diagonal().rsqrt()
    assert ((draws.mean(0) - POSTERIOR_MEAN).abs() / std).max() < 0.15
    torch.testing.assert_close(draws.std(0), std, rtol=0.1, atol=0)
    at_centre = torch.distributions.MultivariateNormal(CENTRE, torch.eye(3) + torch.linalg.inv(PRECISION))
    constant = 1.5 * math.log(2 * math.pi) - 0.5 * float(torch.logdet(PRECISION))
    evidence = float(at_centre.log_prob(torch.zeros(3, dtype=torch.float64))) + constant
    gap = 0.5 * float(POSTERIOR_PRECISION.diagonal().log().sum() - torch.logdet(POSTERIOR_PRECISION))
    bound = float(gaussian(draws).mean() - inference.kl(state.tensors))
    assert evidence - bound == pytest.approx(gap, abs=0.1)


@pytest.mark.parametrize("inference", [mp.HMC(6, 3, 4, 20), mp.Anchored(6, 25), mp.Variational(6, 25, 2)])
def test_the_same_noise_gives_the_same_draws_in_any_parts(inference: ThetaInference) -> None:
    noise = Noise(3)
    draws, state = run(inference, seed=3)
    half = inference.start(torch.zeros(3, dtype=torch.float64), noise)
    for _ in range(inference.rounds):
        kept = {name: value.clone() for name, value in half.tensors.items()}
        half = inference.advance(half._replace(tensors=kept), gaussian, noise)
    assert torch.equal(inference.thetas(half, noise), draws)
    assert not torch.equal(run(inference, seed=4)[0], draws)
    assert state.rounds == inference.rounds


@pytest.mark.parametrize("inference", [mp.HMC(6, 5, 4, 20), mp.Anchored(6, 20)])
def test_evidence_that_is_not_finite_harms_no_other_draw(inference: ThetaInference) -> None:
    def broken(z: Tensor) -> Tensor:
        lost = torch.arange(len(z)) == 2
        return torch.where(lost, torch.nan, gaussian(z))

    (with_all, _), (draws, state) = run(inference), run(inference, broken)
    others = torch.arange(6) != 2
    assert torch.equal(draws[others], with_all[others])
    assert state.log_evidence.isfinite().tolist() == others.tolist()


def test_gradients_are_zero_where_they_are_not_finite() -> None:
    z = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    value, gradient = with_gradient(lambda at: at.log().sum(1), z)
    assert value.tolist() == [0.0, -math.inf]
    assert gradient.tolist() == [[1.0], [0.0]]


def test_draws_of_the_prior_need_no_rounds() -> None:
    draws, _ = run(THETA.build("prior", {"draws": 1000}))
    assert draws.mean(0).abs().max() < 0.2
    torch.testing.assert_close(draws.std(0), torch.ones(3, dtype=torch.float64), rtol=0.1, atol=0)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("hmc", {"draws": 1}, "draws must be an integer of at least 2, got 1"),
        ("hmc", {"leapfrog": 0}, "leapfrog must be an integer of at least 1, got 0"),
        ("anchored", {"lr": -1.0}, "lr must be a positive number, got -1.0"),
        ("variational", {"samples": 3}, "samples must be an even number"),
        ("nuts", {}, "theta must be one of hmc, anchored, variational, prior, got 'nuts'"),
    ],
)
def test_invalid_settings_raise(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        THETA.build(kind, settings)
