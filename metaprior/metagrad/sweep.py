r"""Forward through the inner loop, backward through its steps, in weight space; most engines are values of ``Sweep``.

With v the derivative of the outer loss by $\lambda^{(k+1)}$ and z that by the velocity, one step back is

$$a = z - \alpha v, \qquad v \leftarrow v + (\partial G/\partial\lambda)^T a, \qquad z \leftarrow \beta a, \qquad
\bar\theta \leftarrow \bar\theta + (\partial G/\partial\theta)^T a,$$

where G is the inner gradient. All of it is elementwise except one product of the data loss's Hessian with a vector of D
numbers. One gradient of D numbers is stored for each step: noise is replayed from its index, and $\lambda^{(k)}$ is
rebuilt from theta and the stored gradients.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from metaprior.metagrad.data_loss import HessianProduct
from metaprior.metagrad.finite import FiniteChecks
from metaprior.metagrad.inner_loop import (
    Cotangents,
    InnerRun,
    Record,
    differentiate_outer_loss,
    inner_terms,
)
from metaprior.metagrad.inner_step import DataGradient, Direction, Iterate, into_weight_space
from metaprior.metagrad.problem import InnerTerms, MetaGradient, NonFinite, OuterTerms, Problem
from metaprior.metagrad.scratch import InFile, Scratch, ScratchFile, lent, moved, moving
from metaprior.metagrad.vectors import Moving, Vector, copy_into, parts, scale
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution

Outcome = tuple[OuterTerms, InnerTerms, Parameters]


@dataclass(frozen=True)
class Sweep:
    """An engine that sweeps back over the inner steps.

    Args:
        name: for tables and messages.
        exact: whether the result is the derivative itself.
        product: how to multiply with the Hessian.
        through: how many of the last steps to differentiate; None: all.
        keep: of how many of the last steps to keep the graph; they need no second forward pass and no replay, and the
            memory of their graphs.
        scratch: where to keep path and cotangents in a file, so that memory does not grow with steps; None: in memory.
    """

    name: str
    exact: bool
    product: HessianProduct
    through: int | None = None
    keep: int = 0
    scratch: Scratch | None = None

    def __post_init__(self) -> None:
        if self.scratch is not None and self.keep:
            raise ValueError(
                f"keep must be 0 where the path is in a file, got {self.keep}: graphs cannot be written to files"
            )

    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Return the outer loss of one task, its gradient, and its terms."""
        checks, outcome = self._run(problem, theta, task, [noise], stacked=False)
        if isinstance(outcome, NonFinite):
            return outcome
        terms, inner, grads = outcome
        return checked(MetaGradient(terms.total, grads, terms, inner), checks)

    def stacked(
        self, problem: Problem, theta: WeightDistribution, stack: Task, noises: Sequence[Noise]
    ) -> tuple[OuterTerms, InnerTerms, Parameters]:
        """Return terms and gradients of tasks that are stacked along a new first axis, by one vectorised program.

        Every tensor of the result has the tasks as its first axis (the inner terms: as their second); each row of a
        trunk's gradient is the mean over tasks.
        """
        _, outcome = self._run(problem, theta, stack, noises, stacked=True)
        if isinstance(outcome, NonFinite):
            raise AssertionError("a stack does not stop early")
        return outcome

    def _run(
        self, problem: Problem, theta: WeightDistribution, task: Task, noises: Sequence[Noise], *, stacked: bool
    ) -> tuple[FiniteChecks, Outcome | NonFinite]:
        with ExitStack() as until_done:
            file = None
            if self.scratch is not None:
                size = self.scratch_bytes(problem, theta, tasks=len(noises))
                file = until_done.enter_context(ScratchFile(self.scratch.folder, size))
                until_done.enter_context(lent(problem.network.module.parameters(), file))
            run = InnerRun(problem, theta, task, noises, stacked=stacked, keep_trunk=self.keep > 0, file=file)
            return run.checks, self._differentiated(run)

    def _differentiated(self, run: InnerRun) -> Outcome | NonFinite:
        path = self._path(run)
        inner = path.walk()
        if isinstance(inner, NonFinite):
            return inner
        terms, cotangents = differentiate_outer_loss(run, path.iterate.lambda_)
        if failure := run.failure(terms._asdict(), "outer"):
            return failure
        sweep_back(run, path, cotangents, self.product)
        run.data.pull_back_trunk(cotangents.fixed)
        return terms, inner, collect_gradient(run, cotangents)

    def _path(self, run: InnerRun) -> "Path":
        first = self._first(run.problem.inner.steps)
        if isinstance(run.storage, InFile):
            return PathInFile(run, run.storage, first)
        return PathInMemory(run, first, self.keep)

    def _first(self, steps: int) -> int:
        """Return the first step that is differentiated."""
        return 0 if self.through is None else max(0, steps - self.through)

    def scratch_bytes(self, problem: Problem, theta: WeightDistribution, *, tasks: int = 1) -> float:
        """Return the size of the scratch file: every iterate and gradient of the path, cotangents, the module."""
        if self.scratch is None:
            return 0.0
        inner = problem.inner
        plain = sum(theta.plain[name].nbytes for name in problem.adapted_names)
        moving, vector = theta.mu.nbytes + theta.rho.nbytes + plain, theta.mu.nbytes
        gradient = (1 if inner.samples == 1 else 2) * vector + plain
        products = 0 if inner.samples == 1 else 2 * vector
        steps = inner.steps - self._first(inner.steps)
        cotangents = 3 if inner.momentum else 2  # v, theta's, z
        iterates = (steps + 1) * (2 if inner.momentum else 1)
        module = sum(parameter.nbytes for parameter in problem.network.module.parameters())
        return float(tasks * ((iterates + cotangents) * moving + steps * (gradient + products)) + module)


