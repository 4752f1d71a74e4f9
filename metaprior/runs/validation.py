"""How good theta is on unseen tasks, while it is learned: before and after adaptation, and as one score."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from torch import Tensor

from metaprior.evaluation import check_task
from metaprior.likelihoods import Likelihood
from metaprior.methods.meta_learner import MetaLearner
from metaprior.methods.validation import validation_scores
from metaprior.runs.config import Evaluate
from metaprior.tasks.task import FirstTasks
from metaprior.team import current_team
from metaprior.text_table import finite_or_none
from metaprior.weights import WeightDistribution


@dataclass(frozen=True)
class Validation:
    """The result of a validation."""

    score: float
    """Mean nll after adaptation of the tasks that did not fail; lower is better."""
    skill: float
    """1 - error / error of the best constant, for the user; NaN where a constant is perfect."""
    failed: int
    """Number of tasks without a score, because a number was not finite."""
    measures: dict[str, Any]
    """JSON: "before" and "after" adaptation, each with all measures of ``Evaluation.rows``."""
    idle: str | None = None
    """That adaptation gains nothing, if so."""


class Validator:
    """Judges every theta by the same tasks, which the ranks of the current team share.

    Args:
        learner: what adapts theta.
        tasks: unseen tasks.
        settings: ``[evaluate]`` of the configuration.
        poll: called before every task; may raise KeyboardInterrupt.
    """

    def __init__(self, learner: MetaLearner, tasks: FirstTasks, settings: Evaluate, poll: Callable[[], None]) -> None:
        self.learner, self.settings, self.tasks = learner, settings, replace(tasks, poll=poll)
        self.constant = error_of_a_constant(tasks, learner.likelihood)

    def __call__(self, theta: WeightDistribution) -> Validation:
        """Adapt theta to every task as the run does, and score the forecasts of its query set."""
        try:
            found = validation_scores(self.learner.with_theta(theta), self.tasks, samples=self.settings.samples)
        except FloatingPointError as error:  # nothing could be scored at all
            unknown = {"before": None, "after": None, "failed": str(error)}
            return Validation(math.inf, -math.inf, len(self.tasks), unknown)
        before, after = found.evaluation.row(shots=0), found.evaluation.row()
        own = after["error"] if "error" in after else math.sqrt(after.get("mse", math.nan))  # NaN: every task failed
        skill = 1 - own / self.constant if self.constant else math.nan
        measures = finite_or_none({"before": before, "after": after})
        return Validation(found.after, skill, found.failed, measures, found.idle())


def error_of_a_constant(tasks: FirstTasks, likelihood: Likelihood) -> float:
    """Return the error of the best constant: the standard deviation of all targets, or the rate of the rarer labels."""

    def targets(index: int) -> Tensor:
        # Damaged tasks are refused here, before training, and not after an epoch of it.
        values = check_task(tasks[index]).query.y.flatten()
        return values[likelihood.present(values)]

    def moments(index: int) -> tuple[int, float, float]:
        values = targets(index).double()
        if not len(values):
            return 0, 0.0, 0.0
        return values.numel(), float(values.mean()), float((values - values.mean()).square().sum())

    if not likelihood.labels:
        # Per task first, then over tasks with exact sums: bitwise identical for any number of ranks.
        found = current_team().map(moments, len(tasks))
        number = sum(count for count, _, _ in found)
        if not number:
            raise ValueError("the validation tasks must have targets in their query sets, but all of them are missing")
        mean = math.fsum(count * own for count, own, _ in found) / number
        return math.sqrt(math.fsum(squares + count * (own - mean) ** 2 for count, own, squares in found) / number)
    counts = current_team().map(lambda index: targets(index).long().bincount().tolist(), len(tasks))
    by_label: list[int] = [sum(of_tasks) for of_tasks in zip_longest(*counts, fillvalue=0)]
    return 1 - max(by_label) / sum(by_label)
