import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import metaprior as mp
from metaprior import weights
from metaprior.hierarchy.hyper_posterior import HyperPosterior, PosteriorSums, fit_psi
from metaprior.weights import WeightDistribution, inverse_softplus


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def uniform(low: float, high: float, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, dtype=torch.float64, generator=generator)


def some_psi(size: int = 5) -> HyperPosterior:
    spread = uniform(0.1, 0.5, size, seed=1)
    return HyperPosterior(normal(size, seed=2), spread, 0.3 * normal(size, seed=3) - 0.5, 0.6 * spread)


def some_q(*shape: int) -> WeightDistribution:
    return WeightDistribution(normal(*shape, seed=4), normal(*shape, seed=5) - 1.0, {})


def test_the_closed_form_is_the_mean_over_thetas() -> None:
    """Within 4 standard errors of 200,000 thetas, which are less than 1 % of the value."""
    psi, q, thetas = some_psi(), some_q(5), 200_000
    sampled = psi.sample(normal(thetas, 5, seed=6), normal(thetas, 5, seed=7))
    kls = torch.vmap(lambda mu, rho: weights.kl_divergence(q, WeightDistribution(mu, rho, {})))(sampled.mu, sampled.rho)
    error = float(kls.std()) / math.sqrt(thetas)
    assert error < 0.01 * float(kls.mean())
    assert abs(float(psi.kl_from(q) - kls.mean())) < 4 * error


def test_sampled_thetas_have_psis_moments() -> None:
    psi, many = some_psi(), 100_000
    theta = psi.sample(normal(many, 5, seed=6), normal(many, 5, seed=7))
    for drawn, mean, std in (
        (theta.mu, psi.mean, psi.mean_std),
        (theta.sigma.log(), psi.log_scale, psi.log_scale_std),
    ):
        assert ((drawn.mean(0) - mean).abs() / std).max() < 5 / math.sqrt(many)
        torch.testing.assert_close(drawn.std(0), std, rtol=0.02, atol=0)


def test_a_known_theta_gives_the_divergence_itself() -> None:
    theta, q = some_q(7), WeightDistribution(normal(7, seed=8), normal(7, seed=9), {})
    known = HyperPosterior.around(theta, 0.0)
    torch.testing.assert_close(known.kl_from(q), weights.kl_divergence(q, theta), rtol=1e-13, atol=0)
    assert known.kl_to(theta) == 0.0


def test_a_stack_has_a_divergence_for_each() -> None:
    psi, stack = some_psi(), some_q(3, 5)
    alone = [psi.kl_from(WeightDistribution(mu, rho, {})) for mu, rho in zip(stack.mu, stack.rho, strict=True)]
    torch.testing.assert_close(psi.kl_from(stack), torch.stack(alone), rtol=1e-14, atol=0)


def test_the_centre_minimises_the_divergence() -> None:
    psi = some_psi()
    centre = psi.centre()
    mu, rho = centre.mu.requires_grad_(), centre.rho.requires_grad_()
    at_centre = psi.kl_from(WeightDistribution(mu, rho, {}))
    for gradient in torch.autograd.grad(at_centre, (mu, rho)):
        torch.testing.assert_close(gradient, torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)
    for seed in range(20):
        elsewhere = WeightDistribution(mu + 0.1 * normal(5, seed=seed), rho + 0.1 * normal(5, seed=seed + 50), {})
        assert psi.kl_from(elsewhere) > at_centre


def test_the_divergence_from_the_hyperprior_is_that_of_two_normals() -> None:
    psi, hyperprior = some_psi(), mp.GaussianHyperprior(mean_std=2.0, scale=0.3, log_scale_std=0.7)
    torch.testing.assert_close(psi.kl_to(hyperprior), float(hyper_kl(psi, hyperprior).sum()), rtol=1e-13, atol=0)


