import math

import pytest
import torch
from torch import Tensor

from metaprior import scores
from metaprior.forecasts import GaussianForecast
from metaprior.solar import mixture


def some(samples: int, count: int, *, apart: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = apart * torch.randn(samples, count, generator=generator, dtype=torch.float64)
    scales = 0.2 + torch.rand(samples, count, generator=generator, dtype=torch.float64)
    return means, scales, torch.randn(count, generator=generator, dtype=torch.float64)


def test_crps_is_that_of_the_slow_formula() -> None:
    means, scales, y = some(7, 50)
    torch.testing.assert_close(
        mixture.crps(means, scales, y), scores.crps(GaussianForecast(means, scales), y), rtol=1e-6, atol=1e-7
    )


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
        assert float(((values - forecast.quantile(level)) / forecast.std).abs().max()) < 1e-4


def test_quantiles_of_components_far_apart_have_the_right_probability() -> None:
    """Newton's steps alone jump back and forth here; the bracket and the bisections end that."""
    means, scales, _ = some(6, 2000, apart=30.0)
    levels = [0.05, 0.25, 0.75, 0.95]
    for level, values in zip(levels, mixture.quantiles(means, scales, levels), strict=True):
        torch.testing.assert_close(
            mixture.cumulative(means, scales, values), torch.full_like(values, level), rtol=0, atol=1e-3
        )
