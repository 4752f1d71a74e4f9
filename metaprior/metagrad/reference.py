"""The inner loop written down as it is defined, differentiable from end to end by torch's own autograd.

Nothing here knows of the closed forms, the replay or the trunk: it is what the other engines are held against.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.metagrad.problem import LOG_LR, OuterTerms, Problem
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution, kl_divergence

Named = dict[str, Tensor]


class Lambda(NamedTuple):
    """What the inner loop moves: mu, rho and adapted plain tensors by name; and the velocity in the same names."""

    values: Named
    velocity: Named


MU, RHO = "<mu>", "<rho>"  # names that no parameter of a module can have


def start(problem: Problem, theta: WeightDistribution) -> Lambda:
    """lambda^(0) = theta."""
    values = {MU: theta.mu, RHO: theta.rho, **{name: theta.plain[name] for name in problem.adapted_names}}
    return Lambda(values, {name: torch.zeros_like(value) for name, value in values.items()})


def distribution(values: Mapping[str, Tensor], theta: WeightDistribution) -> WeightDistribution:
    """lambda's values as a distribution, with theta's plain parameters where it has none of its own."""
    plain = {name: values.get(name, value) for name, value in theta.plain.items()}
    return WeightDistribution(values[MU], values[RHO], plain)


def nll(problem: Problem, q: WeightDistribution, examples: Examples, noise: Noise, samples: int) -> Tensor:
    """E_q[-log p(examples | phi)], summed over examples, a mean over samples."""
    total = torch.zeros_like(q.mu[0])
    for number in range(samples):
        phi = q.sample(noise.at(sample=number).normal(q.mu))
        total = total + problem.likelihood.nll(problem.network(phi, q.plain, examples.x), examples.y, q.plain).sum()
    return total / samples


def predictive_nll(problem: Problem, q: WeightDistribution, examples: Examples, noise: Noise, samples: int) -> Tensor:
    """-log of the mean over samples of each example's likelihood, summed over examples."""
    log_p = []
    for number in range(samples):
        phi = q.sample(noise.at(sample=number).normal(q.mu))
        log_p.append(-problem.likelihood.nll(problem.network(phi, q.plain, examples.x), examples.y, q.plain))
    return (math.log(samples) - torch.stack(log_p).logsumexp(0)).sum()


def inner_loss(
    problem: Problem, q: WeightDistribution, theta: WeightDistribution, support: Examples, noise: Noise
) -> Terms:
    """L_S(lambda, theta), per observation."""
    weight = problem.inner.kl_weight  # zero for a point prior, whose KL is no number
    kl = weight * kl_divergence(q, theta) if weight else torch.zeros_like(q.mu[0])
    data = nll(problem, q, support, noise, problem.inner.samples)
    return Terms(data / support.size, kl / support.size)


def outer_loss(
    problem: Problem, q: WeightDistribution, theta: WeightDistribution, task: Task, noise: Noise
) -> OuterTerms:
    """The outer loss at lambda^(K)."""
    objective, noise = problem.objective, noise.fork("outer").at(step=0)
    factors = objective.weights(task.support.size, task.query.size)
    zero = torch.zeros_like(q.mu[0])
    sets = ((factors.support, task.support), (factors.query, task.query))
    expected = predictive_nll if objective.predictive else nll
    support, query = (c * expected(problem, q, part, noise, objective.samples) if c else zero for c, part in sets)
    kl = factors.kl * kl_divergence(q, theta) if factors.kl else zero
    hyper = -factors.hyperprior * objective.hyperprior.log_prob(theta) if objective.hyperprior else zero
    return OuterTerms(support, query, kl, hyper)


def step(
    problem: Problem, lambda_: Lambda, theta: WeightDistribution, support: Examples, noise: Noise
) -> tuple[Lambda, Terms]:
    """One inner step, with a graph from theta and lambda to the result."""
    terms = inner_loss(problem, distribution(lambda_.values, theta), theta, support, noise)
    grads = torch.autograd.grad(terms.total, list(lambda_.values.values()), create_graph=True, materialize_grads=True)
    velocity = {
        name: problem.inner.momentum * old + grad
        for (name, old), grad in zip(lambda_.velocity.items(), grads, strict=True)
    }
    sizes = _step_sizes(problem, theta, lambda_)
    if problem.inner.damped and problem.inner.kl_weight:
        curvature = problem.inner.kl_weight / support.size / theta.sigma**2
        sizes[MU] = sizes[MU] / (1 + sizes[MU] * curvature)
    values = {name: value - sizes[name] * velocity[name] for name, value in lambda_.values.items()}
    return Lambda(values, velocity), terms.detached()


def _step_sizes(problem: Problem, theta: WeightDistribution, lambda_: Lambda) -> dict[str, Tensor | float]:
    """alpha for every tensor of lambda."""
    if LOG_LR not in theta.plain:
        return dict.fromkeys(lambda_.values, problem.inner.lr)
    alpha = theta.plain[LOG_LR].exp()
    if not alpha.ndim:
        return dict.fromkeys(lambda_.values, alpha)
    sizes = problem.network.layout.sizes
    count = len(sizes)

    def spread(values: Tensor) -> Tensor:
        return torch.cat([value.expand(size) for value, size in zip(values, sizes, strict=True)])

    plain = [name for name in lambda_.values if name not in (MU, RHO)]
    return {
        MU: spread(alpha[:count]),
        RHO: spread(alpha[count : 2 * count]),
        **{name: alpha[2 * count + index] for index, name in enumerate(plain)},
    }


def leaves_of(theta: WeightDistribution) -> WeightDistribution:
    """theta as leaves of a new graph."""
    plain = {name: value.detach().requires_grad_() for name, value in theta.plain.items()}
    return WeightDistribution(theta.mu.detach().requires_grad_(), theta.rho.detach().requires_grad_(), plain)


def gradient_of(loss: Tensor, leaves: WeightDistribution) -> WeightDistribution:
    """The derivative of a loss by everything in theta."""
    tensors = [leaves.mu, leaves.rho, *leaves.plain.values()]
    mu, rho, *plain = torch.autograd.grad(loss, tensors, materialize_grads=True)
    # Copies: autograd may hand out one tensor for two inputs.
    return WeightDistribution(mu, rho, {name: grad.clone() for name, grad in zip(leaves.plain, plain, strict=True)})