def hyper_kl(psi: HyperPosterior, hyperprior: mp.GaussianHyperprior) -> Tensor:
    """For every weight, by torch.distributions."""
    numbers = (0.0, hyperprior.mean_std, math.log(hyperprior.scale), hyperprior.log_scale_std)
    zero, kappa, centre, omega = torch.tensor(numbers, dtype=torch.float64)
    means = kl_divergence(Normal(psi.mean, psi.mean_std), Normal(zero, kappa))
    return means + kl_divergence(Normal(psi.log_scale, psi.log_scale_std), Normal(centre, omega))


def objective(psi: HyperPosterior, posteriors: WeightDistribution, hyperprior: mp.GaussianHyperprior) -> Tensor:
    """All that depends on psi, for every weight: posteriors are (M, D)."""
    apart = HyperPosterior(*(value.unsqueeze(-1) for value in psi))
    kls = apart.kl_from(WeightDistribution(posteriors.mu.unsqueeze(-1), posteriors.rho.unsqueeze(-1), {}))  # (M, D)
    return kls.sum(0) + hyper_kl(psi, hyperprior)


def sums_of(posteriors: WeightDistribution) -> PosteriorSums:
    return PosteriorSums.empty(posteriors.mu[0]).updated(None, posteriors)


class Far(NamedTuple):
    """Posteriors of every spread between 1e-3 and 1e3, and a psi that knows nothing of them."""

    posteriors: WeightDistribution
    psi: HyperPosterior


def far_start(tasks: int, size: int, seed: int) -> Far:
    tenfold = [10 ** uniform(-3, 3, size, seed=seed + number) for number in range(4)]
    mu = tenfold[0] * normal(tasks, size, seed=seed + 4) + tenfold[1] * normal(size, seed=seed + 5)
    rho = inverse_softplus(tenfold[2]).expand(tasks, size) + 0.1 * normal(tasks, size, seed=seed + 6)
    scales = uniform(-7, 7, size, seed=seed + 7), uniform(0.001, 2.0, size, seed=seed + 8)
    return Far(WeightDistribution(mu, rho, {}), HyperPosterior(10 * normal(size, seed=seed + 9), tenfold[3], *scales))


HYPERPRIORS = [
    mp.GaussianHyperprior(),
    mp.GaussianHyperprior(mean_std=10.0, scale=1.0, log_scale_std=3.0),
    mp.GaussianHyperprior(mean_std=0.01, scale=10.0, log_scale_std=0.1),
]


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
@pytest.mark.parametrize(("tasks", "starts"), [(1, 200), (2, 200), (10, 200), (10_000, 20)])
def test_no_sweep_raises_the_objective_from_wherever_it_starts(
    tasks: int, starts: int, hyperprior: mp.GaussianHyperprior
) -> None:
    """Not by more than rounding, 1e-9 of it, for any weight."""
    posteriors, psi = far_start(tasks, starts, seed=tasks)
    sums, before = sums_of(posteriors), objective(psi, posteriors, hyperprior)
    for sweep in range(40):
        psi = fit_psi(psi, sums, hyperprior, 1)
        now = objective(psi, posteriors, hyperprior)
        assert bool((now <= before + 1e-9 * before.abs()).all()), f"sweep {sweep}"
        before = now


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
@pytest.mark.parametrize("tasks", [1, 10])
def test_a_sweep_finds_the_best_t_along_a_constant_precision(tasks: int, hyperprior: mp.GaussianHyperprior) -> None:
    posteriors, psi = far_start(tasks, 100, seed=tasks)
    square = fit_psi(psi, sums_of(posteriors), hyperprior, 1).log_scale_std.square().requires_grad_()
    along = psi._replace(log_scale=psi.log_scale - psi.log_scale_std**2 + square, log_scale_std=square.sqrt())
    # T is the same all along, so what depends on it is left out: where it is huge, rounding is all one would see.
    rest = hyper_kl(along, hyperprior) + tasks * along.log_scale
    (gradient,) = torch.autograd.grad(rest.sum(), square)
    torch.testing.assert_close(gradient * square, torch.zeros_like(square), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("tasks", "starts", "sweeps", "hyperprior"),
    [
        (1, 50, 3000, HYPERPRIORS[0]),
        *((n, s, 600, h) for n, s in ((2, 100), (10, 100), (10_000, 10)) for h in HYPERPRIORS),
    ],
)
def test_many_sweeps_end_where_the_gradient_is_zero(
    tasks: int, starts: int, sweeps: int, hyperprior: mp.GaussianHyperprior
) -> None:
    """By every part of psi, to 1e-4 of its own uncertainty. With one task it takes long: mean and scale are coupled."""
    posteriors, psi = far_start(tasks, starts, seed=tasks if tasks > 1 else 0)
    psi = fit_psi(psi, sums_of(posteriors), hyperprior, sweeps)
    leaves = HyperPosterior(*(value.clone().requires_grad_() for value in psi))
    gradients = torch.autograd.grad(objective(leaves, posteriors, hyperprior).sum(), tuple(leaves))
    units = (psi.mean_std, psi.mean_std, psi.log_scale_std, psi.log_scale_std)
    for name, gradient, unit in zip(psi._fields, gradients, units, strict=True):
        assert float((gradient * unit).abs().max()) < 1e-4, name


