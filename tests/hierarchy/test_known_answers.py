"""The normal-normal hierarchy, whose posterior and evidence are known; stated tolerances are those of the noise of
weight samples that is left when the learning rate has fallen to zero."""

import math

import pytest
import torch
from torch import Tensor

import metaprior as mp
from tests.hierarchy.normal_normal import NormalNormal, expected_elbo, one_weight, posteriors

MODEL = NormalNormal((4,) * 6)


@pytest.fixture(scope="module")
def settled() -> mp.HierarchicalVI:
    """60 epochs under a known scale."""
    return MODEL.fitted(MODEL.with_known_scale(), local_steps=5)


def test_with_known_scales_all_means_are_exact_and_variances_those_of_the_factorised_optimum(
    settled: mp.HierarchicalVI,
) -> None:
    """Means within 0.1 standard deviations, standard deviations of tasks within 5 %; q(mu)'s has no noise."""
    model, hvi = MODEL, settled
    mu, sigma = posteriors(hvi)
    std = model.mean_field_variances.sqrt()
    assert ((mu - model.exact_means[1:]).abs() / std[1:]).max() < 0.1
    assert abs(float(hvi.psi_.mean - model.exact_means[0])) / std[0] < 0.1
    torch.testing.assert_close(sigma, std[1:], rtol=0.05, atol=0)
    torch.testing.assert_close(hvi.psi_.mean_std, std[:1], rtol=1e-6, atol=0)
    gap = float(model.log_evidence(torch.tensor([model.tau]))) - expected_elbo(model, hvi)
    assert model.mean_field_gap <= gap < model.mean_field_gap + 0.03


def test_where_a_task_has_much_data_variances_are_the_exact_ones() -> None:
    """s^2/n = 0.01 tau^2: exact and factorised variances differ by 1 %, the fit from both by less than 5 %; means are
    within 0.2 standard deviations."""
    model = NormalNormal((100,) * 5, noise=1.0, tau=1.0)
    hvi = model.fitted(model.with_known_scale(), local_steps=5)
    exact = model.exact_variances.sqrt()
    torch.testing.assert_close(exact, model.mean_field_variances.sqrt(), rtol=0.01, atol=0)
    mu, sigma = posteriors(hvi)
    torch.testing.assert_close(sigma, exact[1:], rtol=0.05, atol=0)
    torch.testing.assert_close(hvi.psi_.mean_std, exact[:1], rtol=0.01, atol=0)
    assert ((mu - model.exact_means[1:]).abs() / exact[1:]).max() < 0.2


def grid_moments(model: NormalNormal, hyperprior: mp.GaussianHyperprior) -> tuple[float, float, float]:
    """Mean and standard deviation of log tau given the data, and the log evidence, by quadrature."""
    log_tau = torch.linspace(-4, 4, 1601, dtype=torch.float64) + math.log(hyperprior.scale)
    prior = torch.distributions.Normal(math.log(hyperprior.scale), hyperprior.log_scale_std)
    joint = model.log_evidence(log_tau.exp()) + prior.log_prob(log_tau)
    weight = joint.softmax(0)
    mean = (weight * log_tau).sum()
    evidence = joint.logsumexp(0) + (log_tau[1] - log_tau[0]).log()
    return float(mean), float((weight * (log_tau - mean) ** 2).sum().sqrt()), float(evidence)


def test_an_unknown_scale_has_its_exact_marginal_posterior() -> None:
    """40 tasks, each well determined: mean of log tau within 0.1 standard deviations, its standard deviation within
    3 %; q(mu) within 0.1 and 3 % of the exact posterior at the scale that was found."""
    model = NormalNormal((1,) * 40, noise=0.05, tau=0.7)
    hyperprior = mp.GaussianHyperprior(mean_std=model.kappa, scale=1.0, log_scale_std=1.0)
    hvi = model.fitted(hyperprior, epochs=40, lr=0.2, samples=2)
    mean, std, evidence = grid_moments(model, hyperprior)
    psi = hvi.psi_
    assert abs(float(psi.log_scale) - mean) < 0.1 * std
    assert float(psi.log_scale_std) == pytest.approx(std, rel=0.03)
    tau = math.exp(mean)
    assert float(psi.mean) == pytest.approx(float(model.means.mean()), abs=0.1 * tau / math.sqrt(40))
    assert float(psi.mean_std) == pytest.approx(tau / math.sqrt(40), rel=0.03)
    assert expected_elbo(model, hvi) < evidence


def test_shrinkage_follows_the_number_of_data() -> None:
    r"""$\mu_i = B_i m + (1 - B_i)\bar y_i$ with $B_i = T/(T + n_i/s^2)$, within 0.1 standard deviations of the task;
    from mostly the shared mean (one observation) to hardly any of it (100)."""
    sizes = (1, 1, 10, 10, 100)
    model = NormalNormal(sizes, noise=1.0, tau=0.5)
    hvi = model.fitted(model.with_known_scale())
    mu, _ = posteriors(hvi)
    held = float(hvi.psi_.precision)
    shrinkage = held / (held + model.data_precision)
    assert shrinkage[0] > 0.75
    assert shrinkage[-1] < 0.05
    expected = shrinkage * hvi.psi_.mean + (1 - shrinkage) * model.means
    assert ((mu - expected).abs() * (held + model.data_precision).sqrt()).max() < 0.1


