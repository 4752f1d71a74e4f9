"""Context and closed form: the loss of each task alone by hand, and gradients by finite differences."""

import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.adaptation.closed_form.conjugate import condition
from metaprior.adaptation.closed_form.parameters import prior_of
from metaprior.likelihoods import NOISE_RHO
from metaprior.noise import Noise
from metaprior.weights import WeightDistribution
from tests.adaptation.context.small import check_gradient, double_model, moved, some_tasks

SIZE = 4


def closed_form(components: int) -> mp.Combination:
    return mp.Context(SIZE) + mp.ClosedForm(components=components)


def features(theta: WeightDistribution, context: Tensor, x: Tensor) -> Tensor:
    """Return the outputs of the two hidden layers, scaled and shifted by what they read, and a constant."""
    reads = (theta.plain["context.weight"] @ context).split([8, 6])
    for layer, read in zip((0, 2), reads, strict=True):
        scale, shift = read.chunk(2)
        x = x @ theta.plain[f"layers.{layer}.weight"].mT + theta.plain[f"layers.{layer}.bias"]
        x = (x * (1 + scale) + shift).tanh()
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def test_the_loss_is_that_of_each_task_alone_by_hand() -> None:
    model = double_model(closed_form(1))
    theta, tasks = moved(model), some_tasks()
    terms = model.sums(theta, tasks, Noise()).terms
    assert terms is not None
    expected = torch.zeros((), dtype=torch.float64)
    for support, query, _ in tasks:
        context = model._conditioning.contexts(theta, [support])[0]
        noise = torch.nn.functional.softplus(theta.plain[NOISE_RHO])
        posterior = condition(prior_of(theta.plain), features(theta, context, support.x), support.y, noise)
        found = posterior.predict(features(theta, context, query.x))
        forecast = torch.distributions.Normal(found.mean[0], (found.variance[0] + noise**2).sqrt())
        expected = expected - forecast.log_prob(query.y).mean()
    torch.testing.assert_close(terms.total, expected)


def test_the_gradient_is_that_of_finite_differences() -> None:
    model = double_model(closed_form(2))
    check_gradient(model, moved(model), some_tasks())


def test_no_examples_are_the_prior() -> None:
    model = double_model(closed_form(2))
    theta, task = moved(model), some_tasks()[2]
    empty = model.adapt(theta, task.support.first(0), Noise())
    assert torch.equal(empty.predict(task.query.x).std, model.prior(theta).predict(task.query.x).std)  # type: ignore[union-attr]


def test_the_evidence_of_what_the_features_have_read_is_no_objective() -> None:
    with pytest.raises(ValueError, match="objective must be one of predictive, got 'evidence'"):
        double_model(closed_form(1), objective="evidence")