def test_without_tasks_psi_is_the_hyperprior() -> None:
    hyperprior = mp.GaussianHyperprior(mean_std=2.0, scale=0.3, log_scale_std=0.7)
    psi = fit_psi(some_psi(), PosteriorSums.empty(normal(5)), hyperprior, 200)
    for value, expected in zip(psi, (0.0, 2.0, math.log(0.3), 0.7), strict=True):
        torch.testing.assert_close(value, torch.full((5,), expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_psi_keeps_its_type_and_sums_are_in_float64() -> None:
    stack = WeightDistribution(normal(3, 5).float(), normal(3, 5).float(), {})
    sums = sums_of(stack)
    assert sums.first.dtype == sums.second.dtype == torch.float64
    psi = HyperPosterior.around(WeightDistribution(normal(5).float(), normal(5).float(), {}))
    assert {value.dtype for value in fit_psi(psi, sums, mp.GaussianHyperprior(), 3)} == {torch.float32}


def test_sums_follow_what_changes_and_what_leaves() -> None:
    stack = WeightDistribution(normal(6, 5, seed=1), normal(6, 5, seed=2), {})
    later = WeightDistribution(normal(2, 5, seed=3), normal(2, 5, seed=4), {})
    sums = sums_of(stack)
    assert sums.tasks == 6
    torch.testing.assert_close(sums.first, stack.mu.sum(0))
    torch.testing.assert_close(sums.second, (stack.mu**2 + stack.sigma**2).sum(0))
    changed = sums.updated(rows(stack, slice(2, 4)), later)
    parts = [rows(stack, slice(0, 2)), later, rows(stack, slice(4, 6))]
    afresh = sums_of(WeightDistribution(torch.cat([p.mu for p in parts]), torch.cat([p.rho for p in parts]), {}))
    assert_same_sums(changed, afresh)
    assert_same_sums(sums.updated(rows(stack, slice(5, 6)), None), sums_of(rows(stack, slice(0, 5))))
    grown = sums_of(rows(stack, slice(0, 2))).updated(None, rows(stack, slice(2, 6)))
    assert_same_sums(grown, sums)


def rows(stack: WeightDistribution, which: slice) -> WeightDistribution:
    return WeightDistribution(stack.mu[which], stack.rho[which], {})


def assert_same_sums(one: PosteriorSums, other: PosteriorSums) -> None:
    assert one.tasks == other.tasks
    torch.testing.assert_close(one.first, other.first, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(one.second, other.second, rtol=1e-13, atol=1e-13)
