"""Small models in float64, tasks of several sizes, and the check of gradients, for all models with a context."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.adaptation import TaskModel, bind
from metaprior.adaptation.task_model import Binding
from metaprior.models.small import MLP
from metaprior.network import NOTHING_RANDOM, BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

GAUSSIAN = mp.Gaussian()


def double_model(
    adaptation: Any,
    likelihood: mp.Likelihood = GAUSSIAN,
    outputs: int = 1,
    stochastic: str = NOTHING_RANDOM,
    **binding: Any,
) -> Any:
    """Return the task model of a network with two inputs and two hidden layers."""
    torch.manual_seed(0)
    network = BayesianNetwork(MLP(2, [4, 3], outputs, "tanh").double(), stochastic)
    return bind(adaptation, Binding(network, likelihood, **binding))


def moved(model: TaskModel, by: float = 0.2) -> WeightDistribution:
    """Return a theta in which nothing is zero."""
    theta = model.initial(torch.randn(20, 1, dtype=torch.float64))
    return theta.map(lambda value: value + by * torch.randn_like(value))


def some_tasks(sizes: Sequence[tuple[int, int]] = ((0, 3), (1, 4), (5, 2))) -> list[Task]:
    """Return tasks with these numbers of support and query examples."""

    def examples(count: int) -> Examples:
        return Examples(torch.randn(count, 2, dtype=torch.float64), torch.randn(count, 1, dtype=torch.float64))

    return [Task(examples(k), examples(q), f"task {index}") for index, (k, q) in enumerate(sizes)]


def check_gradient(model: TaskModel, theta: WeightDistribution, tasks: Sequence[Task], *, rel: float = 1e-6) -> None:
    """Check the gradient by everything in theta against finite differences along three directions."""

    def total(there: WeightDistribution) -> float:
        terms = model.sums(there, tasks, Noise(1)).terms
        assert terms is not None
        return float(terms.total)

    grads = model.sums(theta, tasks, Noise(1)).grads
    assert grads is not None
    assert grads.named().keys() == theta.named().keys()
    assert all(bool(grad.any()) for grad in grads.tensors() if grad.numel())
    for _ in range(3):
        direction = theta.map(torch.randn_like)
        slope = sum(float((g * d).sum()) for g, d in zip(grads.tensors(), direction.tensors(), strict=True))
        ahead, behind = (theta.zip_map(lambda a, b, s=s: a + s * 1e-6 * b, direction) for s in (1, -1))
        assert slope == pytest.approx((total(ahead) - total(behind)) / 2e-6, rel=rel)
