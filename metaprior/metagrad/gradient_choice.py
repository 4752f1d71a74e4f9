"""The choice of how gradients are computed, where the user leaves it open: all choices are exact."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from metaprior.metagrad import meta_batch
from metaprior.metagrad.engines import keeping, twice_reverse
from metaprior.metagrad.memory import Budget, is_measured
from metaprior.metagrad.meta_batch import all_at_once, fit_together
from metaprior.metagrad.planner import Way, is_large, plan
from metaprior.metagrad.problem import Engine, Problem
from metaprior.metagrad.sweep import Sweep
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

EVERY_STEP = 10**6


class GradientChoice(NamedTuple):
    """The engine, the problem with its micro-batch, and whether the tasks of a meta-batch are stacked."""

    engine: Engine
    problem: Problem
    stacked: bool


def choose_gradient(
    problem: Problem,
    theta: WeightDistribution,
    tasks: Sequence[Task],
    budget: Budget,
    engine: Engine | None,
    *,
    before: Way | None = None,
) -> GradientChoice:
    """Return the choice for tasks like these: small networks keep their graphs and are stacked, large ones are planned.

    A plan depends on the memory that is free, so the plan of ``before`` is kept as long as it fits. On a device whose
    memory is not known, large networks are differentiated step by step, which needs the least memory.
    """
    largest = max(tasks, key=lambda task: task.support.size)
    if not largest.support.size:  # nothing is adapted to here; one example stands for what others may have
        largest = largest._replace(support=largest.query.first(1))
    inner, support = problem.inner, largest.support
    large = is_large(problem, theta, largest) or (  # by its weights, or by the graphs of all inner steps of a task
        support.size * inner.steps * inner.samples * problem.network.numbers_behind(problem.trunk_stages, support.x)
        > meta_batch.STACKED_NUMBERS
    )
    if engine is None and large and not is_measured(theta.mu.device):
        return GradientChoice(twice_reverse, problem, stacked=False)
    if engine is None and large:
        planned = plan(problem, theta, largest, budget.memory, scratch=budget.scratch, training=True, before=before)
        return GradientChoice(planned.engine, planned.problem, stacked=False)
    engine = engine or keeping(EVERY_STEP)
    return GradientChoice(engine, problem, stacked=can_stack(problem, theta, tasks, engine))


def can_stack(problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], engine: Engine) -> bool:
    """Return whether these tasks fit in one vectorised program: by their size, and by trying a single step."""
    if not isinstance(engine, Sweep) or problem.micro_batch is not None or not fit_together(problem, tasks, engine):
        return False
    short = replace(problem, inner=replace(problem.inner, steps=min(1, problem.inner.steps)))
    try:
        all_at_once(short, theta, tasks[:2], [Noise(task=0), Noise(task=1)], engine)
    except ValueError:  # other shapes, or a network that cannot be vectorised
        return False
    return True
