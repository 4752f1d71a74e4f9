"""Several tasks: one after the other in the memory of one, or (small networks) all at once, vectorised."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress

import torch
from torch import Tensor

from metaprior.metagrad.adaptation import damage
from metaprior.metagrad.problem import Engine, MetaGradient, NonFinite, OuterTerms, Problem
from metaprior.metagrad.products import central_difference
from metaprior.metagrad.sweep import Sweep
from metaprior.metagrad.twice_reverse import twice_reverse
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import Parameters, WeightDistribution


@dataclass(frozen=True)
class MetaBatch:
    """Means over the tasks that were finite; ``failures`` are the others. With none left, loss and terms are NaN."""

    loss: Tensor
    grads: Parameters
    terms: OuterTerms
    count: int
    """Tasks that the means are over."""
    failures: tuple[NonFinite, ...] = ()


@dataclass(frozen=True)
class BatchSums:
    """Sums over the tasks that were finite, which can be added to those of other tasks before means are taken."""

    names: tuple[str, ...] = ()
    """Of the tasks in the sums."""
    weight: float = 0.0
    """What a mean is these sums divided by: the number of tasks, or of observations."""
    grads: Parameters | None = None
    """None if there is no task in the sums."""
    terms: OuterTerms | None = None
    failures: tuple[NonFinite, ...] = ()

    def mean(self, theta: WeightDistribution) -> MetaBatch:
        """The mean; the sums' own tensors are divided in place."""
        if self.grads is None or self.terms is None:
            return nothing(theta, self.failures)
        for tensor in self.grads.tensors():
            tensor /= self.weight
        terms = OuterTerms(*(term / self.weight for term in self.terms))
        return MetaBatch(terms.total, self.grads, terms, len(self.names), self.failures)


def meta_gradient(
    problem: Problem,
    theta: WeightDistribution,
    tasks: Sequence[Task],
    noise: Noise,
    *,
    engine: Engine = twice_reverse,
    stacked: bool = False,
) -> MetaBatch:
    """Mean outer loss and gradient of a meta-batch; task i of it uses the noise ``noise.at(task=noise.task + i)``.

    ``stacked``: all tasks in one vectorised program, to rounding the same result. They need equal shapes, and memory
    for all of them at once.
    """
    if not tasks:
        raise ValueError("a meta-batch needs at least one task")
    return meta_sums(problem, theta, tasks, noise, engine=engine, stacked=stacked).mean(theta)


def meta_sums(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noise: Noise, *, engine: Engine, stacked: bool
) -> BatchSums:
    """The same before the division, also for no tasks at all. Tasks whose data are not finite are not tried."""
    noises = [noise.at(task=noise.task + index) for index in range(len(tasks))]
    damages = [damage(task) for task in tasks]
    whole = [found is None for found in damages]
    tasks, noises = list(compress(tasks, whole)), list(compress(noises, whole))
    how = all_at_once if stacked and len(tasks) > 1 else _one_by_one
    sums = how(problem, theta, tasks, noises, engine)
    return replace(sums, failures=(*filter(None, damages), *sums.failures))


def _one_by_one(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise], engine: Engine
) -> BatchSums:
    failures: list[NonFinite] = []
    names: list[str] = []
    total: MetaGradient | None = None
    for task, noise in zip(tasks, noises, strict=True):
        with missing_derivatives_explained():
            value = engine(problem, theta, task, noise)
        if isinstance(value, NonFinite):
            failures.append(value)
            continue
        names.append(task.name)
        total = value if total is None else _add_in_place(total, value)
        del value
    if total is None:
        return BatchSums(failures=tuple(failures))
    return BatchSums(tuple(names), len(names), total.grads, total.terms, tuple(failures))


def _add_in_place(total: MetaGradient, value: MetaGradient) -> MetaGradient:
    total.grads.zip_map(Tensor.add_, value.grads)
    terms = OuterTerms(*(a + b for a, b in zip(total.terms, value.terms, strict=True)))
    return MetaGradient(terms.total, total.grads, terms, total.inner)


@contextmanager
def missing_derivatives_explained() -> Iterator[None]:
    """Say what to do where torch has no second (or no forward-mode) derivative of a layer."""
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


NOT_DERIVED = ("derivative for", "forward AD")
"""In torch's messages about operations whose backward pass cannot be differentiated, or not in forward mode."""
NOT_VECTORISED = ("vmap", "Batching rule not implemented")
"""In torch's messages about what ``torch.vmap`` cannot do: random numbers, say; recurrent layers."""


def all_at_once(
    problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], noises: Sequence[Noise], engine: Engine
) -> BatchSums:
    """One vectorised program; ValueError for what cannot be vectorised, or not stacked."""
    if not isinstance(engine, Sweep):
        raise ValueError(
            f"{engine.name} works on one task at a time; stacked tasks need a sweeping engine (mixed, ...)"
        )
    if engine.product is central_difference:
        raise ValueError(f"{engine.name} chooses its step for one task; it cannot work on a stack")
    try:
        with missing_derivatives_explained():
            terms, _, grads = engine.stacked(problem, theta, stack_tasks(tasks), noises)
    except RuntimeError as error:
        if not any(words in str(error) for words in NOT_VECTORISED):
            raise
        raise ValueError(f"this network cannot be vectorised over tasks, use stacked=False: {error}") from error
    if not all(bool(t.isfinite().all()) for t in (*terms, *grads.tensors())):
        good = (terms.total.isfinite() & grads.mu.isfinite().all(1) & grads.rho.isfinite().all(1)).tolist()
        return _without_the_bad(problem, theta, tasks, noises, engine, good)
    sums = grads.map(lambda grad: grad.sum(0))
    return BatchSums(_names(tasks), len(tasks), sums, OuterTerms(*(term.sum(0) for term in terms)))


def _names(tasks: Sequence[Task]) -> tuple[str, ...]:
    return tuple(task.name for task in tasks)


def _without_the_bad(
    problem: Problem,
    theta: WeightDistribution,
    tasks: Sequence[Task],
    noises: Sequence[Noise],
    engine: Engine,
    good: Sequence[bool],
) -> BatchSums:
    """The good tasks of a stack, stacked again; the others one by one, which says what happened in which."""
    if 1 < sum(good) < len(good):
        bad = [not flag for flag in good]
        alone = _one_by_one(problem, theta, list(compress(tasks, bad)), list(compress(noises, bad)), engine)
        if alone.grads is None:
            rest = all_at_once(problem, theta, list(compress(tasks, good)), list(compress(noises, good)), engine)
            return replace(rest, failures=(*alone.failures, *rest.failures))
    return _one_by_one(problem, theta, tasks, noises, engine)


def stack_tasks(tasks: Sequence[Task]) -> Task:
    """Tasks of equal shapes along a new first axis."""
    shapes = {tuple(tuple(t.shape) for part in (task.support, task.query) for t in part) for task in tasks}
    if len(shapes) > 1:
        raise ValueError(f"stacked tasks need equal shapes, but there are {len(shapes)} kinds: {sorted(shapes)[:3]}")
    support, query = (
        Examples(torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts]))
        for parts in ([task.support for task in tasks], [task.query for task in tasks])
    )
    return Task(support, query, "stack")


def nothing(theta: WeightDistribution, failures: Sequence[NonFinite]) -> MetaBatch:
    """No task was finite: there is no mean."""
    unknown = torch.full_like(theta.mu[0], float("nan"))
    grads: Parameters = theta.map(lambda value: unknown.expand_as(value))
    return MetaBatch(unknown, grads, OuterTerms(unknown, unknown, unknown, unknown), 0, tuple(failures))
