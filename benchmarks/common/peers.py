"""The same meta-step with other libraries: full unrolling by ``higher`` and by ``torchopt``.

Theta, task, replayed noise and objective are those of ``metaprior.metagrad``, so that results can be compared number by
number. The code is what a user of those libraries would write: a mean and a rho for each random tensor, the KL by
autograd. Peers are imported where they are used, because they belong to the extra ``bench``.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import metaprior as mp


class PeerGradient(NamedTuple):
    """The outer loss and its derivative by theta, computed by a peer."""

    loss: Tensor
    grads: mp.WeightDistribution


Peer = Callable[[mp.Problem, mp.WeightDistribution, mp.Task, mp.Noise], PeerGradient]


def peer_versions() -> dict[str, str]:
    """Return the version of every peer."""
    return {name: version(name) for name in PEERS}


class Weights(NamedTuple):
    """A distribution over weights, tensor by tensor."""

    mu: list[Tensor]
    rho: list[Tensor]
    plain: dict[str, Tensor]
    log_lr: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Return all tensors in a fixed order."""
        return [*self.mu, *self.rho, *self.plain.values(), *([] if self.log_lr is None else [self.log_lr])]

    def like(self, tensors: Sequence[Tensor]) -> "Weights":
        """Return other tensors, given in the order of ``tensors()``, in this form."""
        count = len(self.mu)
        plain = dict(zip(self.plain, tensors[2 * count :], strict=False))
        log_lr = None if self.log_lr is None else tensors[-1]
        return Weights(list(tensors[:count]), list(tensors[count : 2 * count]), plain, log_lr)

    def flat(self) -> mp.WeightDistribution:
        """Return the same distribution with mu and rho as vectors."""
        mu, rho = (torch.cat([tensor.reshape(-1) for tensor in part]) for part in (self.mu, self.rho))
        return mp.WeightDistribution(mu, rho, self.plain, self.log_lr)


def tensor_by_tensor(problem: mp.Problem, theta: mp.WeightDistribution) -> Weights:
    """Return leaves with copies of theta's values."""

    def leaf(value: Tensor) -> Tensor:
        return value.detach().clone().requires_grad_()

    mu, rho = (list(map(leaf, problem.network.layout.split(part.detach()).values())) for part in (theta.mu, theta.rho))
    log_lr = None if theta.log_lr is None else leaf(theta.log_lr)
    return Weights(mu, rho, {name: leaf(value) for name, value in theta.plain.items()}, log_lr)


def _nll(problem: mp.Problem, q: Weights, examples: mp.Examples, noise: mp.Noise, samples: int, like: Tensor) -> Tensor:
    """Return E_q[-log p(examples | phi)], summed over examples; ``like`` has the shape of the noise."""
    network, total = problem.network, torch.zeros((), dtype=like.dtype)
    own = {name: q.plain[name] for name in network.plain_names}
    for number in range(samples):
        epsilon = network.layout.split(noise.at(sample=number).normal(like))
        phi = {
            name: mu + F.softplus(rho) * epsilon[name]
            for name, mu, rho in zip(network.layout.names, q.mu, q.rho, strict=True)
        }
        outputs = functional_call(network.module, {**network.constants, **own, **phi}, (examples.x,))
        total = total + problem.likelihood.nll(outputs, examples.y, q.plain).sum()
    return total / samples


def _kl(q: Weights, p: Weights) -> Tensor:
    """Return KL(q || p), summed over weights."""
    total = torch.zeros((), dtype=q.mu[0].dtype)
    for mu, rho, prior_mu, prior_rho in zip(q.mu, q.rho, p.mu, p.rho, strict=True):
        sigma, prior_sigma = F.softplus(rho), F.softplus(prior_rho)
        scaled = (sigma**2 + (mu - prior_mu) ** 2) / (2 * prior_sigma**2)
        total = total + (torch.log(prior_sigma / sigma) + scaled - 0.5).sum()
    return total


def _inner_loss(
    problem: mp.Problem, q: Weights, theta: Weights, task: mp.Task, noise: mp.Noise, like: Tensor
) -> Tensor:
    """Return L_S(lambda, theta) per observation."""
    nll = _nll(problem, q, task.support, noise, problem.inner.samples, like)
    return (nll + problem.inner.kl_weight * _kl(q, theta)) / task.support.size


def _outer_loss(
    problem: mp.Problem, q: Weights, theta: Weights, task: mp.Task, noise: mp.Noise, like: Tensor
) -> Tensor:
    """Return the outer loss at lambda^(K)."""
    objective, noise = problem.objective, noise.fork("outer").at(step=0)
    factors = objective.weights(task.support.size, task.query.size)
    total = torch.zeros((), dtype=like.dtype)
    for factor, examples in ((factors.support, task.support), (factors.query, task.query)):
        if factor:
            total = total + factor * _nll(problem, q, examples, noise, objective.samples, like)
    if factors.kl:
        total = total + factors.kl * _kl(q, theta)
    if factors.hyperprior and objective.hyperprior is not None:
        for mu, rho in zip(theta.mu, theta.rho, strict=True):
            own = mp.WeightDistribution(mu.flatten(), rho.flatten())
            total = total - factors.hyperprior * objective.hyperprior.log_prob(own)
    return total


def _result(loss: Tensor, leaves: Weights) -> PeerGradient:
    """Return the loss and its derivative by all leaves, and free the graph."""
    grads = torch.autograd.grad(loss, leaves.tensors(), materialize_grads=True)
    return PeerGradient(loss.detach(), leaves.like(grads).flat())


