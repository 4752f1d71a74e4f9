"""The path is stored, and each step is run again with a graph and differentiated by itself: one graph alive at once."""

from dataclasses import dataclass

import torch

from metaprior.metagrad import reference
from metaprior.metagrad.adaptation import first_non_finite, inner_terms
from metaprior.metagrad.problem import MetaGradient, NonFinite, Problem
from metaprior.metagrad.reference import Lambda, Named
from metaprior.metagrad.sweep import checked
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution


@dataclass(frozen=True)
class Checkpointed:
    """Reverse-over-reverse one step at a time: two (with momentum four) vectors of D numbers stored for each step."""

    name: str = "checkpointed"
    exact: bool = True

    @torch.enable_grad()
    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Outer loss of one task, its gradient, and its terms."""
        problem.check_theta(theta)
        path = [_leaf(reference.start(problem, theta))]
        nll, kl = [], []
        for step in range(problem.inner.steps):
            after, terms = reference.step(problem, path[-1], theta, task.support, noise.at(step=step))
            if failure := first_non_finite({"nll": terms.nll, "kl": terms.kl}, task.name, step):
                return failure
            path.append(_leaf(after))
            nll.append(terms.nll)
            kl.append(terms.kl)
            del after
        leaves, last = reference.leaves_of(theta), path.pop()
        outer = reference.outer_loss(problem, reference.distribution(last.values, leaves), leaves, task, noise)
        total, v = _pull_back([outer.total], [torch.ones_like(outer.total)], last, leaves)
        outer = type(outer)(*(term.detach() for term in outer))
        for step in reversed(range(problem.inner.steps)):
            before, leaves = path.pop(), reference.leaves_of(theta)
            after, _ = reference.step(problem, before, leaves, task.support, noise.at(step=step))
            own, v = _pull_back(_tensors(after), _tensors(v), before, leaves)
            total = _sum(total, own)
            del before, after
        total = _sum(total, reference.distribution(v.values, _zeros(theta)))  # lambda^(0) is theta
        return checked(MetaGradient(outer.total, total, outer, inner_terms(nll, kl, 1.0, theta.mu)), task.name)


def _pull_back(
    outputs: list[torch.Tensor], cotangents: list[torch.Tensor], lambda_: Lambda, theta: WeightDistribution
) -> tuple[WeightDistribution, Lambda]:
    """Cotangents of theta and of lambda."""
    inputs = [*_tensors(lambda_), theta.mu, theta.rho, *theta.plain.values()]
    grads = list(torch.autograd.grad(outputs, inputs, cotangents, materialize_grads=True))
    count = len(lambda_.values)
    values, velocity = (
        dict(zip(lambda_.values, part, strict=True)) for part in (grads[:count], grads[count : 2 * count])
    )
    mu, rho, *plain = grads[2 * count :]
    return WeightDistribution(mu, rho, dict(zip(theta.plain, plain, strict=True))), Lambda(values, velocity)


def _tensors(lambda_: Lambda) -> list[torch.Tensor]:
    return [*lambda_.values.values(), *lambda_.velocity.values()]


def _leaf(lambda_: Lambda) -> Lambda:
    def cut(named: Named) -> Named:
        return {name: value.detach().requires_grad_() for name, value in named.items()}

    return Lambda(cut(lambda_.values), cut(lambda_.velocity))


def _zeros(theta: WeightDistribution) -> WeightDistribution:
    return theta._replace(plain={name: torch.zeros_like(value) for name, value in theta.plain.items()})


def _sum(a: WeightDistribution, b: WeightDistribution) -> WeightDistribution:
    plain = {name: value + b.plain[name] for name, value in a.plain.items()}
    return WeightDistribution(a.mu + b.mu, a.rho + b.rho, plain)


checkpointed = Checkpointed()
