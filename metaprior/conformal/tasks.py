r"""Calibration over tasks: what a new task may expect, after as many examples as the validation tasks were adapted to.

Observations of one task have much in common, so 100 tasks of 30 observations say less than 3000 independent ones, and
pooling them covers new tasks too rarely. Here **tasks** are exchangeable, and observations within each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

import torch
from torch import Tensor

from metaprior.checks import check_integer, warn_caller
from metaprior.conformal.scores import INTERVAL_SCORES, SET_SCORES, check_score
from metaprior.conformal.split import CALIBRATION, Conformal, ConformalIntervals, ConformalSets
from metaprior.conformal.threshold import check_level
from metaprior.errors import NotFinite
from metaprior.evaluation import check_task, finite_forecast, for_each_task, with_targets
from metaprior.likelihoods import Likelihood
from metaprior.noise import Noise
from metaprior.posterior import DEFAULT_SAMPLES, Predictive
from metaprior.tasks.task import Examples, Task, Tasks, as_tasks

C = TypeVar("C", bound=Conformal)


class _Learner(Protocol):
    """What is asked of a method that learns from tasks."""

    @property
    def likelihood(self) -> Likelihood:
        """What says where targets are missing."""

    @property
    def examples_per_shot(self) -> int:
        """Support examples that make one shot."""

    def adapt(self, support: Examples, /) -> Predictive:
        """Return the posterior of a task given its support set."""

    def prior_predictive(self) -> Predictive:
        """Return the forecast for a new task before its first observation."""


@dataclass(frozen=True, repr=False)
class ConformalByShots(Generic[C]):
    """Intervals or sets for new tasks, by the number of shots that a task is adapted to.

    Args:
        by_shots: the calibration after each number of shots (None: all support examples).
        failed: number of tasks without a finite forecast, by number of shots. They are not calibrated on.
        examples_per_shot: support examples that make one shot.
    """

    by_shots: Mapping[int | None, C]
    failed: Mapping[int | None, int]
    examples_per_shot: int = 1

    def after(self, shots: int | None) -> C:
        """Return the calibration after so many shots (None: all examples), for ``interval`` or ``sets``.

        There is no guarantee for numbers between the calibrated ones: those raise ValueError.
        """
        if shots not in self.by_shots:
            known = ", ".join(map(str, self.by_shots))
            raise ValueError(
                f"shots must be among the calibrated numbers ({known}), got {shots}. Try over_tasks with it."
            )
        return self.by_shots[shots]

    def __repr__(self) -> str:
        """Return a line for each number of shots."""
        names = {n: "all" if n is None else str(n) for n in self.by_shots}
        failed = {n: f" ({k} more tasks failed)" if (k := self.failed.get(n, 0)) else "" for n in self.by_shots}
        lines = [f"    {names[n]} shots: {one!r}{failed[n]}" for n, one in self.by_shots.items()]
        each = f"shots of {self.examples_per_shot} examples:" if self.examples_per_shot > 1 else ""
        return "\n".join([f"{type(self).__name__}({each}", *lines, ")"])

    def as_json(self) -> dict[str, Any]:
        """Return numbers, texts and lists for a file."""
        by_shots = [[shots, self.failed.get(shots, 0), one.as_json()] for shots, one in self.by_shots.items()]
        return {"examples_per_shot": self.examples_per_shot, "by_shots": by_shots}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ConformalByShots[Any]":
        """Return what ``as_json`` described."""
        found = {shots: _kind_of(one["score"]).from_json(one) for shots, _, one in content["by_shots"]}
        failed = {shots: int(number) for shots, number, _ in content["by_shots"]}
        return cls(found, failed, int(content["examples_per_shot"]))  # type: ignore[arg-type]


class _Failed(NamedTuple):
    """Why a task has no finite forecast."""

    message: str


@overload
def over_tasks(
    learner: _Learner,
    tasks: Iterable[Task] | Tasks | Mapping[str, Task],
    shots: Sequence[int | None] = ...,
    level: float = ...,
    *,
    score: Literal["quantile", "std"] = ...,
    share: float | None = ...,
    samples: int = ...,
    seed: int = ...,
    progress: bool = ...,
) -> ConformalByShots[ConformalIntervals]: ...


@overload
def over_tasks(
    learner: _Learner,
    tasks: Iterable[Task] | Tasks | Mapping[str, Task],
    shots: Sequence[int | None] = ...,
    level: float = ...,
    *,
    score: Literal["aps", "aps_deterministic", "lac"],
    share: float | None = ...,
    samples: int = ...,
    seed: int = ...,
    progress: bool = ...,
) -> ConformalByShots[ConformalSets]: ...


def over_tasks(
    learner: _Learner,
    tasks: Iterable[Task] | Tasks | Mapping[str, Task],
    shots: Sequence[int | None] = (0, 1, 5),
    level: float = 0.9,
    *,
    score: str = "quantile",
    share: float | None = None,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    progress: bool = True,
) -> ConformalByShots[Any]:
    r"""Return intervals or sets for forecasts of *new tasks*, calibrated on tasks that the learner has not seen.

    Each of the K tasks is adapted to its first examples and scored on its query set. If the K tasks and a new one are
    exchangeable, and so are the query observations within a task, then

    $$P(\text{a new observation of the new task is covered}) \ge \ell$$

    and at most $\ell + 2/(K+1)$ where no two scores are equal (Lee, Barber & Willett 2023). The probability is over
    tasks and observations together: of single tasks some are covered more often and others less.

    The learner's ``calibrate``, its validation, and this need three different sets of tasks. The ranks of the current
    team share the tasks.

    Args:
        learner: a fitted ``MetaLearner`` or ``HierarchicalVI``.
        tasks: tasks that nothing was learned, chosen or calibrated from; at least ``level / (1 - level)`` of them.
        shots: numbers of shots, the first examples of each support set; 0 is the prior, None takes all. A task with
            fewer support examples is left out of the larger numbers.
        level: probability of the guarantee.
        score: "quantile" or "std" for real-valued targets, "aps", "aps_deterministic" or "lac" for labels; see
            ``intervals`` and ``sets``.
        share: None: a new observation of a new task is covered with probability ``level``. A number such as 0.8: with
            probability ``level`` over tasks, at least this share of all the observations of a new task is covered,
            if it has as many as the query sets have; 1.0 is all of them at once.
        samples: weight samples of a forecast. Give ``predict`` the same number: the guarantee is for such forecasts.
        seed: seed of the random numbers of "aps".
        progress: show a progress bar.

    Raises:
        FloatingPointError: if no task has a finite forecast after some number of shots.
    """
    check_level("level", level)
    check_score(score, INTERVAL_SCORES + SET_SCORES)
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, or None, got {share!r}")
    check_integer("samples", samples, 2)
    if not isinstance(shots, Sequence) or not shots:
        raise ValueError(f"shots must be a sequence of integers such as (0, 1, 5), got {shots!r}")
    for one in shots:
        if one is not None:
            check_integer("shots", one, 0)
    if not hasattr(learner, "adapt"):
        raise TypeError(
            f"learner must be a MetaLearner or a HierarchicalVI, got {type(learner).__name__}. Try "
            "conformal.intervals(forecast, y) for one data set."
        )
    kind, each, counts = _kind_of(score), learner.examples_per_shot, [*dict.fromkeys(shots)]

    def scored(index: int, given: Task) -> dict[int | None, Tensor | _Failed]:
        task = check_task(given)
        examples = with_targets(task, learner.likelihood.present)[0].support
        noise = Noise(seed).fork(CALIBRATION).at(task=index)
        found = dict[int | None, Tensor | _Failed]()
        for n in counts:
            support = examples if n is None else examples.first(n * each)
            if n is not None and support.size < n * each:
                continue
            try:  # the seed of ``predict``'s own default for all tasks, so that a forecast is a function of its task
                posterior = learner.adapt(support) if support.size else learner.prior_predictive()
                forecast = finite_forecast(posterior, task.query.x, samples, 0)
                found[n] = kind.scores(forecast, task.query.y, score, level, noise).cpu()
            except (FloatingPointError, NotFinite) as error:  # the task's own numbers were checked before
                found[n] = _Failed(f"{task.name}: {error}")
        return found

    results = for_each_task(scored, as_tasks(tasks), progress)
    by_shots = {n: _calibrated(kind, n, [own[n] for own in results if n in own], level, score, share) for n in counts}
    failed = {n: sum(isinstance(own.get(n), _Failed) for own in results) for n in counts}
    return ConformalByShots(by_shots, failed, each)


def _kind_of(score: str) -> type[Conformal]:
    return ConformalSets if score in SET_SCORES else ConformalIntervals


def _calibrated(
    kind: type[Conformal],
    shots: int | None,
    found: Sequence[Tensor | _Failed],
    level: float,
    score: str,
    share: float | None,
) -> Conformal:
    failures = [one for one in found if isinstance(one, _Failed)]
    scores = [one for one in found if isinstance(one, Tensor)]
    when = f"after {'all' if shots is None else shots} shots"
    if not found:
        raise ValueError(
            f"tasks must have enough support examples, got none {when}. Try smaller shots, or other tasks."
        )
    if not scores:
        raise FloatingPointError(
            f"none of {len(failures)} tasks has a finite forecast {when}; the first: {failures[0].message}"
        )
    if failures:
        warn_caller(
            f"{len(failures)} of {len(found)} tasks have no finite forecast {when} and were left out; the guarantee is "
            f"for tasks that have one. The first: {failures[0].message}"
        )
    members = torch.arange(len(scores)).repeat_interleave(torch.tensor([len(one) for one in scores]))
    return kind.calibrated(torch.cat(scores), level, score, tasks=members, share=share)
