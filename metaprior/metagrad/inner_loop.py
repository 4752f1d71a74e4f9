"""The forward pass, without a graph: the inner loop from theta to lambda^(K), and the outer loss there."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.checks import check_integer
from metaprior.inputs import rows_of
from metaprior.metagrad.data_loss import DataLoss, FixedCotangent, KeptGradient, add_gradient
from metaprior.metagrad.finite import FiniteChecks
from metaprior.metagrad.inner_step import (
    DataGradient,
    InnerStep,
    Iterate,
    StepSizes,
    add_kl_gradient,
    out_of_weight_space,
    sample,
)
from metaprior.metagrad.problem import PARTS, InnerTerms, NonFinite, OuterTerms, Problem
from metaprior.metagrad.scratch import InFile, ScratchFile
from metaprior.metagrad.vectors import InMemory, Moving, PartwiseNoise, Storage, Vector, copy_into, in_memory, parts
from metaprior.noise import Noise
from metaprior.priors import NormalGammaHyperprior
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution


@dataclass
class Record:
    """A step as the backward sweep needs it: its gradient; where its graph is kept, also graph, iterate and noise."""

    gradient: DataGradient
    graphs: list[list[KeptGradient]] | None = None
    before: Iterate[Moving] | None = None
    noise: list[Vector] | None = None


class InnerRun:
    """The inner loop of one task, or of a stack of tasks."""

    def __init__(
        self,
        problem: Problem,
        theta: WeightDistribution,
        task: Task,
        noises: Sequence[Noise],
        *,
        stacked: bool = False,
        keep_trunk: bool = False,
        file: ScratchFile | None = None,
    ) -> None:
        problem.check_theta(theta)
        problem = problem.masking(task.support, task.query)
        self.theta = theta.map(torch.detach)
        self.name, self.checks = task.name, FiniteChecks(task.name, theta.mu.device)
        self.data = DataLoss(problem, theta, task, tasks=len(noises) if stacked else 0, keep_trunk=keep_trunk)
        observations = self.data.observations("support")
        self.problem = problem = problem.for_support(observations)
        self.w = problem.inner.kl_weight / max(1, observations)
        self.sizes = StepSizes(problem, theta, self.data.adapted_names, self.w, self.data.stack)
        self.inner_step = InnerStep(self.theta, self.sizes, problem.inner.momentum, self.w)
        moving = Parameters(self.theta.mu, self.theta.rho, {n: self.theta.plain[n] for n in self.data.adapted_names})
        self._start = moving.map(lambda value: value.expand((*self.data.stack, *value.shape)))
        self.storage: Storage = InMemory(self._start) if file is None else InFile(file, self._start)
        self._noises = {False: noises, True: [noise.fork("outer") for noise in noises]}

    def draw(self, step: int, number: int, *, outer: bool = False) -> Vector:
        """Return the noise of a sample, of phi's shape or a stack's: the same numbers for the same arguments."""
        rows = [noise.at(step=step, sample=number) for noise in self._noises[outer]]
        return PartwiseNoise(rows, self.theta.mu, stacked=bool(self.data.stack))

    def start(self) -> Iterate[Moving]:
        """Return lambda^(0), a copy of theta, with zero velocity."""
        velocity = self.storage.zeros() if self.problem.inner.momentum else None
        return Iterate(self.copy(self._start), velocity)

    def copy(self, values: Moving) -> Moving:
        """Return a copy of everything that moves."""
        copy = self.storage.zeros()
        copy_into(copy, values)
        return copy

    def copy_iterate(self, iterate: Iterate[Moving]) -> Iterate[Moving]:
        """Return a copy of an iterate, which can be changed."""
        return Iterate(self.copy(iterate.lambda_), None if iterate.velocity is None else self.copy(iterate.velocity))

    def no_value(self) -> Tensor:
        """Return zero, for each task of a stack."""
        return self.theta.mu.new_zeros(self.data.stack)

    def no_weights(self) -> Tensor:
        """Return zeros of phi's shape, in memory."""
        return torch.zeros_like(self._start.mu)

    def no_plain(self) -> dict[str, Tensor]:
        """Return zeros for the adapted plain tensors, in memory."""
        return {name: torch.zeros_like(value) for name, value in self._start.plain.items()}

    def no_gradient(self) -> DataGradient:
        """Return a gradient of zeros to be added to; the network adds to its g where there is one sample."""
        if self.problem.inner.samples == 1:
            return DataGradient(self.no_weights(), None, self.no_plain())
        return DataGradient(self.storage.vector(), self.storage.vector(), self.no_plain())

    @contextmanager
    def sample_gradient(self, total: DataGradient, noise: Vector) -> Iterator[Tensor]:
        """Return the vector to which the network adds one sample's gradient; then it is part of ``total``."""
        if total.e is None:
            if not isinstance(total.g, Tensor):
                raise AssertionError("the gradient of a single sample is added up in memory")
            yield total.g
            return
        own = self.no_weights()
        yield own
        for part in parts(own):
            total.g[..., part] += own[..., part]
            total.e[..., part] = total.e[..., part].addcmul(own[..., part], noise[..., part])

    def gradient(self, iterate: Iterate[Moving], step: int, *, keep: bool = False) -> tuple[Tensor, Record]:
        """Return the data term of the inner loss (for each task) with a step's noise, and its gradient."""
        count, samples = self.data.observations("support"), self.problem.inner.samples
        iterate = self.copy_iterate(iterate) if keep else iterate  # a kept graph refers to it, and steps are in place
        state = iterate.lambda_
        total = self.no_gradient()
        nll, factor = self.no_value(), 1 / (count * samples)
        graphs: list[list[KeptGradient]] = []
        noises = []
        for number in range(samples):
            noise = self.draw(step, number)
            point = self.data.point(sample(state, noise), state.plain)
            graphs.append([])
            with self.sample_gradient(total, noise) as own:
                into = self.data.point(own, total.plain)
                for chunk in self.data.chunks("support"):
                    if keep:
                        graphs[-1].append(KeptGradient(chunk, point, factor, into))
                        nll += factor * graphs[-1][-1].loss
                    else:
                        nll += factor * add_gradient(chunk, point, factor, into)
                del point, into
            if keep:
                noises.append(noise)
        return nll, Record(total, graphs, iterate, noises) if keep else Record(total)

    def step(self, iterate: Iterate[Moving], record: Record, step: int) -> Tensor:
        """Take a step in place along a recorded gradient, and return the KL before it."""
        return self.inner_step.advance(iterate, self.with_noise(record, step))

    def with_noise(self, record: Record, step: int) -> DataGradient:
        """Return a step's gradient, with its noise where there is one sample."""
        gradient = record.gradient
        return gradient if gradient.e is not None else gradient._replace(noise=self.noise(record, step, 0))

    def noise(self, record: Record, step: int, number: int) -> Vector:
        """Return the noise of one sample of a step, kept or drawn again."""
        return record.noise[number] if record.noise else self.draw(step, number)

    def failure(self, terms: dict[str, Tensor], step: int | str, *, last: bool = False) -> NonFinite | None:
        """Return the first term that is not finite, see ``FiniteChecks``; stacks are only looked at when done."""
        return None if self.data.stack else self.checks.failure(terms, step, last=last)


