"""Many tasks: one after the other and all at once are the same, and a bad task does not touch the others."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import (
    AmortizedELBO,
    Descent,
    Problem,
    QueryLoss,
    checkpointed,
    first_order,
    keeping,
    meta_batch,
    meta_gradient,
    mixed,
    truncated,
    twice_reverse,
    unrolled,
)
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

RICH = Descent(steps=3, lr=2e-3, learn_lr="per_tensor", momentum=0.4, samples=2, adapt="likelihood.*")


def make_tasks(count: int) -> list[Task]:
    def examples(number: int) -> Examples:
        x = torch.randn(number, 2, dtype=torch.float64)
        return Examples(x, x.sum(1, keepdim=True).sin())

    return [Task(examples(4), examples(3), f"task {i}") for i in range(count)]


def make_problem(inner: Descent = RICH, stochastic: str = ".*") -> tuple[Problem, WeightDistribution]:
    module = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    problem = Problem(BayesianNetwork(module, stochastic), Gaussian(), inner, AmortizedELBO(5, samples=2))
    return problem, problem.initial(torch.ones(4, 1, dtype=torch.float64), relative_sigma=0.3)


def tensors(grads: WeightDistribution) -> dict[str, Tensor]:
    return grads.named()


def assert_same(found: WeightDistribution, expected: WeightDistribution) -> None:
    for name, tensor in tensors(expected).items():
        torch.testing.assert_close(tensors(found)[name], tensor, rtol=1e-10, atol=1e-13, msg=name)


@pytest.mark.parametrize("stochastic", [".*", "2.*"], ids=["all random", "a learned trunk"])
@pytest.mark.parametrize(
    "engine", [mixed, twice_reverse, keeping(2), keeping(9), first_order, truncated(2)], ids=lambda e: e.name
)
def test_stacked_tasks_are_the_tasks_one_by_one(engine: Engine, stochastic: str) -> None:
    (problem, theta), tasks, noise = make_problem(stochastic=stochastic), make_tasks(4), Noise(3, task=10)
    loop = meta_gradient(problem, theta, tasks, noise, engine=engine)
    for micro_batch in (None, 3):
        stack = meta_gradient(
            replace(problem, micro_batch=micro_batch), theta, tasks, noise, engine=engine, stacked=True
        )
        assert_same(stack.grads, loop.grads)
        torch.testing.assert_close(torch.stack(stack.terms), torch.stack(loop.terms), rtol=1e-12, atol=1e-14)
        assert stack.count == loop.count == 4


def test_mean_over_tasks_with_their_own_noise() -> None:
    (problem, theta), tasks, noise = make_problem(), make_tasks(3), Noise(3, task=7)
    values = [unrolled(problem, theta, task, noise.at(task=7 + i)) for i, task in enumerate(tasks)]
    batch = meta_gradient(problem, theta, tasks, noise)
    torch.testing.assert_close(batch.grads.mu, torch.stack([v.grads.mu for v in values]).mean(0), rtol=1e-10, atol=0)
    torch.testing.assert_close(batch.loss, torch.stack([v.loss for v in values]).mean())


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("where", ["support", "query"])
def test_a_bad_task_is_named_and_left_out(stacked: bool, where: str) -> None:
    (problem, theta), tasks, noise = make_problem(), make_tasks(3), Noise(3)
    whole = getattr(tasks[1], where)
    bad = tasks[1]._replace(**{where: Examples(whole.x, whole.y.clone().fill_(1e200))})
    batch = meta_gradient(problem, theta, [tasks[0], bad, tasks[2]], noise, stacked=stacked)
    values = [unrolled(problem, theta, tasks[i], noise.at(task=i)) for i in (0, 2)]
    torch.testing.assert_close(batch.grads.mu, torch.stack([v.grads.mu for v in values]).mean(0), rtol=1e-10, atol=0)
    (failure,) = batch.failures
    assert (failure.task, failure.step) == ("task 1", 0 if where == "support" else "outer")
    assert "nll" in failure.term
    assert batch.count == 2


@pytest.mark.parametrize("stacked", [False, True])
def test_damaged_data_are_told_from_what_diverged(stacked: bool) -> None:
    (problem, theta), tasks = make_problem(), make_tasks(3)
    y = tasks[1].query.y + torch.inf
    bad = tasks[1]._replace(query=Examples(tasks[1].query.x, y))
    batch = meta_gradient(problem, theta, [tasks[0], bad, tasks[2]], Noise(3), stacked=stacked)
    assert [(failure.task, failure.step, failure.term) for failure in batch.failures] == [("task 1", "data", "query y")]
    expected = [unrolled(problem, theta, tasks[i], Noise(3).at(task=i)).grads.mu for i in (0, 2)]
    torch.testing.assert_close(batch.grads.mu, torch.stack(expected).mean(0), rtol=1e-10, atol=0)


@pytest.mark.parametrize("stacked", [False, True])
def test_nothing_left_is_nan_and_not_zero(stacked: bool) -> None:
    problem, theta = make_problem()
    bad = [task._replace(support=Examples(task.support.x, task.support.y + torch.inf)) for task in make_tasks(2)]
    batch = meta_gradient(problem, theta, bad, Noise(), stacked=stacked)
    assert batch.count == 0
    assert len(batch.failures) == 2
    assert bool(batch.loss.isnan())
    assert all(bool(tensor.isnan().all()) for tensor in tensors(batch.grads).values())


def test_what_cannot_be_stacked_says_so() -> None:
    (problem, theta), (one, two) = make_problem(), make_tasks(2)
    shorter = two._replace(query=Examples(two.query.x[:2], two.query.y[:2]))
    with pytest.raises(ValueError, match="equal shapes"):
        meta_gradient(problem, theta, [one, shorter], Noise(), stacked=True)
    with pytest.raises(ValueError, match="checkpointed works on one task at a time"):
        meta_gradient(problem, theta, [one, two], Noise(), engine=checkpointed, stacked=True)
    with pytest.raises(ValueError, match="at least one task"):
        meta_gradient(problem, theta, [], Noise())
    assert meta_gradient(problem, theta, [one, shorter], Noise()).count == 2


def test_a_network_that_cannot_be_vectorised_says_so() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y if float(y.detach().sum()) > 0 else -y

    problem = Problem(BayesianNetwork(Branching().double()), Gaussian(noise=1.0), Descent(1), QueryLoss())
    theta = problem.network.initial()
    with pytest.raises(ValueError, match="use stacked=False"):
        meta_gradient(problem, theta, make_tasks(2), Noise(), stacked=True)


def test_only_the_bad_tasks_of_a_stack_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = make_tasks(5)
    tasks[1] = tasks[1]._replace(query=Examples(tasks[1].query.x, tasks[1].query.y * 1e200))
    problem = Problem(BayesianNetwork(nn.Linear(2, 1).double()), Gaussian(), RICH)
    theta = problem.initial(torch.ones(2, 1, dtype=torch.float64))
    expected = meta_gradient(problem, theta, tasks, Noise(3), engine=mixed)
    alone = []
    real = meta_batch._one_by_one

    def watched(problem: Problem, theta: WeightDistribution, tasks: list[Task], *rest: object) -> meta_batch.BatchSums:
        alone.append([task.name for task in tasks])
        return real(problem, theta, tasks, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(meta_batch, "_one_by_one", watched)
    found = meta_gradient(problem, theta, tasks, Noise(3), engine=mixed, stacked=True)
    assert alone == [["task 1"]]
    assert found.count == expected.count == 4
    assert [str(failure) for failure in found.failures] == [str(failure) for failure in expected.failures]
    torch.testing.assert_close(found.grads.mu, expected.grads.mu, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.grads.plain, expected.grads.plain, rtol=1e-12, atol=1e-12)
