r"""Forward through the inner loop, backward through its steps, in weight space; most engines are values of ``Sweep``.

With v the derivative of the outer loss by $\lambda^{(k+1)}$ and z that by the velocity, one step back is

$$a = z - \alpha v, \qquad v \leftarrow v + (\partial G/\partial\lambda)^T a, \qquad z \leftarrow \beta a, \qquad
\bar\theta \leftarrow \bar\theta + (\partial G/\partial\theta)^T a,$$

where G is the inner gradient. All of it is elementwise except one product of the data loss's Hessian with a vector of D
numbers. One gradient of D numbers is stored for each step: noise is replayed from its index, and $\lambda^{(k)}$ is
rebuilt from theta and the stored gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaprior.metagrad.data_loss import HessianProduct
from metaprior.metagrad.finite import FiniteChecks
from metaprior.metagrad.inner_loop import (
    Cotangents,
    InnerRun,
    Record,
    differentiate_outer_loss,
    inner_terms,
)
from metaprior.metagrad.inner_step import DataGradient, Direction, Iterate, into_weight_space, parts, sample
from metaprior.metagrad.problem import InnerTerms, MetaGradient, NonFinite, OuterTerms, Problem
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import Parameters, WeightDistribution


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
    """

    name: str
    exact: bool
    product: HessianProduct
    through: int | None = None
    keep: int = 0

    def __call__(
        self, problem: Problem, theta: WeightDistribution, task: Task, noise: Noise
    ) -> MetaGradient | NonFinite:
        """Return the outer loss of one task, its gradient, and its terms."""
        run = InnerRun(problem, theta, task, [noise], keep_trunk=self.keep > 0)
        outcome = self._run(run)
        if isinstance(outcome, NonFinite):
            return outcome
        terms, inner, grads = outcome
        return checked(MetaGradient(terms.total, grads, terms, inner), run.checks)

    def stacked(
        self, problem: Problem, theta: WeightDistribution, stack: Task, noises: Sequence[Noise]
    ) -> tuple[OuterTerms, InnerTerms, Parameters]:
        """Return terms and gradients of tasks that are stacked along a new first axis, by one vectorised program.

        Every tensor of the result has the tasks as its first axis (the inner terms: as their second); each row of a
        trunk's gradient is the mean over tasks.
        """
        outcome = self._run(InnerRun(problem, theta, stack, noises, stacked=True, keep_trunk=self.keep > 0))
        if isinstance(outcome, NonFinite):
            raise AssertionError("a stack does not stop early")
        return outcome

    def _run(self, run: InnerRun) -> tuple[OuterTerms, InnerTerms, Parameters] | NonFinite:
        steps = run.problem.inner.steps
        path = Path(run, first=0 if self.through is None else max(0, steps - self.through), keep=self.keep)
        inner = path.walk()
        if isinstance(inner, NonFinite):
            return inner
        terms, cotangents = differentiate_outer_loss(run, path.iterate.lambda_)
        if failure := run.failure(terms._asdict(), "outer"):
            return failure
        sweep_back(run, path, cotangents, self.product)
        run.data.pull_back_trunk(cotangents.fixed)
        return terms, inner, collect_gradient(run, cotangents)


class Path:
    """The steps of an inner loop; from step ``first`` on they can be rewound."""

    def __init__(self, run: InnerRun, first: int, keep: int) -> None:
        self.first, self.steps = first, run.problem.inner.steps
        self.iterate = run.start()
        """The present iterate: lambda^(K) after ``walk``, an earlier one after ``rewind``."""
        self._run, self._kept_from = run, max(first, self.steps - keep)
        self._records: dict[int, Record] = {}
        self._snapshots: dict[int, Iterate] = {}

    def walk(self) -> InnerTerms | NonFinite:
        """Take all steps, and return the terms of the inner loss."""
        nlls, kls, run = [], [], self._run
        for step in range(self.steps):
            if step == self.first > 0:
                self._snapshots[step] = self.iterate.clone()
            nll, record = run.gradient(self.iterate, step, keep=step >= self._kept_from)
            kl = run.step(self.iterate, record, step)
            if failure := run.failure({"nll": nll, "kl": kl * run.w}, step):
                return failure
            if step >= self.first:
                self._records[step] = record
            nlls.append(nll)
            kls.append(kl)
        return inner_terms(nlls, kls, run.w, run.theta.mu)

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
        self.iterate.copy_(self._snapshots[base] if self._snapshots else self._run.start())
        # Snapshots (mu and rho, and their velocity) take at most the memory that used gradients have freed.
        vectors = 4 if self.iterate.velocity is not None else 2
        room = vectors * (len(self._snapshots) + 1) <= self.steps - 1 - step
        halfway = (base + step) // 2
        for earlier in range(base, step):
            if room and earlier == halfway > base:
                self._snapshots[earlier] = self.iterate.clone()
            self._run.step(self.iterate, self._records[earlier], earlier)


def sweep_back(run: InnerRun, path: Path, cotangents: Cotangents, product: HessianProduct) -> None:
    """Pull the cotangents back from lambda^(K) to the path's first step."""
    v, momentum = cotangents.v, run.problem.inner.momentum
    z = v.zeros() if momentum else None
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
        for tensor in z.tensors() if z is not None else ():
            tensor *= momentum
    if path.first:
        _collect_untouched_steps(run, path.iterate.lambda_, v, cotangents)


def _collect_untouched_steps(run: InnerRun, state: Parameters, v: Parameters, cotangents: Cotangents) -> None:
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
    state: Parameters,
    record: Record,
    gradient: DataGradient,
    direction: Direction,
    cotangents: Cotangents,
    product: HessianProduct,
) -> None:
    """Add (dG/d lambda)^T a, (dG/d theta)^T a and (dG/d fixed)^T a to the cotangents; ``gradient`` has its noise."""
    samples = run.problem.inner.samples
    factor = 1 / (run.data.observations("support") * samples)
    total = DataGradient.zeros(state, samples)._replace(noise=gradient.noise)
    for number in range(samples):
        own = total.g if samples == 1 else torch.zeros_like(total.g)
        into = run.data.point(own, total.plain)
        graphs = record.graphs[number] if record.graphs else None
        noise = run.noise(record, step, number) if gradient.noise is None else gradient.noise
        u = into_weight_space(state, direction, noise).mul_(factor)
        along = run.data.point(u, {name: factor * direction.of_plain(name) for name in state.plain})
        point = [] if graphs else run.data.point(sample(state, noise), state.plain)
        del noise
        for index, chunk in enumerate(run.data.chunks("support")):
            into_fixed = run.data.fixed_views(cotangents.fixed, "support", chunk)
            if graphs:
                graphs[index].add_product(along, into, into_fixed)
            else:
                product(chunk, point, along, into, into_fixed)
        del u, along, point
        if total.e is not None:
            total.g.add_(own)
            total.e.addcmul_(own, run.noise(record, step, number))
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
    return Parameters(theta.mu.add_(v.mu), theta.rho.add_(v.rho), plain, log_lr)


def checked(value: MetaGradient, checks: FiniteChecks) -> MetaGradient | NonFinite:
    """Return the value, or the place of the first number in it (or on the way to it) that is not finite."""
    if failure := checks.failure(value.terms._asdict(), "outer"):
        return failure
    extremes = {f"gradient by {part}": torch.stack(torch.aminmax(grad)) for part, grad in value.grads.named().items()}
    return checks.failure(extremes, "sweep", last=True) or value
