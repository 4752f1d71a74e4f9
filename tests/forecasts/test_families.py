"""Families of forecasts against scipy and scoringrules, in double precision."""

import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import special, stats
from torch import Tensor

from metaprior import mixture
from metaprior.forecasts import (
    CensoredForecast,
    CountForecast,
    GaussianForecast,
    QuantileForecast,
    StudentTForecast,
    ZeroInflatedForecast,
)
from metaprior.forecasts.censored import log_normal_cdf
from metaprior.forecasts.inversion import invert_cdf
from metaprior.forecasts.special import incomplete_beta, log_rising

N = 40
WHOLE = torch.ones(1)
"""Weights of one component that is the whole distribution."""


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: object, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("freedom", [2.1, 5.0, 60.0, 1e4])
def test_students_t_is_that_of_scipy(freedom: float) -> None:
    means, scales, y = normals(1, N), normals(1, N, seed=1).exp(), 8 * normals(N, seed=2)
    forecast = StudentTForecast(means, scales, torch.full_like(means, freedom), weights=WHOLE)
    peer = stats.t(freedom, means[0], scales[0])
    close(forecast.log_prob(y), peer.logpdf(y), rtol=1e-8)
    close(forecast.cdf(y), peer.cdf(y), rtol=1e-8)
    close(forecast.std, peer.std(), rtol=1e-8)
    close(forecast.quantile([0.01, 0.4, 0.99]), [peer.ppf(p) for p in (0.01, 0.4, 0.99)], rtol=0, atol=1e-6)
    crps = scoringrules.crps_t(y.numpy(), freedom, means[0].numpy(), scales[0].numpy())
    close(forecast.crps(y), crps, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dispersion", [0.0, 1e-9, 0.01, 0.5, 4.0])
def test_counts_are_those_of_scipy(dispersion: float) -> None:
    log_rates, y = 1 + 1.5 * normals(1, N), (1 + normals(N, seed=1)).exp().floor()
    forecast = CountForecast(log_rates, torch.full_like(log_rates, dispersion), weights=WHOLE)
    rates = log_rates[0].exp().numpy()
    peer = stats.poisson(rates) if dispersion < 1e-8 else stats.nbinom(1 / dispersion, 1 / (1 + dispersion * rates))
    close(forecast.log_prob(y), peer.logpmf(y), rtol=1e-6, atol=1e-6)
    close(forecast.cdf(y), peer.cdf(y), rtol=1e-6, atol=1e-9)
    close(forecast.std, peer.std(), rtol=1e-6)
    for level in (0.003, 0.31, 0.77, 0.9995):
        assert np.array_equal(forecast.quantile(level), peer.ppf(level))
    if dispersion == 0:
        close(forecast.crps(y), scoringrules.crps_poisson(y.numpy(), rates), rtol=1e-3, atol=1e-4)
    elif dispersion > 1e-8:
        crps = scoringrules.crps_negbinom(y.numpy(), 1 / dispersion, 1 / (1 + dispersion * rates))
        close(forecast.crps(y), crps, rtol=3e-3, atol=1e-3)


def test_large_counts_are_scored_by_an_integral_and_small_ones_beside_them_by_a_sum() -> None:
    rates = torch.tensor([[20_000.0, 20_000.0, 3000.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([19_500.0, 20_300.0, 3000.0, 1.0], dtype=torch.float64)
    forecast = CountForecast(rates.log(), torch.zeros_like(rates), weights=WHOLE)
    every = np.arange(30_000)[:, None]
    reached = stats.poisson(rates[0].numpy()).cdf(every)
    close(forecast.crps(y)[:3], ((reached - (every >= y.numpy())) ** 2).sum(0)[:3], rtol=2e-3)
    close(forecast.crps(y)[3:], ((reached - (every >= y.numpy())) ** 2).sum(0)[3:], rtol=1e-6)


def test_values_between_counts_have_no_mass() -> None:
    forecast = CountForecast(torch.zeros(2, 1), torch.zeros(2, 1))
    assert float(forecast.log_prob(torch.tensor([0.5]))) == -math.inf
    assert float(forecast.log_prob(torch.tensor([-1.0]))) == -math.inf
    assert torch.equal(forecast.cdf(torch.tensor([1.7])), forecast.cdf(torch.tensor([1.0])))
    assert float(forecast.cdf(torch.tensor([-0.1]))) == 0


def test_censored_values_are_clipped_gaussians() -> None:
    means, scales = normals(1, N), normals(1, N, seed=1).exp()
    low, high = torch.full_like(means, -0.5), torch.full_like(means, 1.0)
    forecast = CensoredForecast(means, scales, low, high, weights=WHOLE)
    draws = (means[0] + scales[0] * normals(200_000, N, seed=2)).clamp(-0.5, 1.0)
    close(forecast.mean, draws.mean(0), rtol=0, atol=0.01)
    close(forecast.std, draws.std(0), rtol=0, atol=0.01)
    y = normals(N, seed=3).clamp(-0.5, 1.0)
    with np.errstate(invalid="ignore"):  # no answer where all but nothing is at a limit
        peer = scoringrules.crps_cnormal(y.numpy(), means[0].numpy(), scales[0].numpy(), -0.5, 1.0)
    known = np.isfinite(peer)
    assert known.mean() > 0.8
    close(forecast.crps(y)[known], peer[known], rtol=1e-4, atol=1e-5)
    open_ended = CensoredForecast(means, scales, low - math.inf, high + math.inf, weights=WHOLE)
    gaussian = GaussianForecast(means, scales, weights=WHOLE)
    for part in ("mean", "std"):
        close(getattr(open_ended, part), getattr(gaussian, part))
    close(open_ended.log_prob(y), gaussian.log_prob(y))
    far = CensoredForecast(means - 1e6, scales, low, high, weights=WHOLE)
    close(far.mean, -0.5)
    assert float(far.std.max()) < 1e-3
    assert float(forecast.log_prob(torch.full_like(y, 1.5)).max()) == -math.inf
    assert torch.equal(forecast.cdf(torch.full_like(y, 1.5)), torch.ones_like(y))


def test_the_log_of_the_normal_cdf_is_exact_in_both_tails() -> None:
    z = torch.cat([torch.linspace(-50, 40, 901), torch.tensor([-1e4, -1e6, 1e4])]).double().requires_grad_()
    found = log_normal_cdf(z)
    close(found.detach(), special.log_ndtr(z.detach().numpy()), rtol=1e-13, atol=1e-300)
    slope = torch.autograd.grad(found.sum(), z)[0][:901]
    z = z[:901]  # scipy's difference has no digits beyond
    expected = np.exp(stats.norm.logpdf(z.detach()) - special.log_ndtr(z.detach().numpy()))
    close(slope, expected, rtol=1e-9, atol=1e-12)


def test_zero_inflated_values_are_those_of_scipy() -> None:
    logits, means, scales = normals(1, N), normals(1, N, seed=1), 0.3 + normals(1, N, seed=2).abs()
    forecast, zero = ZeroInflatedForecast(logits, means, scales, weights=WHOLE), logits[0].sigmoid()
    peer = stats.lognorm(scales[0], scale=means[0].exp())
    y = normals(N, seed=3).exp()
    close(forecast.log_prob(y), (1 - zero).log() + torch.from_numpy(peer.logpdf(y)))
    close(forecast.log_prob(torch.zeros(N)), zero.log())
    close(forecast.cdf(y), zero + (1 - zero) * torch.from_numpy(peer.cdf(y)))
    close(forecast.mean, (1 - zero) * torch.from_numpy(peer.mean()))
    found = forecast.quantile(0.8)
    expected = peer.ppf(((0.8 - zero) / (1 - zero)).clamp_min(0.0))
    close(found, expected, rtol=1e-6)
    assert bool((found[zero > 0.8] == 0).all())
    draws = torch.from_numpy(peer.rvs((20_000, N), random_state=0)) * (torch.rand(20_000, N) > zero)
    close(forecast.crps(y), scoringrules.crps_ensemble(y.numpy(), draws.numpy().T), rtol=0.06, atol=0.03)


def test_quantiles_are_those_that_were_given() -> None:
    levels = (0.1, 0.3, 0.8)
    lowest, gaps = normals(1, N), normals(1, N, 2, seed=1).exp()
    forecast = QuantileForecast(lowest, gaps, levels, weights=WHOLE)
    points = forecast.points[0]
    for number, level in enumerate(levels):
        close(forecast.quantile(level), points[:, number], rtol=0, atol=1e-7)
        close(forecast.cdf(points[:, number]), level)
    close(forecast.quantile(0.55), points[:, 1] + 0.5 * gaps[0, :, 1], rtol=0, atol=1e-7)  # linear between
    ends = forecast.quantile([1e-9, 1 - 1e-9])
    assert bool(ends.isfinite().all())
    assert bool((ends[0] < points[:, 0]).all())


def test_the_crps_of_gaussians_is_that_of_their_closed_form() -> None:
    """A Student's t with many degrees of freedom and a censored Gaussian with far limits are Gaussians."""
    means, scales, y = 2 * normals(4, 10), normals(4, 10, seed=1).exp(), 2 * normals(10, seed=2)
    expected = mixture.crps(means, scales, y)
    student = StudentTForecast(means, scales, torch.full_like(means, 1e4))
    close(student.crps(y), expected, rtol=1e-3, atol=1e-4)
    open_ended = CensoredForecast(means, scales, means - math.inf, means + math.inf)
    close(open_ended.crps(y), expected, rtol=1e-4, atol=1e-4)


def test_ratios_of_gamma_functions_keep_their_digits() -> None:
    x, start = torch.meshgrid(
        torch.tensor([0.5, 1.0, 3.0, 40.0, 1e4]), torch.tensor([1e-3, 1.0, 15.9, 16.1, 1e3]), indexing="ij"
    )
    x, start = x.double(), start.double()
    close(
        log_rising(x, start),
        torch.from_numpy(special.gammaln((x + start).numpy()) - special.gammaln(start.numpy())) - x * start.log(),
        rtol=1e-9,
        atol=1e-9,
    )
    huge = torch.tensor([1e12], dtype=torch.float64)
    three = torch.tensor([3.0], dtype=torch.float64)
    close(log_rising(three, huge), torch.log1p(torch.arange(3).double() / huge).sum(), rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (3.3, 20.0), (20.0, 3.3), (1e3, 0.5), (1e6, 1e3), (1e6, 0.5)])
def test_the_incomplete_beta_function_is_that_of_scipy(a: float, b: float) -> None:
    x = torch.linspace(0, 1, 501, dtype=torch.float64)
    found = incomplete_beta(*torch.tensor([a, b], dtype=torch.float64), x, 1 - x)
    close(found, special.betainc(a, b, x.numpy()), rtol=0, atol=1e-9)


def test_a_search_finds_roots_steps_and_atoms() -> None:
    low, high = torch.tensor([-50.0, -50.0, 0.0]).double(), torch.tensor([50.0, 50.0, 1.0]).double()

    def cdf(values: Tensor) -> Tensor:
        smooth, step = torch.special.ndtr(values[0]), (values[1] >= 3.25).double()
        return torch.stack([smooth, step, torch.where(values[2] >= 0, 0.7, 0.0).double()])

    found = invert_cdf(cdf, low, high, torch.tensor(0.6, dtype=torch.float64), 1e-10)
    close(found, [stats.norm.ppf(0.6), 3.25, 0.0], rtol=0, atol=1e-9)
    assert float(found[2]) == 0.0
