"""Forecasts within limits against samples and known answers."""

import numpy as np
import torch

from metaprior.forecasts import GaussianForecast
from metaprior.solar.sites.limits import mixed, within_limits

LEVELS = (0.05, 0.5, 0.95)


def mixtures() -> GaussianForecast:
    means = torch.tensor([[0.0, 0.4, 0.9], [0.2, 0.5, 1.1]], dtype=torch.float64)[..., None]
    scales = torch.tensor([[0.1, 0.05, 0.2], [0.3, 0.2, 0.1]], dtype=torch.float64)[..., None]
    weights = torch.tensor([[0.3, 0.5, 0.8], [0.7, 0.5, 0.2]], dtype=torch.float64)
    return GaussianForecast(means, scales, weights=weights)


def test_a_mixture_of_two_forecasts_has_the_mixed_distribution_function() -> None:
    first = mixtures()
    second = GaussianForecast(first.means[:1] + 0.3, first.scales[:1], weights=torch.ones(1, 3))
    y = torch.tensor([0.1, 0.5, 1.2], dtype=torch.float64)[:, None]
    for share in (0.0, 0.3, 1.0):
        wanted = (1 - share) * first.cdf(y) + share * second.cdf(y)
        torch.testing.assert_close(mixed(first, second, share).cdf(y), wanted)


def test_mean_and_quantiles_are_those_of_clipped_samples() -> None:
    forecast, g = mixtures(), torch.Generator().manual_seed(0)
    assert forecast.weights is not None
    which = (torch.rand(400_000, 3, generator=g) > forecast.weights[0, :, 0]).long()
    rows = torch.arange(3)
    means, scales = (part[..., 0] for part in (forecast.means, forecast.scales))
    drawn = means[which, rows] + scales[which, rows] * torch.randn(400_000, 3, generator=g, dtype=torch.float64)
    clipped = drawn.clamp(0.0, 1.0)
    found = within_limits(forecast, LEVELS, np.zeros(3, np.bool_), 1.0)
    np.testing.assert_allclose(found.mean, clipped.mean(0), atol=2e-3)
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    expected = torch.stack([torch.quantile(clipped[:100_000], level, dim=0) for level in levels])
    np.testing.assert_allclose(found.quantiles, expected, atol=1e-2)
    assert found.quantiles.min() >= 0
    assert found.quantiles.max() <= 1


def test_night_is_exactly_zero_and_a_sure_forecast_is_its_value() -> None:
    sure = GaussianForecast(torch.tensor([[[0.3], [0.3]]]), torch.tensor([[[1e-6], [1e-6]]]), weights=torch.ones(1))
    found = within_limits(sure, LEVELS, np.array([False, True]), 1.0)
    np.testing.assert_allclose(found.mean, [0.3, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.quantiles[:, 0], 0.3, atol=1e-5)
    assert not found.quantiles[:, 1].any()