def inner_terms(nll: list[Tensor], kl: list[Tensor], w: float, like: Tensor) -> InnerTerms:
    """Return the terms of all steps, stacked along a new first axis of length K."""
    if not nll:
        return InnerTerms(like.new_zeros(0), like.new_zeros(0))
    return InnerTerms(torch.stack(nll), torch.stack(kl) * w)


def adapt(
    problem: Problem, theta: WeightDistribution, support: Examples, noise: Noise, *, steps: int | None = None
) -> WeightDistribution | NonFinite:
    """Return lambda after the inner steps, or a ``NonFinite`` that says where a number was not finite.

    Args:
        problem: The network, the likelihood and the inner loop.
        theta: Where the loop starts, and the prior of its KL.
        support: The examples to adapt to.
        noise: The noise of the weight samples.
        steps: Number of inner steps; None takes the problem's.
    """
    run = InnerRun(problem, theta, Task(support, support.first(0)), [noise])
    return _adapted(run, theta, steps)


def adapt_stack(
    problem: Problem,
    theta: WeightDistribution,
    supports: Examples,
    noises: Sequence[Noise],
    *,
    steps: int | None = None,
) -> WeightDistribution:
    """Return lambda for a stack of support sets (T, N, ...); every tensor that moved has T as its first axis.

    Numbers that are not finite stay in their own set's row.

    Args:
        problem: The network, the likelihood and the inner loop.
        theta: Where the loops start, and the prior of their KL.
        supports: Support sets of equal size, stacked on the first axis.
        noises: The noise of each set.
        steps: Number of inner steps; None takes the problem's.
    """
    none = slice(None), slice(0)
    task = Task(supports, Examples(rows_of(supports.x, none), supports.y[none]))
    lambda_ = _adapted(InnerRun(problem, theta, task, noises, stacked=True), theta, steps)
    if isinstance(lambda_, NonFinite):
        raise AssertionError("a stack does not stop early")
    return lambda_


def _adapted(run: InnerRun, theta: WeightDistribution, steps: int | None) -> WeightDistribution | NonFinite:
    """Return what was adapted, with copies of theta's values for the rest."""
    steps = run.problem.inner.steps if steps is None else steps
    check_integer("steps", steps, 0)
    steps = steps if run.data.observations("support") else 0
    iterate = run.start()
    for step in range(steps):
        nll, record = run.gradient(iterate, step)
        kl = run.step(iterate, record, step)
        if failure := run.failure({"nll": nll, "kl": kl * run.w}, step):
            return failure
    lambda_ = in_memory(iterate.lambda_)
    mu, rho, plain = lambda_.mu, lambda_.rho, lambda_.plain
    if steps:  # the losses of the last step were those before it; the scales of a point are infinite on purpose
        finite_rho = torch.where(rho == -torch.inf, 0.0, rho)
        moved = {"mean of a weight": mu, "scale of a weight": finite_rho, **plain}
        if failure := run.failure(moved, steps - 1, last=True):
            return failure
    rest = {name: value.detach().clone() for name, value in theta.plain.items() if name not in plain}
    log_lr = None if theta.log_lr is None else theta.log_lr.detach().clone()
    return WeightDistribution(mu, rho, {**rest, **plain}, log_lr)


