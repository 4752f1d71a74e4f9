"""Context and closed form: the loss of each task alone by hand, and gradients by finite differences."""

import pytest
import torch
from torch import Tensor

import metaprior as mp
from metaprior.adaptation import bind
from metaprior.adaptation.closed_form.conjugate import condition
from metaprior.adaptation.closed_form.parameters import prior_of
from metaprior.adaptation.context.with_closed_form import ContextClosedFormModel
from metaprior.adaptation.task_model import Binding
from metaprior.likelihoods import NOISE_RHO, Gaussian
from metaprior.models.small import MLP
from metaprior.network import NOTHING_RANDOM, BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

SIZE = 4


def double_model(components: int = 2) -> ContextClosedFormModel:
    torch.manual_seed(0)
    network = BayesianNetwork(MLP(2, [4, 3], 1, "tanh").double(), NOTHING_RANDOM)
    model = bind(mp.Context(SIZE) + mp.ClosedForm(components=components), Binding(network, Gaussian()))
    assert isinstance(model, ContextClosedFormModel)
    return model


def moved(model: ContextClosedFormModel) -> WeightDistribution:
    """Return a theta in which nothing is zero."""
    theta = model.initial(torch.randn(20, 1, dtype=torch.float64))
    return theta.map(lambda value: value + 0.2 * torch.randn_like(value))


def some_tasks() -> list[Task]:
    def examples(count: int) -> Examples:
        return Examples(torch.randn(count, 2, dtype=torch.float64), torch.randn(count, 1, dtype=torch.float64))

    return [Task(examples(k), examples(q), f"task {k}") for k, q in ((0, 3), (1, 4), (5, 2))]


def features(theta: WeightDistribution, context: Tensor, x: Tensor) -> Tensor:
    """Return the outputs of the two hidden layers, scaled and shifted by what they read, and a constant."""
    reads = (theta.plain["context.weight"] @ context).split([8, 6])
    for layer, read in zip((0, 2), reads, strict=True):
        scale, shift = read.chunk(2)
        x = x @ theta.plain[f"layers.{layer}.weight"].mT + theta.plain[f"layers.{layer}.bias"]
        x = (x * (1 + scale) + shift).tanh()
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def test_the_loss_is_that_of_each_task_alone_by_hand() -> None:
    model = double_model(1)
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
    model = double_model()
    theta, tasks = moved(model), some_tasks()
    grads = model.sums(theta, tasks, Noise()).grads
    assert grads is not None
    assert grads.named().keys() == theta.named().keys()

    def total(there: WeightDistribution) -> float:
        terms = model.sums(there, tasks, Noise()).terms
        assert terms is not None
        return float(terms.total)

    direction = theta.map(torch.randn_like)
    slope = sum(float((g * d).sum()) for g, d in zip(grads.tensors(), direction.tensors(), strict=True))
    ahead, behind = (theta.zip_map(lambda a, b, s=s: a + s * 1e-6 * b, direction) for s in (1, -1))
    assert slope == pytest.approx((total(ahead) - total(behind)) / 2e-6, rel=1e-6)


def test_no_examples_are_the_prior() -> None:
    model = double_model()
    theta, task = moved(model), some_tasks()[2]
    empty = model.adapt(theta, task.support.first(0), Noise())
    assert torch.equal(empty.predict(task.query.x).std, model.prior(theta).predict(task.query.x).std)  # type: ignore[union-attr]


def test_the_evidence_of_what_the_features_have_read_is_no_objective() -> None:
    network = BayesianNetwork(MLP(2, [4], 1), NOTHING_RANDOM)
    with pytest.raises(ValueError, match="objective must be one of predictive, got 'evidence'"):
        bind(mp.Context() + mp.ClosedForm(), Binding(network, Gaussian(), "evidence"))
