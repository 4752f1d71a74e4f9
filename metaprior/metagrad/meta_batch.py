"""Several tasks: one by one in the memory of one, stacked in one vectorised program, or pooled; on any ranks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress

import torch
from torch import Tensor

from metaprior.checks import all_true
from metaprior.inputs import Inputs
from metaprior.metagrad.data_loss import central_difference
from metaprior.metagrad.engines import twice_reverse
from metaprior.metagrad.finite import damages, first_non_finite
from metaprior.metagrad.problem import Engine, NonFinite, OuterTerms, Problem
from metaprior.metagrad.sweep import Sweep
from metaprior.missing import NO_TARGETS, TargetCount
from metaprior.noise import Noise
from metaprior.tasks.task import Task, all_examples, stacked_examples
from metaprior.team import current_team
from metaprior.weights import Parameters, WeightDistribution

STACKED_NUMBERS = 2**25
"""Weights and activations of a stack of tasks, together (128 MiB in float32), up to which tasks are stacked."""


@dataclass(frozen=True)
class MetaBatch:
    """Means over the tasks that were finite; ``failures`` are the others. With none left, loss and terms are NaN."""

    loss: Tensor
    grads: Parameters
    terms: OuterTerms
    count: int
    """Number of tasks in the means."""
    failures: tuple[NonFinite, ...] = ()
    targets: TargetCount = NO_TARGETS
    """Number of targets of all tasks, and of missing ones."""


@dataclass(frozen=True)
class BatchSums:
    """Sums over the tasks that were finite; those of several ranks are added before means are taken."""

    names: tuple[str, ...] = ()
    """Names of the tasks in the sums."""
    weight: float = 0.0
    """The divisor of the mean: the number of tasks, or of observations."""
    grads: Parameters | None = None
    """None if there is no task in the sums."""
    terms: OuterTerms | None = None
    failures: tuple[NonFinite, ...] = ()
    targets: TargetCount = NO_TARGETS
    """Number of targets of all tasks, and of missing ones."""

    def mean(self, theta: WeightDistribution) -> MetaBatch:
        """Return the mean; the sums' own tensors are divided in place."""
        if self.grads is None or self.terms is None:
            return no_mean(theta, self.failures, self.targets)
        for tensor in self.grads.tensors():
            tensor /= self.weight
        terms = OuterTerms(*(term / self.weight for term in self.terms))
        return MetaBatch(terms.total, self.grads, terms, len(self.names), self.failures, self.targets)


def meta_gradient(
    problem: Problem,
    theta: WeightDistribution,
    tasks: Sequence[Task],
    noise: Noise,
    *,
    engine: Engine = twice_reverse,
    stacked: bool = False,
) -> MetaBatch:
    """Return the mean outer loss and gradient of a meta-batch.

    Args:
        problem: what is differentiated.
        theta: where.
        tasks: at least one.
        noise: task i uses ``noise.at(task=noise.task + i)``.
        engine: how to differentiate.
        stacked: compute all tasks in one vectorised program, with the same result up to rounding. They need equal
            shapes, and memory for all of them at once.
    """
    if not tasks:
        raise ValueError("a meta-batch needs at least one task")
    return meta_sums(problem, theta, tasks, noise, engine=engine, stacked=stacked).mean(theta)


def meta_sums(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, engine: Engine, stacked: bool
) -> BatchSums:
    """Return the sums of ``meta_gradient`` (also of no tasks); tasks whose data are not finite are not tried."""
    noises = [noise.at(task=noise.task + index) for index in range(len(tasks))]
    damaged = damages(tasks)
    whole = [found is None for found in damaged]
    tasks, noises = list(compress(tasks, whole)), list(compress(noises, whole))
    how = all_at_once if stacked and len(tasks) > 1 else _one_by_one
    sums = how(problem, theta, tasks, noises, engine)
    return replace(sums, failures=(*filter(None, damaged), *sums.failures))


def _one_by_one(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise], engine: Engine
) -> BatchSums:
    failures: list[NonFinite] = []
    names: list[str] = []
    grads: Parameters | None = None
    terms: OuterTerms | None = None
    for task, noise in zip(tasks, noises, strict=True):
        with missing_derivatives_explained():
            value = engine(problem, theta, task, noise)
        if isinstance(value, NonFinite):
            failures.append(value)
            continue
        names.append(task.name)
        if grads is None or terms is None:
            grads, terms = value.grads, value.terms
        else:
            grads.zip_map(Tensor.add_, value.grads)
            terms = OuterTerms(*map(torch.add, terms, value.terms))
        del value
    return BatchSums(tuple(names), len(names), grads, terms, tuple(failures))


