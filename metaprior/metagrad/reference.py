"""The inner loop written down as it is defined, differentiable from end to end by torch's own autograd.

Nothing here knows of the closed forms, the replay or the trunk: it is what the other engines are held against.
"""

import math

import torch
from torch import Tensor

from metaprior.metagrad.inner_step import Iterate
from metaprior.metagrad.problem import OuterTerms, Problem
from metaprior.noise import Noise
from metaprior.objectives import Terms
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution, kl_divergence


def start(problem: Problem, theta: WeightDistribution) -> Iterate:
    """Return lambda^(0) = theta, with zero velocity."""
    lambda_ = Parameters(theta.mu, theta.rho, {name: theta.plain[name] for name in problem.adapted_names})
    return Iterate(lambda_, lambda_.zeros())


def distribution(lambda_: Parameters, theta: WeightDistribution) -> WeightDistribution:
    """Return lambda as a distribution, with theta's values for the plain parameters that are not adapted."""
    return theta.replace(mu=lambda_.mu, rho=lambda_.rho, plain={**theta.plain, **lambda_.plain})


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
    problem: Problem, iterate: Iterate, theta: WeightDistribution, support: Examples, noise: Noise
) -> tuple[Iterate, Terms]:
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
    counts = torch.tensor(sizes, device=alpha.device)
    named = dict(zip(lambda_.plain, plain, strict=True))
    return Parameters(mu.repeat_interleave(counts), rho.repeat_interleave(counts), named)


def leaves_of(theta: WeightDistribution) -> WeightDistribution:
    """Return theta as leaves of a new graph."""
    return theta.map(lambda value: value.detach().requires_grad_())


def gradient_of(loss: Tensor, leaves: WeightDistribution) -> Parameters:
    """Return the derivative of a loss by everything in theta."""
    grads = torch.autograd.grad(loss, leaves.tensors(), materialize_grads=True)
    # Copies: autograd may hand out one tensor for two inputs.
    return Parameters.from_named({name: grad.clone() for name, grad in zip(leaves.named(), grads, strict=True)})