class Path(Protocol):
    """The steps of an inner loop; from step ``first`` on they can be rewound."""

    first: int
    steps: int
    iterate: Iterate[Moving]
    """The present iterate: lambda^(K) after ``walk``, an earlier one after ``rewind``."""

    def walk(self) -> InnerTerms | NonFinite:
        """Take all steps, and return the terms of the inner loss."""

    def rewind(self, step: int) -> Record:
        """Set ``iterate`` to what it was before a step, and return the step's record, which is forgotten."""


Taken = tuple[Tensor, Tensor]
"""The data term and the KL before a step."""


def walk(run: InnerRun, take: Callable[[int], Taken]) -> InnerTerms | NonFinite:
    """Take all steps of a run, and return the terms of the inner loss."""
    nlls, kls = [], []
    for step in range(run.problem.inner.steps):
        nll, kl = take(step)
        if failure := run.failure({"nll": nll, "kl": kl * run.w}, step):
            return failure
        nlls.append(nll)
        kls.append(kl)
    return inner_terms(nlls, kls, run.w, run.theta.mu)


class PathInFile:
    """A path in a file: iterates and gradients of all steps, so that nothing is computed again."""

    def __init__(self, run: InnerRun, storage: InFile, first: int) -> None:
        self.first, self.steps = first, run.problem.inner.steps
        self._run, self._storage = run, storage
        self.iterate = run.start()
        self._before: dict[int, Iterate[Moving]] = {}
        self._gradients: dict[int, DataGradient] = {}

    def walk(self) -> InnerTerms | NonFinite:
        """Take all steps, and return the terms of the inner loss."""
        return walk(self._run, self._take)

    def _take(self, step: int) -> Taken:
        nll, record = self._run.gradient(self.iterate, step)
        if step < self.first:
            return nll, self._run.step(self.iterate, record, step)
        after = moving(self.iterate)
        kl = self._run.step(after, record, step)
        self._before[step], self._gradients[step] = self.iterate, self._storage.keep(record.gradient)
        self.iterate = moved(after)
        return nll, kl

    def rewind(self, step: int) -> Record:
        """Set ``iterate`` to what it was before a step, and return the step's record, which is forgotten."""
        self.iterate = self._before.pop(step)
        return Record(self._gradients.pop(step))