@pytest.mark.parametrize("epochs", [1, 5, 50])
@pytest.mark.parametrize("known", [True, False])
def test_the_bound_is_below_the_log_evidence_all_the_way(epochs: int, known: bool) -> None:
    """``elbo`` from 2,000 weight samples is its own expectation (in the end within 0.05 nats), and both are below the
    evidence."""
    model = MODEL
    hyperprior = model.with_known_scale() if known else mp.GaussianHyperprior(mean_std=model.kappa, scale=0.5)
    hvi = model.fitted(hyperprior, epochs=epochs)
    evidence = float(model.log_evidence(torch.tensor([model.tau]))) if known else grid_moments(model, hyperprior)[2]
    expected = expected_elbo(model, hvi)
    found = hvi.elbo(model.tasks, samples=2000).elbo
    assert found == pytest.approx(expected, abs=0.05 if epochs == 50 else 0.5)
    assert expected <= evidence
    assert found <= evidence
    if epochs == 50:
        assert evidence - expected < 1.0


def test_terms_of_the_history_are_the_bounds_own(settled: mp.HierarchicalVI) -> None:
    """The last epoch's are within 2 nats of the bound: one noisy estimate for each task, at the psi of its visit."""
    model, hvi = MODEL, settled
    assert len(hvi.history_) == 60
    last = hvi.history_[-1]
    assert last.observations == sum(model.sizes)
    assert -last.loss * last.observations == pytest.approx(expected_elbo(model, hvi), abs=2.0)
    assert last.hyper * last.observations == pytest.approx(hvi.psi_.kl_to(hvi.model.hyperprior), rel=1e-12)


def test_a_new_task_is_learned_as_if_it_had_been_there(settled: mp.HierarchicalVI) -> None:
    """Its posterior under psi: conjugate, means within 0.1 standard deviations, standard deviations within 5 %."""
    model, hvi = MODEL, settled
    y = torch.tensor([3.0, 3.5, 2.5], dtype=torch.float64)
    q = hvi.adapt(mp.Examples(torch.ones(3, 1, dtype=torch.float64), y), 200, lr=0.1, samples=8).weights
    held = float(hvi.psi_.precision)
    precision = 3 / model.noise**2 + held
    assert abs(float(q.mu) - (float(y.sum()) + held * float(hvi.psi_.mean)) / precision) < 0.1 / math.sqrt(precision)
    assert float(q.sigma) == pytest.approx(precision**-0.5, rel=0.05)


def line(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 2, dtype=torch.float64, generator=generator)
    return x, x[:, 0].sin() + 0.1 * torch.randn(count, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("batch_size", [8, 23, 100])
def test_one_task_under_a_known_theta_is_bayes_by_backprop(batch_size: int) -> None:
    """To rounding: weights, the learned noise scale, and the history; several minibatches, the last a small one."""
    torch.manual_seed(0)
    net, (x, y) = mp.MLP(2, [6], 1).double(), line(23)
    size = sum(p.numel() for p in net.parameters())
    rho = torch.full((size,), math.log(math.expm1(1.0)), dtype=torch.float64)
    theta = mp.WeightDistribution(torch.zeros_like(rho), rho, {})
    same = {"lr": 0.02, "samples": 3, "kl_warmup": 0.0, "batch_size": batch_size, "epochs": 6, "progress": False}
    alone = mp.BayesByBackprop(net, mp.Gaussian(), prior=theta, standardize=False, seed=5).fit(x, y, **same)
    hvi = mp.HierarchicalVI(net, mp.Gaussian(), hyperprior=theta, seed=5, standardize=False)
    hvi.fit({"all": (x, y)}, local_steps=math.ceil(23 / batch_size), **same)
    q, expected = hvi.posterior("all").weights, alone.posterior_.weights
    assert set(q.plain) == set(expected.plain) == {"likelihood.rho"}
    exactly = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close((q.mu, q.rho, q.plain), (expected.mu, expected.rho, expected.plain), **exactly)
    terms = [(epoch.nll, epoch.kl, epoch.hyper) for epoch in hvi.history_]
    torch.testing.assert_close(
        torch.tensor(terms, dtype=torch.float64),
        torch.tensor([(epoch.nll, epoch.kl, 0.0) for epoch in alone.history_], dtype=torch.float64),
        **exactly,
    )


def test_the_prior_is_left_alone_where_theta_is_known() -> None:
    theta = mp.WeightDistribution(torch.tensor([0.3]).double(), torch.tensor([-0.2]).double(), {})
    model = NormalNormal((4,) * 3)
    hvi = mp.HierarchicalVI(one_weight(), mp.Gaussian(noise=1.0), hyperprior=theta, standardize=False)
    hvi.fit(model.tasks, epochs=2, progress=False)
    assert torch.equal(hvi.psi_.mean, theta.mu)
    torch.testing.assert_close(hvi.psi_.precision, theta.sigma**-2, rtol=1e-14, atol=0)
    assert float(hvi.psi_.mean_std) == float(hvi.psi_.log_scale_std) == 0.0
