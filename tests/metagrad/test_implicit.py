"""Implicit differentiation is right where its assumption holds: at a minimum of the inner loss."""

import pytest
import torch
from torch import nn

from metaprior.likelihoods import Gaussian
from metaprior.metagrad import Descent, Implicit, MetaGradient, Problem, QueryLoss, implicit, unrolled
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task


class OneNoise(Noise):
    """The same noise in every step, so that the inner loss has a minimum to converge to."""

    def at(self, *, task: int | None = None, step: int | None = None, sample: int | None = None) -> Noise:
        return super().at(task=task, step=0, sample=sample)


def regression(steps: int) -> tuple[Problem, Task]:
    module = nn.Linear(2, 1, bias=False).double()
    x = torch.tensor([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.8]], dtype=torch.float64)
    y = x @ torch.tensor([[0.5], [-1.0]], dtype=torch.float64)
    inner = Descent(steps=steps, lr=0.05, kl_weight=1.0)
    problem = Problem(BayesianNetwork(module), Gaussian(noise=0.5), inner, QueryLoss())
    return problem, Task(Examples(x, y), Examples(x + 0.3, y))


def solve(engine: Implicit, steps: int) -> tuple[MetaGradient, MetaGradient]:
    problem, task = regression(steps)
    theta = problem.network.initial(relative_sigma=0.5)
    noise = OneNoise(seed=1)
    found, expected = engine(problem, theta, task, noise), unrolled(problem, theta, task, noise)
    assert isinstance(found, MetaGradient)
    assert isinstance(expected, MetaGradient)
    return found, expected


def error(found: MetaGradient, expected: MetaGradient) -> float:
    return float((found.grads.mu - expected.grads.mu).norm() / expected.grads.mu.norm())


def test_error_vanishes_as_the_inner_loop_converges() -> None:
    errors = [error(*solve(implicit, steps)) for steps in (3, 30, 600)]
    assert min(errors[:2]) > 0.05
    assert errors[2] < 1e-6
    found, _ = solve(implicit, 600)
    assert found.diagnostics["inner_gradient"] < 1e-5
    assert found.diagnostics["residual"] < 1e-8


def test_few_iterations_and_damping_cost_accuracy_and_say_so() -> None:
    rough, expected = solve(Implicit(iterations=1), 600)
    damped, _ = solve(Implicit(damping=1.0), 600)
    assert rough.diagnostics["residual"] > 1e-3
    assert error(rough, expected) > 1e-4
    assert error(damped, expected) > 1e-4


def test_without_a_kl_there_is_nothing_to_learn() -> None:
    problem, task = regression(2)
    free = Problem(problem.network, problem.likelihood, Descent(steps=2, kl_weight=0.0), QueryLoss())
    value = implicit(free, problem.network.initial(), task, Noise())
    assert isinstance(value, MetaGradient)
    assert not bool(value.grads.mu.any())


@pytest.mark.parametrize("steps", [0, 2])
def test_a_bad_task_is_a_value(steps: int) -> None:
    problem, task = regression(steps)
    bad = task._replace(query=Examples(task.query.x, task.query.y + torch.inf))
    value = implicit(problem, problem.network.initial(), bad, Noise())
    assert "nll_query" in str(value)