# --- outer loss -------------------------------------------------------------------------------------------------------


@dataclass
class Cotangents:
    """Derivatives of the outer loss by lambda at some step (v), by theta as a prior, and by what does not move."""

    v: Moving
    fixed: FixedCotangent
    storage: Storage
    _theta: Moving | None = None

    @property
    def theta(self) -> Moving:
        """The derivative by theta as a prior; allocated on first use, because it is as large as v."""
        if self._theta is None:
            self._theta = self.storage.zeros()
        return self._theta


def differentiate_outer_loss(run: InnerRun, state: Moving) -> tuple[OuterTerms, Cotangents]:
    """Return the outer loss (for each task of a stack) and the cotangents at ``state``."""
    objective = run.problem.objective
    factors = objective.weights(run.data.observations("support"), run.data.observations("query"))
    zero = run.no_value()
    cotangents = Cotangents(run.storage.zeros(), run.data.fixed_cotangent(), run.storage)
    plain = run.no_plain()
    nll = {part: zero.clone() for part in PARTS}
    shares = _predictive_shares(run, state) if objective.predictive else None
    for number in range(objective.samples):
        noise = run.draw(0, number, outer=True)
        point, g = run.data.point(sample(state, noise), state.plain), run.no_weights()
        into = run.data.point(g, plain)
        for part in PARTS:
            factor = getattr(factors, part) / objective.samples
            if not factor:
                continue
            if shares is None:
                nll[part] += factor * _accumulate(run, part, point, factor, into, cotangents)
            else:
                factor = factor * objective.samples
                predictive_nll, of_samples = shares[part]
                nll[part] = factor * predictive_nll
                _accumulate(run, part, point, factor * of_samples[number], into, cotangents)
        del point, into
        out_of_weight_space(state, cotangents.v, g, noise)
        del g
    cotangents.v.plain.update(plain)
    kl = add_kl_gradient(state, run.theta, cotangents.v, cotangents.theta, factors.kl) if factors.kl else zero
    hyper = zero
    if factors.hyperprior and objective.hyperprior is not None:
        hyper = zero + _add_hyperprior(objective.hyperprior, run.theta, cotangents.theta, factors.hyperprior)
    return OuterTerms(nll["support"], nll["query"], kl, hyper), cotangents


def _accumulate(
    run: InnerRun, part: str, point: list[Tensor], factor: float | Tensor, into: list[Tensor], cotangents: Cotangents
) -> Tensor:
    """Add factor (a number, or one for each observation) times the gradient of a set's data term; return the term."""
    total = run.no_value()
    for chunk in run.data.chunks(part):
        into_fixed = run.data.fixed_views(cotangents.fixed, part, chunk)
        own = factor if isinstance(factor, float) else factor[chunk.window]
        total += add_gradient(chunk, point, own, into, into_fixed)
    return total


def _predictive_shares(run: InnerRun, state: Moving) -> dict[str, tuple[Tensor, Tensor]]:
    r"""Return $-\log\frac1S\sum_s p(y_n|\phi_s)$, summed over observations, and each sample's share
    $p(y_n|\phi_s) / \sum_{s'} p(y_n|\phi_{s'})$ in it, shape (S, ..., N), for each set of examples.

    The derivative of the first is that of the samples' own losses, weighted with their shares. This is a first pass
    over the samples without graphs: memory does not grow with their number.
    """
    factors = run.problem.objective.weights(run.data.observations("support"), run.data.observations("query"))
    samples, losses = run.problem.objective.samples, dict[str, list[Tensor]]()
    with torch.no_grad():
        for number in range(samples):
            point = run.data.point(sample(state, run.draw(0, number, outer=True)), state.plain)
            for part in PARTS:
                if getattr(factors, part):
                    pieces = [chunk.losses(point, chunk.fixed) for chunk in run.data.chunks(part)]
                    losses.setdefault(part, []).append(torch.cat(pieces, -1))
    log_p = {part: -torch.stack(values) for part, values in losses.items()}
    return {part: ((math.log(samples) - p.logsumexp(0)).sum(-1), p.softmax(0)) for part, p in log_p.items()}


def _add_hyperprior(
    hyperprior: NormalGammaHyperprior, theta: WeightDistribution, into: Moving, factor: float
) -> Tensor:
    """Add the gradient of -factor * log p(theta), in parts of the weights, and return its value."""
    value = torch.zeros_like(theta.mu[0])
    for part in parts(theta.mu):
        mu, rho = (x[part].detach().requires_grad_() for x in (theta.mu, theta.rho))
        with torch.enable_grad():
            loss = -factor * hyperprior.log_prob(WeightDistribution(mu, rho))
        grads = torch.autograd.grad(loss, (mu, rho))
        into.mu[..., part] += grads[0]
        into.rho[..., part] += grads[1]
        value += loss.detach()
    return value
