"""Factors of the spread make earlier intervals hold, and are cautious where windows are few."""

import math

import pytest
import torch

from metaprior.solar.maps.nowcast.calibrating import fitted_factors
from metaprior.solar.maps.nowcast.distribution import NowcastForecast
from metaprior.solar.maps.nowcast.inputs import LEADS

TRUE = (0.5, 1.0, 2.0, 3.0)


def windows(count: int) -> tuple[list[NowcastForecast], list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(2, 1, LEADS, 40, 50, generator=generator).mul(0).expand(2, -1, -1, -1, -1)
    forecast = NowcastForecast(means, torch.ones_like(means), weights=torch.ones(2))
    spread = torch.tensor(TRUE)[:, None, None]
    return [forecast] * count, [spread * torch.randn(1, LEADS, 40, 50, generator=generator) for _ in range(count)]


def test_many_windows_give_the_true_factors() -> None:
    found = torch.tensor(fitted_factors(*windows(40)))
    torch.testing.assert_close(found, torch.tensor(TRUE), rtol=0.06, atol=0.0)


def test_few_windows_are_held_towards_the_trained_spread() -> None:
    found = fitted_factors(*windows(1))
    assert found[3] == pytest.approx(math.sqrt(3), rel=0.05)
    assert found[0] == pytest.approx(math.sqrt(0.5), rel=0.05)


def test_no_windows_and_no_values_change_nothing() -> None:
    assert fitted_factors([], []) == (1.0,) * LEADS
    forecasts, targets = windows(2)
    assert fitted_factors(forecasts, [torch.full_like(one, math.nan) for one in targets]) == (1.0,) * LEADS
