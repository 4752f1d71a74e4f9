"""The path is stored, and each step is run again with a graph and differentiated by itself: one graph alive at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.metagrad import reference
from metaprior.metagrad.adaptation import first_non_finite, inner_terms
from metaprior.metagrad.inner_step import Iterate
from metaprior.metagrad.problem import MetaGradient, NonFinite, Problem
from metaprior.metagrad.sweep import checked
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


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
        outer = reference.outer_loss(problem, reference.distribution(last.lambda_, leaves), leaves, task, noise)
        total, v = _pull_back([outer.total], [torch.ones_like(outer.total)], last, leaves)
        outer = type(outer)(*(term.detach() for term in outer))
        for step in reversed(range(problem.inner.steps)):
            before, leaves = path.pop(), reference.leaves_of(theta)
            after, _ = reference.step(problem, before, leaves, task.support, noise.at(step=step))
            own, v = _pull_back(_tensors(after), _tensors(v), before, leaves)
            total = total.zip_map(torch.add, own)
            del before, after
        moved = v.lambda_  # lambda^(0) is theta
        plain = {name: grad + moved.plain[name] if name in moved.plain else grad for name, grad in total.plain.items()}
        total = total.replace(mu=total.mu + moved.mu, rho=total.rho + moved.rho, plain=plain)
        return checked(MetaGradient(outer.total, total, outer, inner_terms(nll, kl, 1.0, theta.mu)), task.name)


def _pull_back(
    outputs: list[Tensor], cotangents: list[Tensor], before: Iterate, theta: WeightDistribution
) -> tuple[Parameters, Iterate]:
    """Return the cotangents of theta and of the iterate before a step."""
    inputs = _tensors(before)
    grads = torch.autograd.grad(outputs, [*inputs, *theta.tensors()], cotangents, materialize_grads=True)
    names, middle = before.lambda_.named(), len(inputs) // 2
    parts = (grads[:middle], grads[middle : len(inputs)])
    lambda_, velocity = (Parameters.from_named(dict(zip(names, part, strict=True))) for part in parts)
    own = Parameters.from_named(dict(zip(theta.named(), grads[len(inputs) :], strict=True)))
    return own, Iterate(lambda_, velocity)


def _tensors(iterate: Iterate) -> list[Tensor]:
    return [tensor for part in iterate if part is not None for tensor in part.tensors()]


def _leaf(iterate: Iterate) -> Iterate:
    def cut(part: Parameters) -> Parameters:
        return part.map(lambda value: value.detach().requires_grad_())

    return Iterate(cut(iterate.lambda_), None if iterate.velocity is None else cut(iterate.velocity))


checkpointed = Checkpointed()
