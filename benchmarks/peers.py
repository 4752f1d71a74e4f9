r"""The same meta-step with other libraries: full unrolling by ``higher`` and by ``torchopt``.

Same theta, task, replayed noise and objective as ``metaprior.metagrad``, so results can be compared number by number.
Written the way a user of those libraries would: one mean and one rho for each random tensor, the KL by autograd.
"""

import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from metaprior.metagrad.problem import Problem
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution


class PeerMissing(ModuleNotFoundError):
    """A library to compare with is not installed; says how to get it."""


class PeerGradient(NamedTuple):
    """What a peer computed, in the form of ``MetaGradient``: the outer loss and its derivative by theta."""

    loss: Tensor
    grads: WeightDistribution


Peer = Callable[[Problem, WeightDistribution, Task, Noise], PeerGradient]


def library(name: str) -> Any:
    """A peer, imported only when it is needed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PeerMissing(f"{name!r} is what this benchmark compares with: pip install 'metaprior[bench]'") from error


def peer_versions() -> dict[str, str]:
    """Of every peer; an error if one is missing."""
    for name in PEERS:
        library(name)
    return {name: version(name) for name in PEERS}


class Weights(NamedTuple):
    """A distribution over weights, tensor by tensor; ``plain`` by name."""

    mu: list[Tensor]
    rho: list[Tensor]
    plain: dict[str, Tensor]
    log_lr: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All of them, in a fixed order."""
        return [*self.mu, *self.rho, *self.plain.values(), *([] if self.log_lr is None else [self.log_lr])]

    def like(self, tensors: Sequence[Tensor]) -> "Weights":
        """Other tensors in the order of ``tensors()``."""
        count = len(self.mu)
        plain = dict(zip(self.plain, tensors[2 * count :], strict=False))
        log_lr = None if self.log_lr is None else tensors[-1]
        return Weights(list(tensors[:count]), list(tensors[count : 2 * count]), plain, log_lr)

    def flat(self) -> WeightDistribution:
        """With mu and rho as vectors."""
        mu, rho = (torch.cat([tensor.reshape(-1) for tensor in part]) for part in (self.mu, self.rho))
        return WeightDistribution(mu, rho, self.plain, self.log_lr)


def tensor_by_tensor(problem: Problem, theta: WeightDistribution) -> Weights:
    """Leaves with theta's values (copies of them)."""

    def leaf(value: Tensor) -> Tensor:
        return value.detach().clone().requires_grad_()

    mu, rho = (list(map(leaf, problem.network.layout.split(part.detach()).values())) for part in (theta.mu, theta.rho))
    log_lr = None if theta.log_lr is None else leaf(theta.log_lr)
    return Weights(mu, rho, {name: leaf(value) for name, value in theta.plain.items()}, log_lr)


def _nll(problem: Problem, q: Weights, examples: Examples, noise: Noise, samples: int, like: Tensor) -> Tensor:
    """E_q[-log p(examples | phi)], summed over examples, a mean over samples; ``like`` has the noise's shape."""
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
    """KL(q || p), summed over weights."""
    total = torch.zeros((), dtype=q.mu[0].dtype)
    for mu, rho, prior_mu, prior_rho in zip(q.mu, q.rho, p.mu, p.rho, strict=True):
        sigma, prior_sigma = F.softplus(rho), F.softplus(prior_rho)
        scaled = (sigma**2 + (mu - prior_mu) ** 2) / (2 * prior_sigma**2)
        total = total + (torch.log(prior_sigma / sigma) + scaled - 0.5).sum()
    return total


def _inner_loss(problem: Problem, q: Weights, theta: Weights, task: Task, noise: Noise, like: Tensor) -> Tensor:
    """L_S(lambda, theta), per observation."""
    nll = _nll(problem, q, task.support, noise, problem.inner.samples, like)
    return (nll + problem.inner.kl_weight * _kl(q, theta)) / task.support.size


def _outer_loss(problem: Problem, q: Weights, theta: Weights, task: Task, noise: Noise, like: Tensor) -> Tensor:
    """The outer loss at lambda^(K)."""
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
            own = WeightDistribution(mu.flatten(), rho.flatten())
            total = total - factors.hyperprior * objective.hyperprior.log_prob(own)
    return total


def _result(loss: Tensor, leaves: Weights) -> PeerGradient:
    """The loss and its derivative by all leaves; the graph is gone afterwards."""
    grads = torch.autograd.grad(loss, leaves.tensors(), materialize_grads=True)
    return PeerGradient(loss.detach(), leaves.like(grads).flat())


class _BayesianLayers(nn.Module):
    """theta as the parameters of a module, for ``higher`` to patch.

    The network itself is not part of it: ``higher`` would patch that too, and then it cannot be called functionally.
    """

    def __init__(self, problem: Problem, theta: WeightDistribution) -> None:
        super().__init__()
        start = tensor_by_tensor(problem, theta)
        self.mu, self.rho = nn.ParameterList(start.mu), nn.ParameterList(start.rho)
        self.plain, self.plain_names = nn.ParameterList(start.plain.values()), list(start.plain)
        # A plain tensor, not a parameter: the inner loop does not move its own step sizes.
        self.log_lr = start.log_lr

    def weights(self) -> Weights:
        """As they are now."""
        plain = dict(zip(self.plain_names, self.plain, strict=True))
        return Weights(list(self.mu), list(self.rho), plain, self.log_lr)

    def forward(self, loss: Callable[[Weights], Tensor]) -> Tensor:
        """``higher`` puts its own tensors in place of the parameters before it calls this."""
        return loss(self.weights())


def higher_unroll(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> PeerGradient:
    """One meta-step with ``higher`` (Grefenstette et al. 2019): every inner step stays in the graph."""
    _refuse_damping(problem)
    higher, model = library("higher"), _BayesianLayers(problem, theta)
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


def _refuse_damping(problem: Problem) -> None:
    """Peers take plain steps: beside damped ones they would compute something else."""
    if problem.inner.damped and problem.inner.kl_weight:
        raise ValueError("peers take plain inner steps; compare with InnerLoop(damped=False)")


def _step_sizes(log_lr: Tensor, count: int) -> list[Tensor]:
    """One for each moving tensor, or a single one for all."""
    alpha = log_lr.exp()
    return list(alpha) if alpha.ndim else [alpha] * count


def torchopt_unroll(problem: Problem, theta: WeightDistribution, task: Task, noise: Noise) -> PeerGradient:
    """One meta-step with ``torchopt`` (Ren et al. 2023), by its functional optimiser; step sizes cannot be learned."""
    _refuse_damping(problem)
    if theta.log_lr is not None:
        raise ValueError("torchopt has one fixed step size; for learned ones compare with higher_unroll")
    torchopt, leaves = library("torchopt"), tensor_by_tensor(problem, theta)
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


PEERS: dict[str, Peer] = {"higher": higher_unroll, "torchopt": torchopt_unroll}
