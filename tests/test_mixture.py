import math

import pytest
import torch
from scoringrules import crps_mixnorm  # type: ignore[import-untyped]
from torch import Tensor

from metaprior import mixture, scores
from metaprior.forecasts import GaussianForecast


def some(samples: int, count: int, *, apart: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = apart * torch.randn(samples, count, generator=generator, dtype=torch.float64)
    scales = 0.2 + torch.rand(samples, count, generator=generator, dtype=torch.float64)
    return means, scales, torch.randn(count, generator=generator, dtype=torch.float64)


def bisected(means: Tensor, scales: Tensor, level: float) -> Tensor:
    """Return the quantile by bisection of the distribution function, slowly and surely."""
    parts = means + torch.special.ndtri(torch.tensor(level).double()) * scales
    low, high = parts.amin(0), parts.amax(0)
    for _ in range(60):
        middle = (low + high) / 2
        below = mixture.cumulative(means, scales, middle) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def test_crps_is_that_of_scoringrules() -> None:
    means, scales, y = some(7, 50)
    expected = crps_mixnorm(y.numpy(), means.T.numpy(), scales.T.numpy())
    torch.testing.assert_close(mixture.crps(means, scales, y), torch.from_numpy(expected), rtol=1e-12, atol=1e-14)
    of_forecast = scores.crps(GaussianForecast(means, scales), y)
    torch.testing.assert_close(of_forecast, torch.from_numpy(expected), rtol=1e-12, atol=1e-14)


def test_crps_of_a_standard_normal_at_its_mean() -> None:
    """(sqrt 2 - 1) / sqrt pi (Gneiting and Raftery 2007)."""
    found = mixture.crps(torch.zeros(3, 1).double(), torch.ones(3, 1).double(), torch.zeros(1).double())
    assert found.item() == pytest.approx((math.sqrt(2) - 1) / math.sqrt(math.pi), abs=1e-12)


def test_log_density_and_cumulative_are_those_of_the_forecast() -> None:
    means, scales, y = some(5, 20)
    forecast = GaussianForecast(means, scales)
    torch.testing.assert_close(mixture.log_density(means, scales, y), forecast.log_prob(y))
    torch.testing.assert_close(mixture.cumulative(means, scales, y), forecast.cdf(y))
    torch.testing.assert_close(mixture.variance(means, scales), forecast.std.square())


@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0, 2.0])
def test_quantiles_are_those_of_bisection(apart: float) -> None:
    means, scales, _ = some(7, 500, apart=apart)
    levels = [0.05, 0.25, 0.75, 0.95]
    found = mixture.quantiles(means, scales, levels)
    forecast = GaussianForecast(means, scales)
    for level, values in zip(levels, found, strict=True):
        expected = bisected(means, scales, level)
        assert float(((values - expected) / forecast.std).abs().max()) < 1e-4
        assert float(((forecast.quantile(level) - expected) / forecast.std).abs().max()) < 1e-7


def test_quantiles_of_components_far_apart_have_the_right_probability() -> None:
    """Newton's steps alone jump back and forth here; the bracket and the bisections end that."""
    means, scales, _ = some(6, 2000, apart=30.0)
    levels = [0.05, 0.25, 0.75, 0.95]
    for level, values in zip(levels, mixture.quantiles(means, scales, levels), strict=True):
        torch.testing.assert_close(
            mixture.cumulative(means, scales, values), torch.full_like(values, level), rtol=0, atol=1e-3
        )
