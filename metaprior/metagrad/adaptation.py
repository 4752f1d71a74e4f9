"""The inner loop itself: from theta to lambda on a support set, with no graph behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.metagrad.data_loss import DataLoss
from metaprior.metagrad.inner_step import DataGradient, Iterate, StepSizes, advance, sample
from metaprior.metagrad.problem import InnerTerms, NonFinite, Problem, refuse_fraction
from metaprior.metagrad.products import KeptGradient, add_gradient
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution

Draw = Callable[[int, int], Tensor]
"""(step, sample) -> noise of phi's shape (of a stack's, if there is one): the same numbers whenever it is asked."""


def replayed(noises: Sequence[Noise], like: Tensor, *, stacked: bool) -> Draw:
    """Noise of one task, or of a stack of tasks."""

    def draw(step: int, number: int) -> Tensor:
        rows = [noise.at(step=step, sample=number).normal(like) for noise in noises]
        return torch.stack(rows) if stacked else rows[0]

    return draw


@dataclass
class Record:
    """What a step leaves for the way back: its gradient, and for a step whose graph is kept also the graph, the
    iterate before it and its noise."""

    gradient: DataGradient
    graphs: list[list[KeptGradient]] | None = None
    before: Iterate | None = None
    noise: list[Tensor] | None = None


class Adaptation:
    """Inner loop of one task, or of a stack of tasks."""

    def __init__(
        self,
        problem: Problem,
        theta: WeightDistribution,
        task: Task,
        noises: Sequence[Noise],
        *,
        stacked: bool = False,
        keep_trunk: bool = False,
    ) -> None:
        problem.check_theta(theta)
        self.problem = problem
        self.theta = theta.map(torch.detach)
        self.name = task.name
        self.data = DataLoss(problem, theta, task, tasks=len(noises) if stacked else 0, keep_trunk=keep_trunk)
        self.w = problem.inner.kl_weight / self.data.observations("support")
        self.sizes = StepSizes(problem, theta, self.data.adapted_names, self.w, self.data.stack)
        self.draw = replayed(noises, self.theta.mu, stacked=stacked)
        self.draw_outer = replayed([noise.fork("outer") for noise in noises], self.theta.mu, stacked=stacked)

    def start(self) -> Iterate:
        """Return lambda^(0), a copy of theta, with zero velocity."""
        plain = {name: self.theta.plain[name] for name in self.data.adapted_names}
        moving = Parameters(self.theta.mu, self.theta.rho, plain)
        lambda_ = moving.map(lambda value: value.expand((*self.data.stack, *value.shape)).clone())
        return Iterate(lambda_, lambda_.zeros() if self.problem.inner.momentum else None)

    def gradient(self, iterate: Iterate, step: int, *, keep: bool = False) -> tuple[Tensor, Record]:
        """Data term of the inner loss (for each task) at a step's noise, and its gradient."""
        count, samples = self.data.observations("support"), self.problem.inner.samples
        iterate = iterate.clone() if keep else iterate  # a kept graph holds on to it, and the walk goes on in place
        state = iterate.lambda_
        total = DataGradient.zeros(state, samples)
        nll, factor = torch.zeros_like(state.mu[..., 0]), 1 / (count * samples)
        graphs: list[list[KeptGradient]] = []
        noises = []
        for number in range(samples):
            noise = self.draw(step, number)
            point = self.data.point(sample(state, noise), state.plain)
            own = total.g if samples == 1 else torch.zeros_like(total.g)
            into = self.data.point(own, total.plain)
            graphs.append([])
            for chunk in self.data.chunks("support"):
                if keep:
                    graphs[-1].append(KeptGradient(chunk, point, factor, into))
                    nll += factor * graphs[-1][-1].loss
                else:
                    nll += factor * add_gradient(chunk, point, factor, into)
            if total.e is not None:
                total.g.add_(own)
                total.e.addcmul_(own, noise)
            if keep:
                noises.append(noise)
            del noise, point
        return nll, Record(total, graphs, iterate, noises) if keep else Record(total)

    def step(self, iterate: Iterate, record: Record, step: int) -> Tensor:
        """Move in place by a recorded gradient; returns the KL before the step."""
        noise = self.noise_of(record, step)
        return advance(iterate, self.theta, record.gradient, noise, self.sizes, self.problem.inner.momentum, self.w)

    def noise_of(self, record: Record, step: int) -> Tensor | None:
        """The step's noise, where there is one sample and the formulas need it."""
        if record.gradient.e is not None:
            return None
        return self.noise(record, step, 0)

    def noise(self, record: Record, step: int, number: int) -> Tensor:
        """Noise of one sample of a step: kept, or drawn again."""
        return record.noise[number] if record.noise else self.draw(step, number)

    def failure(self, terms: dict[str, Tensor], step: int) -> NonFinite | None:
        """The first term that is not finite; a stack of tasks is looked at only when it is done."""
        if self.data.stack:
            return None
        return first_non_finite(terms, self.name, step)