class PathInMemory:
    """A path of which the gradients are kept: earlier iterates are computed from them again."""

    def __init__(self, run: InnerRun, first: int, keep: int) -> None:
        self.first, self.steps = first, run.problem.inner.steps
        self.iterate = run.start()
        self._run, self._kept_from = run, max(first, self.steps - keep)
        self._records: dict[int, Record] = {}
        self._snapshots: dict[int, Iterate[Moving]] = {}

    def walk(self) -> InnerTerms | NonFinite:
        """Take all steps, and return the terms of the inner loss."""
        return walk(self._run, self._take)

    def _take(self, step: int) -> Taken:
        run = self._run
        if step == self.first > 0:
            self._snapshots[step] = run.copy_iterate(self.iterate)
        nll, record = run.gradient(self.iterate, step, keep=step >= self._kept_from)
        kl = run.step(self.iterate, record, step)
        if step >= self.first:
            self._records[step] = record
        return nll, kl

    def rewind(self, step: int) -> Record:
        """Set ``iterate`` to what it was before a step, and return the step's record, which is forgotten."""
        record = self._records.pop(step)
        if record.before is not None:
            self.iterate = record.before
        else:
            self._replay(step)
        return record

    def _replay(self, step: int) -> None:
        """Rebuild lambda^(step) from the nearest earlier snapshot (or theta) and the recorded gradients."""
        self._snapshots = {known: iterate for known, iterate in self._snapshots.items() if known <= step}
        base = max(self._snapshots, default=0)
        self._overwrite(self._snapshots[base] if self._snapshots else self._run.start())
        # Snapshots (mu and rho, and their velocity) take at most the memory that used gradients have freed.
        vectors = 4 if self.iterate.velocity is not None else 2
        room = vectors * (len(self._snapshots) + 1) <= self.steps - 1 - step
        halfway = (base + step) // 2
        for earlier in range(base, step):
            if room and earlier == halfway > base:
                self._snapshots[earlier] = self._run.copy_iterate(self.iterate)
            self._run.step(self.iterate, self._records[earlier], earlier)

    def _overwrite(self, other: Iterate[Moving]) -> None:
        copy_into(self.iterate.lambda_, other.lambda_)
        if self.iterate.velocity is not None and other.velocity is not None:
            copy_into(self.iterate.velocity, other.velocity)


def sweep_back(run: InnerRun, path: Path, cotangents: Cotangents, product: HessianProduct) -> None:
    """Pull the cotangents back from lambda^(K) to the path's first step."""
    v, momentum = cotangents.v, run.problem.inner.momentum
    z = run.storage.zeros() if momentum else None
    for step in reversed(range(path.first, path.steps)):
        record = path.rewind(step)
        state, gradient = path.iterate.lambda_, run.with_noise(record, step)
        run.inner_step.collect_step_size_gradient(path.iterate, gradient, v, lambda: cotangents.theta)
        if z is not None:
            descent = Direction(v, run.sizes)
            for part in parts(z.mu):
                mu, rho = descent.at(part)
                z.mu[..., part] += mu
                z.rho[..., part] += rho
            for name in z.plain:
                z.plain[name] += descent.of_plain(name)  # now z is a
        direction = Direction(v, run.sizes) if z is None else Direction(z)
        pull_back(run, step, state, record, gradient, direction, cotangents, product)
        if z is not None:
            scale(z, momentum)
    if path.first:
        _collect_untouched_steps(run, path.iterate.lambda_, v, cotangents)


