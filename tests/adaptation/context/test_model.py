"""Context as a task model: losses by hand, gradients by finite differences."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import metaprior as mp
from metaprior.adaptation import bind
from metaprior.adaptation.context.reading import NOISE, VALUE
from metaprior.adaptation.task_model import Binding
from metaprior.likelihoods import NOISE_RHO, Gaussian, HeteroscedasticGaussian
from metaprior.models.small import MLP
from metaprior.models.unet import UNet
from metaprior.network import NOTHING_RANDOM, BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from tests.adaptation.context.small import check_gradient, double_model, moved, some_tasks

SIZE = 5
CONTEXT = mp.Context(SIZE)
PLAIN_NAMES = [name for name, _ in MLP(2, [4, 3], 1).named_parameters()]


@pytest.mark.parametrize("reading", ["layers", "inputs"])
def test_the_loss_of_tasks_of_any_size_is_that_of_each_alone_by_hand(reading: str) -> None:
    model = double_model(mp.Context(SIZE, reading))
    theta, tasks = moved(model), some_tasks()
    sums = model.sums(theta, tasks, Noise())
    expected = torch.zeros(())
    for task in tasks:
        context = model._conditioning.contexts(theta, [task.support])[0]
        plain = {name: theta.plain[name] for name in (*PLAIN_NAMES, "context.weight")}
        outputs = functional_call(model.network.module, {**plain, VALUE: context}, (task.query.x,))
        scale = nn.functional.softplus(theta.plain[NOISE_RHO] + theta.plain[NOISE] @ context)
        expected = expected - torch.distributions.Normal(outputs, scale).log_prob(task.query.y).mean()
    assert sums.terms is not None
    torch.testing.assert_close(sums.terms.total, expected)
    assert sums.names == ("task 0", "task 1", "task 2")
    assert sums.weight == 3


def test_the_gradient_is_that_of_finite_differences() -> None:
    model = double_model(CONTEXT)
    check_gradient(model, moved(model), some_tasks())


def test_missing_targets_are_as_if_they_were_not_there() -> None:
    model = double_model(CONTEXT, HeteroscedasticGaussian(), 4)
    theta = moved(model)
    x, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    y[1, 0] = y[4, 1] = torch.nan
    sums = model.sums(theta, [Task(Examples(x[:3], y[:3]), Examples(x[3:], y[3:]))], Noise())
    context = model._conditioning.contexts(theta, [Examples(x[:3], y[:3])])[0]
    given = model._conditioning.given(theta, context)
    mean, raw = model.network(given.mu, given.plain, x[3:]).chunk(2, 1)
    log_p = torch.distributions.Normal(mean, nn.functional.softplus(raw) + 1e-3).log_prob(y[3:].nan_to_num(0.0))
    assert sums.terms is not None
    assert not sums.failures
    torch.testing.assert_close(sums.terms.total, -log_p[~y[3:].isnan()].sum() / 3)


def test_a_damaged_task_is_left_out_and_named() -> None:
    model = double_model(CONTEXT)
    theta, tasks = moved(model), some_tasks()
    bad = tasks[1]._replace(support=Examples(tasks[1].support.x + torch.inf, tasks[1].support.y))
    sums = model.sums(theta, [tasks[0], bad, tasks[2]], Noise())
    rest = model.sums(theta, [tasks[0], tasks[2]], Noise())
    assert [failure.task for failure in sums.failures] == ["task 1"]
    assert sums.grads is not None
    assert rest.grads is not None
    assert all(torch.equal(a, b) for a, b in zip(sums.grads.tensors(), rest.grads.tensors(), strict=True))


def test_the_start_is_the_plain_network_and_no_examples_are_the_prior() -> None:
    model = double_model(CONTEXT)
    theta, x = model.initial(torch.ones(3, 1, dtype=torch.float64)), torch.randn(4, 2, dtype=torch.float64)
    support = some_tasks()[2].support
    plain = functional_call(MLP(2, [4, 3], 1, "tanh").double(), {n: theta.plain[n] for n in PLAIN_NAMES}, (x,))
    posterior = model.adapt(theta, support, Noise()).predict(x)  # type: ignore[union-attr]
    torch.testing.assert_close(posterior.mean, plain)
    theta = moved(model)
    empty = model.adapt(theta, support.first(0), Noise()).predict(x)  # type: ignore[union-attr]
    prior, adapted = model.prior(theta).predict(x), model.adapt(theta, support, Noise()).predict(x)  # type: ignore[union-attr]
    assert torch.equal(empty.mean, prior.mean)
    assert torch.equal(empty.std, prior.std)
    assert not torch.allclose(adapted.mean, prior.mean)
    assert not torch.allclose(adapted.std, prior.std)
    assert prior.samples.shape == (1, 4, 1)
    assert not prior.epistemic.any()


def test_images_of_several_sizes_share_a_meta_batch() -> None:
    torch.manual_seed(0)
    network = BayesianNetwork(UNet(1, 1, 4, 1), NOTHING_RANDOM)
    model = bind(CONTEXT, Binding(network, Gaussian()))
    theta = model.initial(torch.randn(20, 1))
    tasks = []
    for size in (8, 12, 8):
        x, y = torch.randn(3, 1, size, size), torch.randn(3, 1, size, size)
        tasks.append(Task(Examples(x[:1], y[:1]), Examples(x[1:], y[1:]), f"{size} pixels"))
    together, alone = model.sums(theta, tasks, Noise()), [model.sums(theta, [task], Noise()) for task in tasks]
    assert together.weight == 3
    assert together.terms is not None
    total = sum(float(one.terms.total) for one in alone if one.terms is not None)
    assert float(together.terms.total) == pytest.approx(total, rel=1e-5)