def first_non_finite(terms: dict[str, Tensor], name: str, step: int | str) -> NonFinite | None:
    """The first of the named numbers that is not finite."""
    for term, value in terms.items():
        bad = value[~torch.isfinite(value)] if value.ndim else value
        if not bool(torch.isfinite(value).all()):
            return NonFinite(name, step, term, float(bad.flatten()[0]))  # type: ignore[arg-type]
    return None


def damage(task: Task) -> NonFinite | None:
    """What is not finite in a task's own data, if anything is: no step size would help."""
    named = {
        f"{part} {name}": values
        for part, examples in (("support", task.support), ("query", task.query))
        for name, values in examples._asdict().items()
    }
    return first_non_finite(named, task.name, "data")


def inner_terms(nll: list[Tensor], kl: list[Tensor], w: float, like: Tensor) -> InnerTerms:
    """Stacked along a new first axis of length K."""
    if not nll:
        return InnerTerms(like.new_zeros(0), like.new_zeros(0))
    return InnerTerms(torch.stack(nll), torch.stack(kl) * w)


def _moved(state: Parameters) -> dict[str, Tensor]:
    """By name; the scale of a point is no number, and stays what it is."""
    rho = torch.where(state.rho == -torch.inf, 0.0, state.rho)
    return {"mean of a weight": state.mu, "scale of a weight": rho, **state.plain}


def adapt(
    problem: Problem, theta: WeightDistribution, support: Examples, noise: Noise, *, steps: int | None = None
) -> WeightDistribution | NonFinite:
    """lambda after ``steps`` (default: the problem's) inner steps, with no graph kept: for evaluation and use."""
    steps = problem.inner.steps if steps is None else steps
    refuse_fraction("steps", steps, 0)
    run = Adaptation(problem, theta, Task(support, support.first(0)), [noise])
    iterate = run.start()
    for step in range(steps):
        nll, record = run.gradient(iterate, step)
        kl = run.step(iterate, record, step)
        if failure := run.failure({"nll": nll, "kl": kl * run.w}, step):
            return failure
    if steps and (failure := run.failure(_moved(iterate.lambda_), steps - 1)):
        return failure  # the losses of the last step were those before it
    return _joined(iterate.lambda_, theta)


def adapt_stack(
    problem: Problem,
    theta: WeightDistribution,
    supports: Examples,
    noises: Sequence[Noise],
    *,
    steps: int | None = None,
) -> WeightDistribution:
    """lambda for a stack of support sets (T, N, ...) at once; every tensor that moved has T as its first axis.

    A set that leaves the finite numbers shows it in its own row.
    """
    steps = problem.inner.steps if steps is None else steps
    refuse_fraction("steps", steps, 0)
    run = Adaptation(
        problem, theta, Task(supports, Examples(supports.x[:, :0], supports.y[:, :0])), noises, stacked=True
    )
    iterate = run.start()
    for step in range(steps):
        _, record = run.gradient(iterate, step)
        run.step(iterate, record, step)
    return _joined(iterate.lambda_, theta)


def _joined(lambda_: Parameters, theta: WeightDistribution) -> WeightDistribution:
    """Return what was adapted, with copies of theta's values for the rest."""
    rest = {name: value.detach().clone() for name, value in theta.plain.items() if name not in lambda_.plain}
    log_lr = None if theta.log_lr is None else theta.log_lr.detach().clone()
    return WeightDistribution(lambda_.mu, lambda_.rho, {**rest, **lambda_.plain}, log_lr)
