"""What is learned when, and how large the steps are: a function of the number of steps done, and so nothing to store.

A warm start on pooled tasks, then the scales alone (step sizes, sigma, noise), then everything.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from metaprior.metagrad.problem import AmortizedELBO, Problem
from metaprior.training.settings import MetaTraining

FIRST_STEPS = 10
"""Steps over which the learning rates rise: Adam's first ones are of full size, whatever the gradient."""


@dataclass(frozen=True)
class Phase:
    """A stretch of the training, from step ``start`` up to ``stop``."""

    name: Literal["warm start", "scales", "everything"]
    start: int
    stop: int

    @property
    def pooled(self) -> bool:
        """Plain gradients on pooled tasks, and no inner loop."""
        return self.name == "warm start"

    @property
    def moves_means(self) -> bool:
        """Whether the means move, or only scales."""
        return self.name != "scales"


def phase_at(settings: MetaTraining, step: int) -> Phase:
    """The phase that a step belongs to."""
    first = settings.warm_start
    then = first + round(settings.scales_first * settings.meta_steps)
    if step < first:
        return Phase("warm start", 0, first)
    if step < then:
        return Phase("scales", first, then)
    return Phase("everything", then, settings.steps)


def learning_rate_factor(settings: MetaTraining, step: int, since: int) -> float:
    """What the learning rate of something that is moved ``since`` a step is multiplied with; the plateau schedule has a
    factor of its own beside it."""
    pooled = step < settings.warm_start
    start, count = (0, settings.warm_start) if pooled else (settings.warm_start, settings.meta_steps)
    rise = min(1.0, (step - since + 1) / FIRST_STEPS)
    if settings.warm_start_average > 0 if pooled else settings.schedule != "cosine":
        return rise
    return rise * 0.5 * (1 + math.cos(math.pi * (step - start) / count))


def annealed(problem: Problem, settings: MetaTraining, step: int) -> Problem:
    """The problem with the KL's weight, inside and outside, as it is at a step."""
    warmup = settings.kl_warmup * settings.meta_steps
    done = step - settings.warm_start
    if done >= warmup:
        return problem
    share = max(0.0, (done + 1) / (warmup + 1))
    inner = replace(problem.inner, kl_weight=share * problem.inner.kl_weight)
    objective = problem.objective
    if isinstance(objective, AmortizedELBO):
        objective = replace(objective, kl_weight=share * objective.kl_weight)
    return replace(problem, inner=inner, objective=objective)
