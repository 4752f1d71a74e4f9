"""How good a prior is on tasks that it was not learned from, and what its adaptation is worth there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import torch

from metaprior import scores
from metaprior.evaluation import Evaluation
from metaprior.methods.method import TaskMethod
from metaprior.tasks.task import FirstTasks, Task, Tasks, as_tasks, length_of

SAMPLES = 20
"""Weight samples of a validation's forecasts: scores are compared with each other, and samples cost time."""
MOST_TASKS = 100
"""Tasks of a source without an end that are validated on."""
FEWEST_TASKS, ERRORS = 10, 2.0
"""Tasks from which a gain can be judged, and the standard errors that it must be above zero."""


@dataclass(frozen=True)
class ValidationScores:
    """Scores of forecasts, with 0 shots and with others; lower is better."""

    evaluation: Evaluation

    @property
    def after(self) -> float:
        """Mean NLL with the most shots, over the tasks that did not fail; infinite if all did."""
        nll = list(self._by_task(self.evaluation.rows[-1]["shots"]).values())
        return math.fsum(nll) / len(nll) if nll else math.inf

    @property
    def before(self) -> float:
        """Mean NLL without any adaptation."""
        nll = list(self._by_task(0).values())
        return math.fsum(nll) / len(nll) if nll else math.inf

    @property
    def score(self) -> float:
        """Mean NLL over all numbers of shots, which adaptations can be compared by; infinite where a task failed."""
        rows = self.evaluation.rows
        return math.inf if any(row["failed"] for row in rows) else math.fsum(row["nll"] for row in rows) / len(rows)

    @property
    def failed(self) -> int:
        """Number of tasks without a score after adaptation, because a number was not finite."""
        return int(self.evaluation.rows[-1]["failed"])

    @property
    def gain(self) -> tuple[float, float]:
        """Mean over tasks of the NLL before minus that after adaptation, and its standard error (NaN for one task)."""
        before, after = self._by_task(0), self._by_task(self.evaluation.rows[-1]["shots"])
        gains = [before[index] - after[index] for index in before.keys() & after.keys()]
        values = torch.tensor(sorted(gains), dtype=torch.float64)
        return float(values.mean()), scores.standard_error(values)

    def idle(self) -> str | None:
        """Return a sentence about an adaptation that gains nothing, within noise; None if it gains something."""
        (gain, error), tasks = self.gain, int(self.evaluation.rows[-1]["tasks"])
        if tasks < FEWEST_TASKS or not gain <= ERRORS * error:
            return None
        return (
            f"adaptation gains nothing: over {tasks} tasks the mean NLL is {self.before:.4g} before and "
            f"{self.after:.4g} after it (a gain of {gain:.2g} with a standard error of {error:.2g})"
        )

    @property
    def by_task(self) -> dict[int, float]:
        """Mean NLL of each task over all numbers of shots, by the task's index."""
        found = dict[int, list[float]]()
        for row in self.evaluation.per_task:
            found.setdefault(row["index"], []).append(row["nll"])
        return {index: math.fsum(nll) / len(nll) for index, nll in found.items()}

    def _by_task(self, shots: int | None) -> dict[int, float]:
        return {row["index"]: row["nll"] for row in self.evaluation.per_task if row["shots"] == shots}


def validation_scores(
    learner: TaskMethod,
    tasks: Tasks | Mapping[str, Task],
    shots: Sequence[int | None] = (0, None),
    *,
    samples: int = SAMPLES,
) -> ValidationScores:
    """Score forecasts of validation tasks before and after adaptation, as the learner makes them now.

    The ranks of the current team share the tasks. Of a source without an end the first ``MOST_TASKS`` are taken.

    Args:
        learner: a fitted method.
        tasks: tasks that it was not learned from.
        shots: numbers of shots, ascending, None (all) last; 0 is among them.
        samples: weight samples of a forecast.

    Raises:
        FloatingPointError: if no task could be scored at all.
    """
    return ValidationScores(learner.evaluate(validation_tasks(tasks), shots=shots, samples=samples, progress=False))


def validation_tasks(tasks: Tasks | Mapping[str, Task]) -> Tasks:
    """Return tasks with an end: of a source without one, the first ``MOST_TASKS``."""
    if isinstance(tasks, Real):
        raise TypeError(
            f"validation must be tasks, got the number {tasks}. Try training, validation = tasks.split({tasks}) of "
            "GroupedTasks, or a part of the list of tasks."
        )
    tasks = as_tasks(tasks)
    return tasks if length_of(tasks) else FirstTasks(tasks, MOST_TASKS)
