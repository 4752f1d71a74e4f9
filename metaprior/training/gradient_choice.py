"""How gradients are computed, where the user leaves it open: all choices are exact."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from metaprior.metagrad.meta_batch import all_at_once
from metaprior.metagrad.planner import Memory, Way, is_large, plan
from metaprior.metagrad.problem import Engine, Problem
from metaprior.metagrad.sweep import Sweep
from metaprior.metagrad.twice_reverse import keeping, twice_reverse
from metaprior.noise import Noise
from metaprior.tasks.task import Task
from metaprior.weights import WeightDistribution

STACKED_NUMBERS = 2**25
"""Weights and activations of a stack of tasks, together (128 MiB in float32), up to which tasks are stacked."""
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
    memory: Memory,
    engine: Engine | None,
    *,
    before: Way | None = None,
) -> GradientChoice:
    """For tasks like these: small networks keep their graphs and are stacked, large ones are planned by memory.

    A plan depends on the memory that is free, so what was planned ``before`` is kept to, as long as it fits.
    On a GPU, whose memory nobody plans yet, large ones go back step by step, which needs least of it.
    """
    large = is_large(problem, theta, tasks[0]) or _graphs(problem, tasks[0]) > STACKED_NUMBERS
    if engine is None and large and theta.mu.device.type != "cpu":
        return GradientChoice(twice_reverse, problem, stacked=False)
    if engine is None and large:
        planned = plan(problem, theta, tasks[0], memory, before=before)
        return GradientChoice(planned.engine, planned.problem, stacked=False)
    engine = engine or keeping(EVERY_STEP)
    return GradientChoice(engine, problem, stacked=can_stack(problem, theta, tasks, engine))


def _graphs(problem: Problem, task: Task) -> int:
    """Numbers in the graphs of all inner steps of a task."""
    inner = problem.inner
    behind = problem.network.numbers_behind(problem.trunk_stages, task.support.x)
    return task.support.size * behind * inner.steps * inner.samples


def can_stack(problem: Problem, theta: WeightDistribution, tasks: Sequence[Task], engine: Engine) -> bool:
    """Whether these tasks fit in one vectorised program: by their size, and by trying a single step."""
    if not isinstance(engine, Sweep) or problem.micro_batch is not None or not fit_together(problem, tasks, engine):
        return False
    short = replace(problem, inner=replace(problem.inner, steps=min(1, problem.inner.steps)))
    try:
        all_at_once(short, theta, tasks[:2], [Noise(task=0), Noise(task=1)], engine)
    except ValueError:  # other shapes, or a network that cannot be vectorised
        return False
    return True


def fit_together(problem: Problem, tasks: Sequence[Task], engine: Engine) -> bool:
    """Whether there are several tasks, of equal shapes, small enough together."""
    shapes = {tuple(t.shape for part in (task.support, task.query) for t in part) for task in tasks}
    if len(tasks) < 2 or len(shapes) > 1:
        return False
    network, task, inner = problem.network, tasks[0], problem.inner
    kept = min(engine.keep, inner.steps) * inner.samples if isinstance(engine, Sweep) else 0
    head = 3 * kept * task.support.size * network.numbers_behind(problem.trunk_stages, task.support.x)  # both ways back
    whole = (task.support.size + task.query.size) * network.numbers_behind(0, task.support.x)
    return len(tasks) * (head + whole + 2 * network.layout.dimension) <= STACKED_NUMBERS


class Stacker:
    """Decides for each meta-batch whether its tasks are stacked; once for each shape of tasks."""

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self._problem, self._engine = problem, engine
        self._known: dict[tuple[object, ...], bool] = {}

    def __call__(self, tasks: Sequence[Task]) -> bool:
        """Whether these are."""
        key = tuple(tuple(t.shape) for task in tasks for part in (task.support, task.query) for t in part)
        if key not in self._known:
            self._known[key] = fit_together(self._problem, tasks, self._engine)
        return self._known[key]
