"""The inner loop as it is defined, differentiated by torch's own autograd: what the other engines are tested against.

Nothing here uses the closed forms, the replayed gradients or the trunk.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from metaprior.metagrad.finite import FiniteChecks
from metaprior.metagrad.inner_loop import inner_terms
from metaprior.metagrad.inner_step import Iterate
from metaprior.metagrad.problem import MetaGradient, NonFinite, OuterTerms, Problem
from metaprior.metagrad.sweep import checked
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution, kl_divergence

Leaves = TypeVar("Leaves", bound=Parameters)


def start(problem: Problem, theta: WeightDistribution) -> Iterate[Parameters]:
    """Return lambda^(0) = theta, with zero velocity."""
    lambda_ = Parameters(theta.mu, theta.rho, {name: theta.plain[name] for name in problem.adapted_names})
    return Iterate(lambda_, lambda_.zeros())


def distribution(lambda_: Parameters, theta: WeightDistribution) -> WeightDistribution:
    """Return lambda as a distribution, with theta's values for the plain parameters that are not adapted."""
    return theta.replace(mu=lambda_.mu, rho=lambda_.rho, plain={**theta.plain, **lambda_.plain})


def nll(
    problem: Problem, q: WeightDistribution, examples: Examples, noise: Noise, samples: int, *, predictive: bool = False
) -> Tensor:
    """Return E_q[-log p(examples | phi)], summed over examples, as a mean over samples.

    ``predictive``: -log of the mean over samples of each example's likelihood, summed over examples.
    """
    phis = (q.sample(noise.at(sample=number).normal(q.mu)) for number in range(samples))
    outputs = (problem.network(phi, q.plain, examples.x) for phi in phis)
    losses = (problem.likelihood.nll(output, examples.y, q.plain) for output in outputs)
    if predictive:
        return (math.log(samples) - (-torch.stack(list(losses))).logsumexp(0)).sum()
    return sum((loss.sum() for loss in losses), torch.zeros_like(q.mu[0])) / samples


def inner_loss(
    problem: Problem, q: WeightDistribution, theta: WeightDistribution, support: Examples, noise: Noise
) -> Terms:
    """Return L_S(lambda, theta), per observation."""
    weight = problem.inner.kl_weight  # zero for a point prior, whose KL is infinite
    kl = weight * kl_divergence(q, theta) if weight else torch.zeros_like(q.mu[0])
    data = nll(problem, q, support, noise, problem.inner.samples)
    return Terms(data / support.size, kl / support.size)


def outer_loss(
    problem: Problem, q: WeightDistribution, theta: WeightDistribution, task: Task, noise: Noise
) -> OuterTerms:
    """Return the outer loss at lambda^(K)."""
    objective, noise = problem.objective, noise.fork("outer").at(step=0)
    factors = objective.weights(task.support.size, task.query.size)
    zero = torch.zeros_like(q.mu[0])
    sets = ((factors.support, task.support), (factors.query, task.query))
    support, query = (
        c * nll(problem, q, part, noise, objective.samples, predictive=objective.predictive)
        if c and part.size
        else zero
        for c, part in sets
    )
    kl = factors.kl * kl_divergence(q, theta) if factors.kl else zero
    hyper = -factors.hyperprior * objective.hyperprior.log_prob(theta) if objective.hyperprior else zero
    return OuterTerms(support, query, kl, hyper)


def step(
    problem: Problem, iterate: Iterate[Parameters], theta: WeightDistribution, support: Examples, noise: Noise
) -> tuple[Iterate[Parameters], Terms]:
    """Take one inner step, with a graph from theta and the iterate to the result."""
    lambda_, old = iterate
    terms = inner_loss(problem, distribution(lambda_, theta), theta, support, noise)
    grads = torch.autograd.grad(terms.total, lambda_.tensors(), create_graph=True, materialize_grads=True)
    gradient = Parameters.from_named(dict(zip(lambda_.named(), grads, strict=True)))
    velocity = gradient if old is None else old.zip_map(lambda m, g: problem.inner.momentum * m + g, gradient)
    sizes = _step_sizes(problem, theta, lambda_)
    if problem.inner.damped and problem.inner.kl_weight:
        curvature = problem.inner.kl_weight / support.size / theta.sigma**2
        sizes = sizes.replace(mu=sizes.mu / (1 + sizes.mu * curvature))
    return Iterate(lambda_.zip_map(lambda x, alpha, m: x - alpha * m, sizes, velocity), velocity), terms.detached()


def _step_sizes(problem: Problem, theta: WeightDistribution, lambda_: Parameters) -> Parameters:
    """Return alpha for every number of lambda, in a shape that broadcasts."""
    alpha = theta.mu.new_tensor(problem.inner.lr) if theta.log_lr is None else theta.log_lr.exp()
    if not alpha.ndim:
        return lambda_.map(lambda _: alpha)
    sizes = problem.network.layout.sizes
    mu, rho, plain = alpha.tensor_split([len(sizes), 2 * len(sizes)])
    # output_size keeps shapes known without the numbers, which the planner runs this without
    counts, whole = torch.tensor(sizes, device=alpha.device), {"output_size": sum(sizes)}
    named = dict(zip(lambda_.plain, plain, strict=True))
    return Parameters(mu.repeat_interleave(counts, **whole), rho.repeat_interleave(counts, **whole), named)


