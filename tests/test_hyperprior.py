import pytest
import torch
from torch.distributions import Gamma, Normal

import metaprior as mp
from metaprior.weights import inverse_softplus
from tests.test_weights import random_weights


def test_log_density_is_normal_on_means_times_gamma_on_precisions() -> None:
    theta = random_weights(30, 0)
    hyperprior = mp.NormalGammaHyperprior(a0=2.0, b0=0.2)
    gamma = Gamma(torch.tensor(2.0, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64))
    expected = Normal(0.0, 1.0).log_prob(theta.mu).sum() + gamma.log_prob(theta.sigma**-2).sum()
    torch.testing.assert_close(hyperprior.log_prob(theta), expected, rtol=1e-10, atol=0)


def test_most_likely_precision_is_the_gammas_mode() -> None:
    sigma = torch.linspace(0.1, 5, 5000, dtype=torch.float64)
    rho = inverse_softplus(sigma)
    densities = torch.stack(
        [
            mp.NormalGammaHyperprior(3.0, 0.5).log_prob(
                mp.WeightDistribution(torch.zeros(1, dtype=torch.float64), r[None], {})
            )
            for r in rho
        ]
    )
    assert sigma[densities.argmax()] ** -2 == pytest.approx((3.0 - 1) / 0.5, rel=0.01)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="b0 must be a positive number"):
        mp.NormalGammaHyperprior(b0=-1)