def _collect_untouched_steps(run: InnerRun, state: Moving, v: Moving, cotangents: Cotangents) -> None:
    r"""Collect from the steps before the path: $\lambda - \theta = -\alpha\sum m$, with the sum taken as constant."""
    if run.sizes.learned is None and not run.sizes.damped:
        return
    for part in parts(state.mu):
        moves = (state.mu[..., part] - run.theta.mu[part]) / run.sizes.mu(part)
        mu = run.sizes.pull_back_mu(part, v.mu[..., part] * moves, lambda: cotangents.theta)
        if run.sizes.learned is not None:
            theta_rho = run.theta.rho[part]  # -inf for a point prior, which does not move
            rho = torch.where(state.rho[..., part] == theta_rho, 0.0, state.rho[..., part] - theta_rho)
            run.sizes.collect(part, mu, v.rho[..., part] * rho)
    for name, value in state.plain.items() if run.sizes.learned is not None else ():
        run.sizes.collect_plain(name, v.plain[name] * (value - run.theta.plain[name]))


def pull_back(
    run: InnerRun,
    step: int,
    state: Moving,
    record: Record,
    gradient: DataGradient,
    direction: Direction,
    cotangents: Cotangents,
    product: HessianProduct,
) -> None:
    """Add (dG/d lambda)^T a, (dG/d theta)^T a and (dG/d fixed)^T a to the cotangents; ``gradient`` has its noise."""
    samples = run.problem.inner.samples
    factor = 1 / (run.data.observations("support") * samples)
    total = run.no_gradient()._replace(noise=gradient.noise)
    for number in range(samples):
        graphs = record.graphs[number] if record.graphs else None
        noise = run.noise(record, step, number) if gradient.noise is None else gradient.noise
        u, phi = into_weight_space(state, direction, noise, factor, sampled=not graphs)
        along = run.data.point(u, {name: factor * direction.of_plain(name) for name in state.plain})
        point = [] if phi is None else run.data.point(phi, state.plain)
        with run.sample_gradient(total, noise) as own:
            into = run.data.point(own, total.plain)
            for index, chunk in enumerate(run.data.chunks("support")):
                into_fixed = run.data.fixed_views(cotangents.fixed, "support", chunk)
                if graphs:
                    graphs[index].add_product(along, into, into_fixed)
                else:
                    product(chunk, point, along, into, into_fixed)
            del u, phi, along, point, into
    run.inner_step.add_pullback(state, gradient, direction, total, cotangents.v, cotangents.theta)


def collect_gradient(run: InnerRun, cotangents: Cotangents) -> Parameters:
    """Return the derivative by everything in theta: lambda^(0) is theta."""
    v, theta = cotangents.v, cotangents.theta
    stack = run.data.stack
    known = {**v.plain, **cotangents.fixed.by_name(stack)}
    plain = {
        name: known[name] if name in known else torch.zeros_like(value).expand((*stack, *value.shape))
        for name, value in run.theta.plain.items()
    }
    log_lr = None if run.sizes.learned is None else run.sizes.grad
    return Parameters(_sum(theta.mu, v.mu), _sum(theta.rho, v.rho), plain, log_lr)


def _sum(total: Vector, other: Vector) -> Tensor:
    """Return the sum of two vectors in memory, in place of the first one if it is there."""
    found = total if isinstance(total, Tensor) else torch.empty(total.shape, dtype=total.dtype, device=total.device)
    for part in parts(found):
        torch.add(total[..., part], other[..., part], out=found[..., part])
    return found


def checked(value: MetaGradient, checks: FiniteChecks) -> MetaGradient | NonFinite:
    """Return the value, or the place of the first number in it (or on the way to it) that is not finite."""
    if failure := checks.failure(value.terms._asdict(), "outer"):
        return failure
    extremes = {f"gradient by {part}": torch.stack(torch.aminmax(grad)) for part, grad in value.grads.named().items()}
    return checks.failure(extremes, "sweep", last=True) or value