def leaves_of(parameters: Leaves) -> Leaves:
    """Return theta, or a part of an iterate, as leaves of a new graph."""
    return parameters.map(lambda value: value.detach().requires_grad_())


def gradient_of(loss: Tensor, leaves: WeightDistribution) -> Parameters:
    """Return the derivative of a loss by everything in theta."""
    grads = torch.autograd.grad(loss, leaves.tensors(), materialize_grads=True)
    # Copies: autograd may hand out one tensor for two inputs.
    return Parameters.from_named({name: grad.clone() for name, grad in zip(leaves.named(), grads, strict=True)})


Outcome = tuple[OuterTerms, Parameters, list[Terms]]


@dataclass(frozen=True)
class Reference:
    """An engine of torch's own reverse mode."""

    name: str
    differentiate: Callable[[Problem, WeightDistribution, Task, Noise, FiniteChecks], Outcome | NonFinite]
    exact: bool = True

    @torch.enable_grad()
    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Return the outer loss of one task, its gradient, and its terms."""
        problem.check_theta(theta)
        masked = problem.masking(task.support, task.query).for_support(task.support.size)
        checks = FiniteChecks(task.name, theta.mu.device)
        outcome = self.differentiate(masked, theta, task, noise, checks)
        if isinstance(outcome, NonFinite):
            return outcome
        outer, grads, inner = outcome
        of_steps = inner_terms([terms.nll for terms in inner], [terms.kl for terms in inner], 1.0, grads.mu)
        return checked(MetaGradient(outer.total, grads, outer, of_steps), checks)


def _unrolled(
    problem: Problem, theta: WeightDistribution, task: Task, noise: Noise, checks: FiniteChecks
) -> Outcome | NonFinite:
    """Differentiate through everything, as other libraries do: K graphs at once, also with micro-batches."""
    leaves = leaves_of(theta)
    iterate, inner = start(problem, leaves), list[Terms]()
    for number in range(problem.inner.steps):
        iterate, terms = step(problem, iterate, leaves, task.support, noise.at(step=number))
        if failure := checks.failure({"nll": terms.nll, "kl": terms.kl}, number):
            return failure
        inner.append(terms)
    outer = outer_loss(problem, distribution(iterate.lambda_, leaves), leaves, task, noise)
    return OuterTerms(*map(torch.detach, outer)), gradient_of(outer.total, leaves), inner


def _checkpointed(
    problem: Problem, theta: WeightDistribution, task: Task, noise: Noise, checks: FiniteChecks
) -> Outcome | NonFinite:
    """Differentiate one step at a time: the path is stored, and each step is run again with a graph.

    One graph at once, and two (with momentum four) vectors of D numbers stored for each step.
    """
    path, inner = [_leaf(start(problem, theta))], list[Terms]()
    for number in range(problem.inner.steps):
        after, terms = step(problem, path[-1], theta, task.support, noise.at(step=number))
        if failure := checks.failure({"nll": terms.nll, "kl": terms.kl}, number):
            return failure
        path.append(_leaf(after))
        inner.append(terms)
        del after
    leaves, last = leaves_of(theta), path.pop()
    outer = outer_loss(problem, distribution(last.lambda_, leaves), leaves, task, noise)
    total, v = _pull_back([outer.total], [torch.ones_like(outer.total)], last, leaves)
    outer = OuterTerms(*map(torch.detach, outer))
    for number in reversed(range(problem.inner.steps)):
        before, leaves = path.pop(), leaves_of(theta)
        after, _ = step(problem, before, leaves, task.support, noise.at(step=number))
        own, v = _pull_back(_tensors(after), _tensors(v), before, leaves)
        total = total.zip_map(torch.add, own)
        del before, after
    moved = v.lambda_  # lambda^(0) is theta
    plain = {name: grad + moved.plain[name] if name in moved.plain else grad for name, grad in total.plain.items()}
    return outer, total.replace(mu=total.mu + moved.mu, rho=total.rho + moved.rho, plain=plain), inner


def _pull_back(
    outputs: list[Tensor], cotangents: list[Tensor], before: Iterate[Parameters], theta: WeightDistribution
) -> tuple[Parameters, Iterate[Parameters]]:
    """Return the cotangents of theta and of the iterate before a step."""
    inputs = _tensors(before)
    grads = torch.autograd.grad(outputs, [*inputs, *theta.tensors()], cotangents, materialize_grads=True)
    names, middle = before.lambda_.named(), len(inputs) // 2
    parts = (grads[:middle], grads[middle : len(inputs)])
    lambda_, velocity = (Parameters.from_named(dict(zip(names, part, strict=True))) for part in parts)
    own = Parameters.from_named(dict(zip(theta.named(), grads[len(inputs) :], strict=True)))
    return own, Iterate(lambda_, velocity)


def _tensors(iterate: Iterate[Parameters]) -> list[Tensor]:
    return [tensor for part in iterate if part is not None for tensor in part.tensors()]


def _leaf(iterate: Iterate[Parameters]) -> Iterate[Parameters]:
    return Iterate(leaves_of(iterate.lambda_), None if iterate.velocity is None else leaves_of(iterate.velocity))


unrolled = Reference("unrolled", _unrolled)
"""The exact engine that unrolls the inner loop with torch's autograd; memory grows with every step."""
checkpointed = Reference("checkpointed", _checkpointed)
"""The exact engine that unrolls with torch's checkpoints: a step's graph is computed again when it is needed."""
