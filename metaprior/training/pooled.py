r"""Plain training on pooled tasks: the warm start, and what one would do without meta-learning.

$\frac1N\sum_n -\log p(y_n | \mu, \text{plain})$ over the support and query sets of several tasks together: no inner
loop, no noise, sigma plays no part.
"""

from collections.abc import Sequence

import torch

from metaprior.metagrad.adaptation import damage, first_non_finite
from metaprior.metagrad.meta_batch import BatchSums, MetaBatch, no_mean
from metaprior.metagrad.problem import OuterTerms, Problem
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


def pooled_sums(problem: Problem, theta: WeightDistribution, tasks: Sequence[Task]) -> BatchSums:
    """Return the loss and its gradient, summed over observations; the gradient by scales of theta is zero.

    A task whose data are not finite is left out, and named among the failures. Whether the sums are finite is checked
    by ``mean_of_pool``, when all ranks' sums are added.
    """
    damages = [damage(task) for task in tasks]
    damaged = tuple(filter(None, damages))
    tasks = [task for task, found in zip(tasks, damages, strict=True) if found is None]
    if not tasks:
        return BatchSums(failures=damaged)
    x, y = map(torch.cat, zip(*(part for task in tasks for part in (task.support, task.query)), strict=True))
    leaves = theta.map(lambda value: value.detach().requires_grad_())
    total = torch.zeros_like(theta.mu[0])
    size = problem.micro_batch or len(x)
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        with torch.enable_grad():
            outputs = problem.network(leaves.mu, leaves.plain, x[rows])
            loss = problem.likelihood.nll(outputs, y[rows], leaves.plain).sum()
        loss.backward()
        total += loss.detach()
    grads: Parameters = leaves.map(lambda leaf: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
    zero = torch.zeros_like(total)
    return BatchSums(tuple(task.name for task in tasks), len(x), grads, OuterTerms(zero, total, zero, zero), damaged)


def mean_of_pool(sums: BatchSums, theta: WeightDistribution) -> MetaBatch:
    """Return the mean over observations as a meta-batch; if it is not finite, all its tasks count as failed."""
    batch = sums.mean(theta)
    if not batch.count:
        return batch
    grads = {f"gradient by {name}": grad for name, grad in batch.grads.named().items() if name != "rho"}
    named = {"pooled nll": batch.loss, **grads}
    if failure := first_non_finite(named, f"{sums.names[0]} and {len(sums.names) - 1} others", "outer"):
        return no_mean(theta, [*batch.failures, *[failure] * batch.count])
    return batch