class _BayesianLayers(nn.Module):
    """Theta as the parameters of a module, for ``higher`` to patch.

    The network itself is not part of it: ``higher`` would patch it too, and then it cannot be called functionally.
    """

    def __init__(self, problem: mp.Problem, theta: mp.WeightDistribution) -> None:
        super().__init__()
        start = tensor_by_tensor(problem, theta)
        self.mu, self.rho = nn.ParameterList(start.mu), nn.ParameterList(start.rho)
        self.plain, self.plain_names = nn.ParameterList(start.plain.values()), list(start.plain)
        # A plain tensor, not a parameter: the inner loop does not move its own step sizes.
        self.log_lr = start.log_lr

    def weights(self) -> Weights:
        """Return the present weights; learned step sizes come last."""
        plain = dict(zip(self.plain_names, self.plain, strict=True))
        return Weights(list(self.mu), list(self.rho), plain, self.log_lr)

    def forward(self, loss: Callable[[Weights], Tensor]) -> Tensor:
        """Return a loss of the weights, for which ``higher`` replaces the parameters by its own tensors."""
        return loss(self.weights())


def higher_unroll(problem: mp.Problem, theta: mp.WeightDistribution, task: mp.Task, noise: mp.Noise) -> PeerGradient:
    """Return one meta-gradient by ``higher`` (Grefenstette et al. 2019): every inner step stays in the graph."""
    _refuse_damping(problem)
    higher, model = import_module("higher"), _BayesianLayers(problem, theta)
    leaves, inner = model.weights(), problem.inner
    adapted = set(problem.adapted_names)
    moving = [*leaves.mu, *leaves.rho, *(value for name, value in leaves.plain.items() if name in adapted)]
    # Learned step sizes: a group for each tensor, and a differentiable override of its lr.
    optimizer = torch.optim.SGD([{"params": [p]} for p in moving], lr=inner.lr, momentum=inner.momentum)
    override = None if leaves.log_lr is None else {"lr": _step_sizes(leaves.log_lr, len(moving))}
    with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False, override=override) as (fast, descent):
        for step in range(inner.steps):
            own = noise.at(step=step)
            descent.step(fast(lambda q, own=own: _inner_loss(problem, q, leaves, task, own, theta.mu)))
        return _result(fast(lambda q: _outer_loss(problem, q, leaves, task, noise, theta.mu)), leaves)


def _refuse_damping(problem: mp.Problem) -> None:
    """Raise where the inner loop is damped: peers take plain steps, and would compute something else."""
    if problem.inner.damped and problem.inner.kl_weight:
        raise ValueError("peers take plain inner steps; compare with Descent(damped=False)")


def _step_sizes(log_lr: Tensor, count: int) -> list[Tensor]:
    """Return a step size for each moving tensor."""
    alpha = log_lr.exp()
    return list(alpha) if alpha.ndim else [alpha] * count


def torchopt_unroll(problem: mp.Problem, theta: mp.WeightDistribution, task: mp.Task, noise: mp.Noise) -> PeerGradient:
    """Return one meta-gradient by ``torchopt`` (Ren et al. 2023), which cannot learn step sizes."""
    _refuse_damping(problem)
    if theta.log_lr is not None:
        raise ValueError("torchopt has one fixed step size; for learned ones compare with higher_unroll")
    torchopt, leaves = import_module("torchopt"), tensor_by_tensor(problem, theta)
    names = problem.adapted_names
    count = len(leaves.mu)
    optimizer = torchopt.FuncOptimizer(torchopt.sgd(lr=problem.inner.lr, momentum=problem.inner.momentum))
    moving = (*leaves.mu, *leaves.rho, *(leaves.plain[name] for name in names))

    def weights() -> Weights:
        plain = {**leaves.plain, **dict(zip(names, moving[2 * count :], strict=True))}
        return Weights(list(moving[:count]), list(moving[count : 2 * count]), plain)

    for step in range(problem.inner.steps):
        loss = _inner_loss(problem, weights(), leaves, task, noise.at(step=step), theta.mu)
        moving = optimizer.step(loss, moving)
    return _result(_outer_loss(problem, weights(), leaves, task, noise, theta.mu), leaves)


def checkpointed_unroll(
    problem: mp.Problem, theta: mp.WeightDistribution, task: mp.Task, noise: mp.Noise
) -> PeerGradient:
    """Return one meta-gradient by torch's checkpoints, as a careful user would write it without any library.

    Every inner step is run again, with its graph, when it is differentiated. Without momentum and learned step sizes.
    """
    _refuse_damping(problem)
    if theta.log_lr is not None or problem.inner.momentum:
        raise ValueError("the checkpointed loop has one fixed step size and no momentum")
    leaves = tensor_by_tensor(problem, theta)
    names, count = problem.adapted_names, len(leaves.mu)
    moving = (*leaves.mu, *leaves.rho, *(leaves.plain[name] for name in names))

    def weights(*moving: Tensor) -> Weights:
        plain = {**leaves.plain, **dict(zip(names, moving[2 * count :], strict=True))}
        return Weights(list(moving[:count]), list(moving[count : 2 * count]), plain)

    def step(number: int, *moving: Tensor) -> tuple[Tensor, ...]:
        loss = _inner_loss(problem, weights(*moving), leaves, task, noise.at(step=number), theta.mu)
        grads = torch.autograd.grad(loss, moving, create_graph=True)
        return tuple(value - problem.inner.lr * grad for value, grad in zip(moving, grads, strict=True))

    for number in range(problem.inner.steps):
        moving = checkpoint(step, number, *moving, use_reentrant=False)
    return _result(_outer_loss(problem, weights(*moving), leaves, task, noise, theta.mu), leaves)


PEERS: dict[str, Peer] = {"higher": higher_unroll, "torchopt": torchopt_unroll}