@contextmanager
def missing_derivatives_explained() -> Iterator[None]:
    """Add what helps to torch's errors about a missing second (or forward-mode) derivative of a layer."""
    try:
        yield
    except RuntimeError as error:  # NotImplementedError is one too
        if not any(words in str(error) for words in NOT_DERIVED):
            raise
        raise RuntimeError(
            f"torch lacks a derivative that exact meta-gradients of this network need: {error}\nFused attention: train "
            "within `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`. Other layers: try "
            "another exact engine (mixed, twice_reverse), or first_order, which is approximate and needs first "
            "derivatives only."
        ) from error


PooledLoss = Callable[[WeightDistribution, Inputs, Tensor], Tensor]
NOT_DERIVED = ("derivative for", "forward AD")
"""Words of torch's messages about operations that it cannot differentiate twice, or not in forward mode."""
NOT_VECTORISED = ("vmap", "Batching rule not implemented")
"""Words of torch's messages about what ``torch.vmap`` cannot do: random numbers, recurrent layers, ..."""


def all_at_once(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise], engine: Engine
) -> BatchSums:
    """Return the sums by one vectorised program; raise ValueError for what cannot be vectorised or stacked."""
    if not isinstance(engine, Sweep):
        raise ValueError(
            f"{engine.name} works on one task at a time; stacked tasks need a sweeping engine (mixed, ...)"
        )
    if engine.product is central_difference:
        raise ValueError(f"{engine.name} chooses its step for one task; it cannot work on a stack")
    shapes = {shapes_of(task) for task in tasks}
    if len(shapes) > 1:
        raise ValueError(f"stacked tasks need equal shapes, but there are {len(shapes)} kinds: {sorted(shapes)[:3]}")
    stack = stack_of(tasks)
    try:
        with missing_derivatives_explained():
            terms, _, grads = engine.stacked(problem, theta, stack, noises)
    except RuntimeError as error:
        if not any(words in str(error) for words in NOT_VECTORISED):
            raise
        raise ValueError(f"this network cannot be vectorised over tasks, use stacked=False: {error}") from error
    if not all_true([t.isfinite().all() for t in (*terms, *grads.tensors())]):
        good = (terms.total.isfinite() & grads.mu.isfinite().all(1) & grads.rho.isfinite().all(1)).tolist()
        if 1 < sum(good) < len(good):  # the good ones are stacked again; the others alone tell where they failed
            bad = [not flag for flag in good]
            alone = _one_by_one(problem, theta, list(compress(tasks, bad)), list(compress(noises, bad)), engine)
            if alone.grads is None:
                rest = all_at_once(problem, theta, list(compress(tasks, good)), list(compress(noises, good)), engine)
                return replace(rest, failures=(*alone.failures, *rest.failures))
        return _one_by_one(problem, theta, tasks, noises, engine)
    sums = grads.map(lambda grad: grad.sum(0))
    names = tuple(task.name for task in tasks)
    return BatchSums(names, len(tasks), sums, OuterTerms(*(term.sum(0) for term in terms)))


def stack_of(tasks: Sequence[Task]) -> Task:
    """Return tasks of equal shapes as one, with the tasks along a new first axis."""
    support, query = (
        stacked_examples(own) for own in zip(*((task.support, task.query) for task in tasks), strict=True)
    )
    return Task(support, query, "stack")


def no_mean(theta: WeightDistribution, failures: Sequence[NonFinite], targets: TargetCount) -> MetaBatch:
    """Return the meta-batch of no finite task: NaN everywhere."""
    unknown = theta.mu.new_full((), float("nan"))
    grads: Parameters = theta.map(lambda value: unknown.expand_as(value))
    return MetaBatch(unknown, grads, OuterTerms(*[unknown] * 4), 0, tuple(failures), targets)


def shapes_of(task: Task) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a task's tensors."""
    return *task.support.shapes, *task.query.shapes


