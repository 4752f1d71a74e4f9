import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.adaptation.descent import DescentModel
from metaprior.likelihoods import NOISE_RHO
from metaprior.metagrad.meta_batch import mean_of_pool
from tests.training.lines import damaged, line, lines, make_problem, network_module

TASKS = [*lines(2), line(2, support=2, query=3)]


def by_hand() -> tuple[Tensor, dict[str, Tensor]]:
    """The mean negative log-likelihood of all observations of all tasks, and torch's own gradient of it."""
    module, rho = network_module(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    x = torch.cat([torch.cat([task.support.x, task.query.x]) for task in TASKS])
    y = torch.cat([torch.cat([task.support.y, task.query.y]) for task in TASKS])
    scale = F.softplus(rho)
    nll = 0.5 * ((y - module(x)) / scale) ** 2 + scale.log() + 0.5 * math.log(2 * math.pi)
    loss = nll.sum() / len(x)
    loss.backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    return loss.detach(), {**grads, NOISE_RHO: rho.grad}


@pytest.mark.parametrize("micro_batch", [None, 1, 5, 100])
def test_pooled_gradients_are_plain_ones(micro_batch: int | None) -> None:
    problem = replace(make_problem(), micro_batch=micro_batch)
    theta = problem.initial(torch.ones(2, 1, dtype=torch.float64))
    theta = theta.replace(plain={**theta.plain, NOISE_RHO: torch.tensor(0.3, dtype=torch.float64)})
    loss, grads = by_hand()
    batch = mean_of_pool(DescentModel(problem).pooled_sums(theta, TASKS), theta)
    torch.testing.assert_close(batch.loss, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(batch.terms.nll_query, loss, rtol=1e-12, atol=0)
    found = {**batch.grads.plain, **problem.network.layout.split(batch.grads.mu)}
    for name, grad in grads.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-12, atol=1e-15, msg=name)
    assert not batch.grads.rho.any()
    assert not batch.grads.log_lr.any()
    assert batch.count == 3
    assert theta.mu.grad is None


@pytest.mark.parametrize("part", ["support", "query"])
def test_pooled_data_that_are_not_finite_are_a_failure(part: str) -> None:
    problem = make_problem()
    theta = problem.initial(torch.ones(2, 1, dtype=torch.float64))
    bad = [damaged(TASKS[0], part), damaged(TASKS[1], part)]
    batch = mean_of_pool(DescentModel(problem).pooled_sums(theta, bad), theta)
    assert batch.count == 0
    assert [failure.term for failure in batch.failures] == [f"{part} y"] * 2
    assert "line 0" in batch.failures[0].task
