"""Full unrolling: K graphs alive at once. The reference, and what other libraries do."""

from dataclasses import dataclass

import torch

from metaprior.metagrad import reference
from metaprior.metagrad.adaptation import first_non_finite, inner_terms
from metaprior.metagrad.problem import MetaGradient, NonFinite, Problem
from metaprior.metagrad.sweep import checked
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution


@dataclass(frozen=True)
class Unrolled:
    """Reverse mode through everything. Memory grows with the number of steps; micro-batches do not help it."""

    name: str = "unrolled"
    exact: bool = True

    @torch.enable_grad()
    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Outer loss of one task, its gradient, and its terms."""
        problem.check_theta(theta)
        leaves = reference.leaves_of(theta)
        iterate = reference.start(problem, leaves)
        nll, kl = [], []
        for step in range(problem.inner.steps):
            iterate, terms = reference.step(problem, iterate, leaves, task.support, noise.at(step=step))
            if failure := first_non_finite({"nll": terms.nll, "kl": terms.kl}, task.name, step):
                return failure
            nll.append(terms.nll)
            kl.append(terms.kl)
        outer = reference.outer_loss(problem, reference.distribution(iterate.lambda_, leaves), leaves, task, noise)
        grads = reference.gradient_of(outer.total, leaves)
        outer = type(outer)(*(term.detach() for term in outer))
        return checked(MetaGradient(outer.total, grads, outer, inner_terms(nll, kl, 1.0, theta.mu)), task.name)


unrolled = Unrolled()
