"""The closed form against dense linear algebra, in both spaces, at the edges, and by simulation."""

import math
from itertools import product

import pytest
import torch
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor

from metaprior.adaptation.closed_form.conjugate import JITTERS, HeadPrior, Space, cholesky, condition

SPACES: tuple[Space, ...] = ("weight", "function")


def normals(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def some_prior(components: int = 2, outputs: int = 3, d: int = 5, rank: int = 4, seed: int = 0) -> HeadPrior:
    mean, factor = normals(seed, components, outputs, d), normals(seed + 1, components, outputs, d, rank)
    return HeadPrior(mean, factor, normals(seed + 2, components))


def dense(prior: HeadPrior, k: int, c: int, phi: Tensor, y: Tensor, s: Tensor, query: Tensor) -> tuple[Tensor, ...]:
    """Return log evidence, and mean and covariance at the query rows, from the n x n Gaussian of the targets."""
    mean, factor = prior.mean[k, c], prior.factor[k, c]
    weights = factor @ factor.T
    noisy = phi @ weights @ phi.T + torch.diag(s**2)
    evidence = torch.distributions.MultivariateNormal(phi @ mean, noisy).log_prob(y) if len(y) else torch.zeros(())
    gain = query @ weights @ phi.T @ torch.linalg.inv(noisy)
    return evidence, query @ mean + gain @ (y - phi @ mean), query @ weights @ query.T - gain @ phi @ weights @ query.T


@pytest.mark.parametrize(("n", "space"), [*product((0, 1, 3, 40), SPACES)])
def test_posterior_and_evidence_equal_dense_gaussians(n: int, space: Space) -> None:
    prior, phi, y, query = some_prior(), normals(5, n, 5), normals(6, n, 3), normals(7, 4, 5)
    s = 0.3 + normals(8, 2, n, 3).abs()  # each row, output and component its own scale
    posterior = condition(prior, phi, y, s, space=space)
    found = posterior.predict(query)
    evidence = torch.zeros(2, dtype=torch.float64)
    for k, c in product(range(2), range(3)):
        log_p, mean, covariance = dense(prior, k, c, phi, y[:, c], s[k, :, c], query)
        evidence[k] += log_p
        torch.testing.assert_close(found.mean[k, :, c], mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found.variance[k, :, c], covariance.diagonal(), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(query @ posterior.mean[k, c], mean, rtol=1e-8, atol=1e-8)
        spread = query @ prior.factor[k, c]
        whole = spread @ posterior.whitened_covariance()[k, c] @ spread.T
        torch.testing.assert_close(whole, covariance, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(posterior.log_evidence, evidence, rtol=1e-10, atol=1e-8)
    joint = prior.log_weights.softmax(0) * (evidence - evidence.max()).exp()
    torch.testing.assert_close(posterior.log_weights.exp(), joint / joint.sum(), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(posterior.log_marginal, joint.sum().log() + evidence.max(), rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_tempered_evidence_equals_an_integral_on_a_grid(space: Space, temperature: float) -> None:
    prior = HeadPrior(*(torch.tensor(v, dtype=torch.float64) for v in ([[[0.4]]], [[[[1.3]]]], [0.0])))
    phi, y, s = normals(1, 4, 1), normals(2, 4, 1), torch.tensor(0.7, dtype=torch.float64)
    z = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    w = 0.4 + 1.3 * z
    log_p = torch.distributions.Normal(phi * w, s).log_prob(y).sum(0) * temperature - 0.5 * z**2
    expected = torch.logsumexp(log_p, 0) + math.log(18 / 20000) - 0.5 * math.log(2 * math.pi)
    weights = torch.full((4, 1), temperature, dtype=torch.float64)
    found = condition(prior, phi, y, s, weights, space=space)
    torch.testing.assert_close(found.log_marginal, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", ["duplicates", "rank deficient", "many rows"])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_spaces_agree_for_hard_features_and_targets_of_any_size(case: str, size: float) -> None:
    prior, n = some_prior(), 300 if case == "many rows" else 8
    phi = normals(3, n, 5)
    if case == "duplicates":
        phi = phi[:1].expand(8, 5)
    if case == "rank deficient":
        phi = phi[:, :1] * normals(4, 1, 5)
    prior = prior._replace(mean=prior.mean * size, factor=prior.factor * size)
    y, scale = normals(5, n, 3) * size, torch.tensor(0.1 * size, dtype=torch.float64)
    one, two = (condition(prior, phi, y, scale, space=space) for space in SPACES)
    torch.testing.assert_close(one.log_evidence, two.log_evidence, rtol=1e-8, atol=1e-8)
    for a, b in zip(one.predict(normals(6, 9, 5)), two.predict(normals(6, 9, 5)), strict=True):
        torch.testing.assert_close(a / size, b / size, rtol=1e-8, atol=1e-8 * size)


@pytest.mark.parametrize("space", SPACES)
def test_missing_targets_are_those_dropped_by_hand(space: Space) -> None:
    prior, phi, y, query = some_prior(), normals(1, 7, 5), normals(2, 7, 3), normals(3, 4, 5)
    scale = 0.2 + normals(4, 7, 3).abs()
    observed = normals(5, 7, 3) > 0
    masked = condition(prior, phi, torch.where(observed, y, torch.nan), scale, observed, space=space)
    total = torch.zeros(2, dtype=torch.float64)
    for c in range(3):
        rows, own = observed[:, c], slice(c, c + 1)
        alone = prior._replace(mean=prior.mean[:, own], factor=prior.factor[:, own])
        dropped = condition(alone, phi[rows], y[rows, own], scale[rows, own])
        total += dropped.log_evidence
        for a, b in zip(masked.predict(query), dropped.predict(query), strict=True):
            torch.testing.assert_close(a[..., own], b, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(masked.log_evidence, total)


def test_a_batch_of_padded_tasks_and_of_priors_equals_single_calls() -> None:
    priors = [some_prior(seed=10 * draw) for draw in range(3)]
    stacked = HeadPrior(*(torch.stack(values).unsqueeze(1) for values in zip(*priors, strict=True)))
    sizes, phi, y = (0, 2, 6), normals(1, 3, 6, 5), normals(2, 3, 6, 3)
    observed = torch.arange(6)[None, :, None] < torch.tensor(sizes)[:, None, None]
    scale = torch.tensor(0.5)
    batch = condition(stacked, phi, y, scale, observed)
    forecasts = batch.predict(normals(3, 3, 4, 5))
    assert batch.log_evidence.shape == (3, 3, 2)
    for (draw, prior), (task, n) in product(enumerate(priors), enumerate(sizes)):
        one = condition(prior, phi[task, :n], y[task, :n], scale)
        torch.testing.assert_close(batch.log_evidence[draw, task], one.log_evidence)
        for a, b in zip(forecasts, one.predict(normals(3, 3, 4, 5)[task]), strict=True):
            torch.testing.assert_close(a[draw, task], b)


@pytest.mark.parametrize("space", SPACES)
def test_outputs_that_share_a_prior_need_one_matrix(space: Space) -> None:
    shared = some_prior(outputs=1)
    own = HeadPrior(shared.mean.expand(-1, 4, -1), shared.factor.expand(-1, 4, -1, -1), shared.log_weights)
    phi, y, scale = normals(1, 6, 5), normals(2, 6, 4), torch.tensor([0.5])
    one, many = (condition(prior, phi, y, scale, space=space) for prior in (shared, own))
    assert one.triangle.shape[-3] == 1
    torch.testing.assert_close(one.log_evidence, many.log_evidence)
    for a, b in zip(one.predict(phi), many.predict(phi), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("space", SPACES)
def test_gradients_by_everything_equal_finite_differences(space: Space) -> None:
    query, observed = normals(3, 2, 2, 4), torch.tensor([[[1, 1], [0, 1], [1, 0]], [[0, 0], [1, 1], [1, 1]]])

    def outcome(mean: Tensor, factor: Tensor, pi: Tensor, phi: Tensor, y: Tensor, log_s: Tensor, tau: Tensor) -> Tensor:
        found = condition(HeadPrior(mean, factor, pi), phi, y, log_s.exp(), observed * tau, space=space)
        forecast = found.predict(query)
        return torch.cat([v.flatten() for v in (found.log_marginal, found.log_weights, *forecast)])

    tau = torch.tensor(0.6, dtype=torch.float64)
    inputs = (*some_prior(2, 2, 4, 3), normals(1, 2, 3, 4), normals(2, 2, 3, 2), normals(4, 2, 1, 3, 2), tau)
    assert torch.autograd.gradcheck(outcome, tuple(value.clone().requires_grad_() for value in inputs))


def test_jitter_is_added_only_to_matrices_without_a_factor() -> None:
    good = torch.eye(3, dtype=torch.float64) + 0.1
    column = torch.tensor([1.0, 1e-9, 1.0], dtype=torch.float64)
    bad = 1e20 * torch.outer(column, column) - 1e3 * torch.eye(3, dtype=torch.float64)
    broken = torch.full((3, 3), torch.nan, dtype=torch.float64)
    found = cholesky(torch.stack([good, bad, broken]))
    assert torch.equal(found[0], torch.linalg.cholesky(good))
    assert torch.equal(found[1], cholesky(bad))
    assert (found[1] @ found[1].T - bad).abs().max() <= 2 * max(JITTERS) * 1e20
    assert found[2].isnan().all()


def test_ranks_of_the_truth_are_uniform_over_1000_conjugate_tasks() -> None:
    prior, tasks = some_prior(components=2, outputs=1), 1000
    generator = torch.Generator().manual_seed(3)
    k = torch.multinomial(prior.log_weights.softmax(0), tasks, replacement=True, generator=generator)
    z = torch.randn(tasks, 4, 1, dtype=torch.float64, generator=generator)
    w = (prior.mean[k, 0, :, None] + prior.factor[k, 0] @ z).squeeze(-1)
    phi, scale = normals(4, tasks, 6, 5), torch.tensor(0.4)
    observed = torch.rand(tasks, 6, 1, generator=generator) < 0.7
    y = (phi @ w.unsqueeze(-1)) + 0.4 * normals(5, tasks, 6, 1)
    posterior = condition(prior, phi, y, scale, observed)
    query = normals(6, tasks, 1, 5)
    truth = (query @ w.unsqueeze(-1)).flatten()
    forecast = posterior.predict(query)
    below = torch.special.ndtr((truth[:, None, None, None] - forecast.mean) / forecast.variance.sqrt())
    probability = (posterior.log_weights.exp() * below[..., 0, 0]).sum(-1)
    counts = torch.histc(probability, 20, 0, 1)
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_the_posterior_mean_is_where_plain_descent_ends() -> None:
    prior, phi, y = some_prior(components=1, outputs=1, rank=5), normals(1, 8, 5), normals(2, 8, 1)
    scale = torch.tensor(0.3, dtype=torch.float64)
    w = prior.mean[0, 0].clone().requires_grad_()
    precision = torch.linalg.inv(prior.factor[0, 0] @ prior.factor[0, 0].T)
    optimiser = torch.optim.LBFGS([w], lr=1, max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16)

    def loss() -> Tensor:
        optimiser.zero_grad()
        away = w - prior.mean[0, 0]
        value: Tensor = 0.5 * ((y[:, 0] - phi @ w) / scale).square().sum() + 0.5 * away @ precision @ away
        value.backward()
        return value

    optimiser.step(loss)
    torch.testing.assert_close(w.detach(), condition(prior, phi, y, scale).mean[0, 0], rtol=1e-6, atol=1e-6)