def fit_together(problem: Problem, tasks: Sequence[Task], engine: Engine) -> bool:
    """Return whether there are several tasks, of equal shapes, small enough together to be stacked."""
    if len(tasks) < 2 or len({shapes_of(task) for task in tasks}) > 1:
        return False
    network, task, inner = problem.network, tasks[0], problem.inner
    kept = min(engine.keep, inner.steps) * inner.samples if isinstance(engine, Sweep) else 0
    head = 3 * kept * task.support.size * network.numbers_behind(problem.trunk_stages, task.query.x)  # both ways back
    whole = (task.support.size + task.query.size) * network.numbers_behind(0, task.query.x)
    return len(tasks) * (head + whole + 2 * network.layout.dimension) <= STACKED_NUMBERS


class Stacker:
    """The decision whether the tasks of a meta-batch are stacked, made once for each combination of shapes."""

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self._problem, self._engine = problem, engine
        self._decided: dict[tuple[object, ...], bool] = {}

    def __call__(self, tasks: Sequence[Task]) -> bool:
        """Return whether these tasks are stacked."""
        key = tuple(map(shapes_of, tasks))
        if key not in self._decided:
            self._decided[key] = fit_together(self._problem, tasks, self._engine)
        return self._decided[key]


def sum_over_ranks(theta: WeightDistribution, own_part: Callable[[], BatchSums]) -> BatchSums:
    """Return the sums over all ranks' tasks, bitwise identical on every rank, with all failures in the tasks' order."""
    team = current_team()
    own, notes = team.attempt(own_part, lambda sums: (sums.names, sums.weight, sums.failures, sums.targets))
    if team.size == 1:
        return own
    names = tuple(name for part, _, _, _ in notes for name in part)
    failures = tuple(failure for _, _, part, _ in notes for failure in part)
    targets = sum((part for _, _, _, part in notes), NO_TARGETS)
    if not names:
        return BatchSums(failures=failures, targets=targets)
    if own.grads is None or own.terms is None:
        grads, terms = theta.zeros(), OuterTerms(*(theta.mu.new_zeros(()) for _ in OuterTerms._fields))
    else:  # not views, which cannot be added to in place
        grads, terms = own.grads.map(Tensor.contiguous), OuterTerms(*(term.clone() for term in own.terms))
    team.sum_([*grads.tensors(), *terms])
    return BatchSums(names, sum(weight for _, weight, _, _ in notes), grads, terms, failures, targets)


def pooled_sums(
    loss: PooledLoss, theta: WeightDistribution, tasks: Sequence[Task], micro_batch: int | None = None
) -> BatchSums:
    r"""Return $\sum_n -\log p(y_n | \mu, \text{plain})$ over the support and query sets of tasks, and its gradient.

    This is plain training, as one would do without meta-learning, and the warm start: no adaptation, no noise, sigma
    plays no part, and the gradient by scales of theta is zero. A task whose data are not finite is left out, and named
    among the failures. Whether the sums are finite is checked by ``mean_of_pool``, when all ranks' sums are added.

    Args:
        loss: the summed negative log-likelihood of examples (x, y) at theta, for autograd.
        theta: where.
        tasks: checked tasks.
        micro_batch: examples that are differentiated at once; None: all.
    """
    found = damages(tasks)
    damaged = tuple(filter(None, found))
    tasks = list(compress(tasks, [one is None for one in found]))
    if not tasks:
        return BatchSums(failures=damaged)
    together = all_examples([part for task in tasks for part in (task.support, task.query)])
    leaves = theta.map(lambda value: value.detach().requires_grad_())
    total = theta.mu.new_zeros(())
    for own in together.split(micro_batch or together.size):
        with torch.enable_grad():
            part = loss(leaves, own.x, own.y)
        part.backward()
        total += part.detach()
    grads: Parameters = leaves.map(lambda leaf: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
    zero = torch.zeros_like(total)
    return BatchSums(
        tuple(task.name for task in tasks), together.size, grads, OuterTerms(zero, total, zero, zero), damaged
    )


def mean_of_pool(sums: BatchSums, theta: WeightDistribution) -> MetaBatch:
    """Return the mean over observations as a meta-batch; if it is not finite, all its tasks count as failed."""
    batch = sums.mean(theta)
    if not batch.count:
        return batch
    grads = {f"gradient by {name}": grad for name, grad in batch.grads.named().items() if name != "rho"}
    named = {"pooled nll": batch.loss, **grads}
    if failure := first_non_finite(named, f"{sums.names[0]} and {len(sums.names) - 1} others", "outer"):
        return no_mean(theta, [*batch.failures, *[failure] * batch.count], batch.targets)
    return batch
