"""Scores of adapted posteriors on the query sets of many tasks, by number of shots and of adaptation steps.

A **cell** is a number of shots and a number of adaptation steps. In every cell each task is adapted to its first
examples and scored on its query set; a row of the result is the mean over tasks, with its standard error. Observations
without any target are left out of both sets, and single missing targets are not scored.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from metaprior import scores
from metaprior.checks import (
    FILL_TARGETS,
    as_plain_tensor,
    check_integer,
    drop_rows_without_targets,
    plain_inputs,
    refuse_infinite,
    refuse_non_finite,
)
from metaprior.errors import NotFinite
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast, MixtureForecast
from metaprior.inputs import Inputs, named_parts
from metaprior.missing import TargetCount, any_of_row, present_numbers
from metaprior.posterior import DEFAULT_SAMPLES, Predictive
from metaprior.progress import progress_bar, track
from metaprior.scores import IntervalReliability, Reliability
from metaprior.tasks.task import Examples, Task, Tasks, as_task, as_tasks, length_of
from metaprior.team import current_team
from metaprior.text_table import Row, finite_or_none, text_table

Adapt = Callable[[Examples | None, int], Predictive]
"""(support, or None for zero shots; adaptation steps) -> posterior. Raises FloatingPointError (``TrainingDiverged`` is
one) when it leaves the finite numbers."""
T = TypeVar("T")

NLL_PER_VALUE = "nll_per_value"
FAILURES_SHOWN = 5
"""Failures that a table lists; all are in ``Evaluation.failures``."""


class Cell(NamedTuple):
    """A number of shots (None: all) and of adaptation steps."""

    shots: int | None
    steps: int

    def __str__(self) -> str:
        return f"{'all' if self.shots is None else self.shots} shots, {self.steps} steps"


@dataclass(frozen=True)
class Failure:
    """A task that could not be scored in a cell because a number was not finite."""

    task: str
    index: int
    cell: Cell
    message: str


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores of forecasts, as ``evaluate`` returns them.

    Args:
        rows: one for each cell, with ``shots`` (None: all), ``steps``, ``support`` (mean number of examples adapted
            to), ``tasks`` (number scored), ``failed``, ``missing`` (number of missing query targets, if there are any),
            and for every measure its mean over tasks and its standard error (``nll``, ``nll_se``). Real-valued targets
            have ``mse``, ``rmse``, ``nll`` (of an observation: summed over its outputs), ``nll_per_value`` (where an
            observation has several), ``crps``, ``coverage_50``, ``coverage_90`` and ``std`` (total, of the prediction);
            labels have ``error``, ``nll``, ``confidence`` and ``ece``. The last one is over all tasks' labels together
            and has no standard error: a single task's few labels would make every forecast look uncalibrated.
        per_task: one row for each task and cell.
        reliability: the counts behind a reliability diagram, by cell.
        failures: the tasks that are in no mean.
        examples_per_shot: support examples that make one shot.
    """

    rows: Sequence[Row]
    per_task: Sequence[Row]
    reliability: Mapping[Cell, Reliability | IntervalReliability]
    failures: Sequence[Failure] = ()
    examples_per_shot: int = 1

    def __repr__(self) -> str:
        return self.table()

    def row(self, *, shots: int | None = None, steps: int | None = None) -> Row:
        """Return the row of a cell; ``shots=None`` means all shots, ``steps=None`` the only number of steps."""
        found = [row for row in self.rows if row["shots"] == shots and steps in (None, row["steps"])]
        if len(found) != 1:
            wanted = f"{'all' if shots is None else shots} shots{'' if steps is None else f', {steps} steps'}"
            cells = "; ".join(str(Cell(row["shots"], row["steps"])) for row in self.rows)
            raise ValueError(f"{'no row' if not found else 'more than one row'} for {wanted}; there are: {cells}")
        return found[0]

    def table(self) -> str:
        """Return the rows as text, ``mean ± standard error``, followed by the first failures.

        Columns that say nothing here are left out: those of tasks and shots for a single data set, steps where none
        are taken, the number of support examples where it is that of the shots, failures where there are none, and
        the NLL of an observation where there is that of a value, which does not grow with the size of an image.
        """
        shown = self.failures[:FAILURES_SHOWN]
        notes = [f"- failed: {failure.task} ({failure.cell}): {failure.message}" for failure in shown]
        if more := len(self.failures) - len(shown):
            notes.append(f"- and {more} more (all are in .failures)")
        silent = self._silent_columns()
        rows = [{name: value for name, value in _shown(row).items() if name not in silent} for row in self.rows]
        return "\n".join([text_table(rows), *notes])

    def _silent_columns(self) -> set[str]:
        """Return the columns that tell a reader of the table nothing."""
        said_by_shots = [row["support"] == (row["shots"] or 0) * self.examples_per_shot for row in self.rows]
        silent = {
            "failed": not any(row["failed"] for row in self.rows),
            "steps": not any(row["steps"] for row in self.rows),
            "support": all(said_by_shots),
        }
        if all(silent.values()) and [(row["tasks"], row["support"]) for row in self.rows] == [(1, 0)]:
            silent |= {"shots": True, "tasks": True}
        silent["nll"] = any(NLL_PER_VALUE in row for row in self.rows)
        return {name for name, told in silent.items() if told}

    def as_json(self) -> dict[str, Any]:
        """Return plain dictionaries, lists and numbers; NaN becomes None, and so do all shots."""
        content = {
            "examples_per_shot": self.examples_per_shot,
            "rows": list(self.rows),
            "per_task": list(self.per_task),
            "reliability": [{**cell._asdict(), "rows": counts.rows} for cell, counts in self.reliability.items()],
            "failures": [
                {"task": failure.task, "index": failure.index, **failure.cell._asdict(), "message": failure.message}
                for failure in self.failures
            ],
        }
        return finite_or_none(content)  # type: ignore[no-any-return]


def _shown(row: Row) -> Row:
    """Return a row for reading, every mean followed by its standard error."""
    row = {**row, "shots": "all" if row["shots"] is None else str(row["shots"])}
    for name in [name for name in row if f"{name}_se" in row]:
        error = row.pop(f"{name}_se")
        row[name] = f"{row[name]:.4g}" + (f" ± {error:.2g}" if math.isfinite(error) else "")
    return row


def evaluate(
    adapt: Adapt,
    tasks: Iterable[Task] | Tasks | Mapping[str, Task],
    *,
    shots: Sequence[int | None] | None = (None,),
    steps: Sequence[int] = (10,),
    samples: int = DEFAULT_SAMPLES,
    examples_per_shot: int = 1,
    present: Callable[[Tensor], Tensor] = present_numbers,
    progress: bool = False,
) -> Evaluation:
    """Score adapted posteriors on the query sets of tasks, for every number of shots and of steps.

    The ranks of the current team share the tasks, and all get the result, bitwise identical to that of one process. A
    task by index is fetched only by the rank that scores it; an iterator must give all tasks to every rank.

    Args:
        adapt: returns a task's posterior from its support examples (None for zero shots) and a number of steps.
        tasks: the tasks, with an end, or tasks by name.
        shots: n takes the first ``n * examples_per_shot`` support examples, None takes all; 0 is the prior, scored with
            0 steps. ``shots=None`` takes 0, 1, 2, 5, 10, ... as far as each task's support examples go, and all.
        steps: numbers of adaptation steps.
        samples: weight samples of a forecast, drawn with the task's position as seed: the same in all cells, so that
            cells differ only by their adaptation.
        examples_per_shot: support examples that make one shot; for C classes that take turns: C.
        present: where targets are not missing; a likelihood's own ``present``.
        progress: show a progress bar.

    Raises:
        FloatingPointError: if no task could be scored. A single task whose adaptation or forecast leaves the finite
            numbers, or that has no target to be scored on, is left out of that cell and listed in ``failures``.
    """
    check_integer("samples", samples, 2)
    check_integer("examples_per_shot", examples_per_shot, 1)
    asked = [] if shots is None else _cells(shots, steps)

    def scored(index: int, given: Task) -> list[_Scored | Failure]:
        task, count = with_targets(check_task(given), present)
        cells = asked or _cells([*usual_shots((task.support.size - 1) // examples_per_shot), None], steps)
        if not task.query.size:
            message = f"its query set has no target to be scored on: all {count.targets} are missing"
            return [Failure(task.name, index, cell, message) for cell in cells]
        supports = {cell: _support(task, cell, examples_per_shot) for cell in cells}
        return [_scored(adapt, task, index, cell, own, samples, count.missing) for cell, own in supports.items()]

    results = list(chain(*for_each_task(scored, as_tasks(tasks), progress)))
    failures = [one for one in results if isinstance(one, Failure)]
    found = [one for one in results if isinstance(one, _Scored)]
    if not found and not failures:
        raise ValueError("there are no tasks to evaluate on: the collection is empty")
    if not found:
        raise FloatingPointError(
            f"no task could be scored in any cell; the first of {len(failures)} failures was {failures[0].task!r} "
            f"({failures[0].cell}): {failures[0].message}"
        )
    if not any(one.row["missing"] for one in found):
        for one in found:
            del one.row["missing"]
    cells = asked or sorted({one.cell for one in results}, key=lambda c: (c.shots is None, c.shots or 0, c.steps))
    by_cell = {cell: [one for one in found if one.cell == cell] for cell in cells}
    reliability = {cell: _merged(own) for cell, own in by_cell.items() if own}
    return Evaluation(
        rows=[_mean_row(cell, by_cell[cell], failures, reliability.get(cell)) for cell in cells],
        per_task=[one.row for own in by_cell.values() for one in own],
        reliability=reliability,
        failures=failures,
        examples_per_shot=examples_per_shot,
    )


def for_each_task(function: Callable[[int, Task], T], tasks: Iterable[Task] | Tasks, progress: bool) -> list[T]:
    """Return ``[function(i, task) for i, task in enumerate(tasks)]``, computed by all ranks together."""
    if isinstance(tasks, Sequence) or not isinstance(tasks, Iterable):
        count = len(tasks) if isinstance(tasks, Sequence) else length_of(tasks)  # an empty one raises later
        if count is None:
            raise ValueError(
                f"tasks must have an end, but {type(tasks).__name__} has no length; evaluate on some of its tasks, as "
                "in [tasks[i] for i in range(100)]"
            )
        return map_tasks(lambda index: function(index, tasks[index]), count, progress=progress)
    team = current_team()
    passing = track(tasks, "evaluation", unit="tasks", show=progress and team.first)
    # The number of tasks is unknown, so ranks take turns.
    _, parts = team.attempt(
        lambda: [(i, function(i, task)) for i, task in enumerate(passing) if i % team.size == team.rank],
        lambda part: part,
    )
    return [result for _, result in sorted(chain(*parts), key=lambda numbered: numbered[0])]


def map_tasks(function: Callable[[int], T], count: int, *, label: str = "evaluation", progress: bool) -> list[T]:
    """Return ``team.map`` with a progress bar on rank 0, which assumes that the other ranks are as far."""
    team = current_team()
    own = len(team.share(count))
    with progress_bar(label, count, unit="tasks", show=progress and team.first) as bar:

        def counted(index: int) -> T:
            result = function(index)
            if team.first:
                bar.update((index + 1) * count // own - bar.done)  # rank 0 has the first ones
            return result

        return team.map(counted, count)


class _Scored(NamedTuple):
    """One task in one cell; ``row`` goes to ``Evaluation.per_task``."""

    cell: Cell
    row: Row
    measures: tuple[str, ...]
    reliability: Reliability | IntervalReliability


def _scored(
    adapt: Adapt, task: Task, index: int, cell: Cell, support: Examples | None, samples: int, missing: int
) -> _Scored | Failure:
    try:
        forecast = finite_forecast(adapt(support, cell.steps), task.query.x, samples, index)
        measures, reliability = _score(forecast, task.query.y)
        for name, value in measures.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value}")
    except FloatingPointError as error:
        return Failure(task.name, index, cell, str(error))
    size = support.size if support else 0
    row = {"task": task.name, "index": index, **cell._asdict(), "support": size, "missing": missing, **measures}
    return _Scored(cell, row, tuple(measures), reliability)


def _merged(found: Sequence[_Scored]) -> Reliability | IntervalReliability:
    """Return the counts of all tasks of a cell together; raise where they are of different kinds."""
    merged = found[0].reliability
    for one in found[1:]:
        if one.measures != found[0].measures:
            raise ValueError(
                f"task {one.row['task']!r} has other measures ({', '.join(one.measures)}) than the tasks before it "
                f"({', '.join(found[0].measures)}); evaluate real-valued targets and labels separately"
            )
        merged.merge(one.reliability)  # type: ignore[arg-type]  # the same measures, so the same kind
    return merged


def _mean_row(
    cell: Cell,
    found: Sequence[_Scored],
    failures: Sequence[Failure],
    reliability: Reliability | IntervalReliability | None,
) -> Row:
    """Return the means over the tasks of a cell; NaN in a cell in which every task failed."""

    def values(name: str) -> Tensor:
        return torch.tensor([one.row[name] for one in found], dtype=torch.float64)

    failed = sum(failure.cell == cell for failure in failures)
    row: Row = {**cell._asdict(), "support": values("support").mean().item(), "tasks": len(found), "failed": failed}
    if found and "missing" in found[0].row:
        row["missing"] = sum(one.row["missing"] for one in found)
    for measure in found[0].measures if found else ():
        row |= {measure: values(measure).mean().item(), f"{measure}_se": scores.standard_error(values(measure))}
    if isinstance(reliability, Reliability):
        row["ece"] = reliability.ece
    return row


def finite_forecast(posterior: Predictive, x: Inputs, samples: int, seed: int) -> Forecast:
    """Return the forecast for finite inputs; raise FloatingPointError where the network's output is not finite."""
    try:
        return posterior.predict(x, samples=samples, seed=seed)
    except NotFinite as error:  # the inputs were checked before, so it is the network's output
        raise FloatingPointError(str(error)) from error


def shaped_targets(forecast: Forecast, targets: Tensor) -> Tensor:
    """Return targets on the forecast's device, (N,) as (N, 1) and vice versa; other differences raise later."""
    targets, shape = targets.to(forecast.mean.device), forecast.mean.shape
    if not isinstance(forecast, CategoricalForecast) and {targets.shape, shape} == {shape[:1], (*shape[:1], 1)}:
        return targets.reshape(shape)
    return targets


def _score(forecast: Forecast, targets: Tensor) -> tuple[dict[str, float], Reliability | IntervalReliability]:
    """Return a forecast's measures by name, and the counts of its reliability diagram."""
    targets = shaped_targets(forecast, targets)
    present = forecast.present(targets)
    observed = any_of_row(present)
    if isinstance(forecast, GaussianForecast | MixtureForecast):
        inside = IntervalReliability()
        inside.add(forecast, targets)
        mse = scores.mean_squared_error(forecast.mean, targets)
        measures = {
            "mse": mse,
            "rmse": math.sqrt(mse),
            **_nll(forecast, targets, observed, present),
            "crps": scores.mean_score(scores.crps(forecast, targets), present),
            "coverage_50": inside.coverage(0.5),
            "coverage_90": inside.coverage(0.9),
            "std": scores.mean_score(forecast.std, present),
        }
        return measures, inside
    if not isinstance(forecast, CategoricalForecast | BernoulliForecast):
        raise TypeError(
            f"a {type(forecast).__name__} cannot be scored, only forecasts of this package's likelihoods. "
            "Try a subclass of metaprior.forecasts.MixtureForecast."
        )
    counts = Reliability()
    counts.add(forecast, targets)
    measures = {
        "error": scores.error_rate(forecast, targets),
        "nll": -scores.mean_score(forecast.log_prob(targets), observed),
        "confidence": scores.mean_score(scores.confidence(forecast), present),
    }
    return measures, counts


def _nll(forecast: Forecast, targets: Tensor, observed: Tensor, present: Tensor) -> dict[str, float]:
    """Return the NLL of an observation and, where an observation has several values, that of a value."""
    nll = -scores.mean_score(forecast.log_prob(targets), observed)
    if targets[0].numel() == 1:
        return {"nll": nll}
    return {"nll": nll, NLL_PER_VALUE: nll * int(observed.sum()) / int(present.sum())}


def _support(task: Task, cell: Cell, examples_per_shot: int) -> Examples | None:
    """Return the examples to adapt to, or None for zero shots."""
    if cell.shots is None:
        return task.support
    count = cell.shots * examples_per_shot
    if count > task.support.size:
        each = f" of {examples_per_shot} examples each" if examples_per_shot > 1 else ""
        raise ValueError(
            f"task {task.name!r} has {task.support.size} support examples, too few for {cell.shots} shots{each}. "
            "Try shots=(0, None), where None is all there are, or tasks with larger support sets."
        )
    return task.support.first(count) if count else None


def usual_shots(largest: int) -> list[int]:
    """Return 0, 1, 2, 5, 10, 20, 50, ... up to the ``largest``."""
    return [0, *(n * 10**k for k in range(len(str(largest))) for n in (1, 2, 5) if n * 10**k <= largest)]


def _cells(shots: Sequence[int | None], steps: Sequence[int]) -> list[Cell]:
    """Return every number of shots with every number of steps, each once."""
    for name, values in (("shots", shots), ("steps", steps)):
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise TypeError(f"{name} must be a sequence of integers such as (0, 5), got {values!r}")
    if not shots or not steps:
        raise ValueError(f"shots and steps must not be empty, got shots={shots!r} and steps={steps!r}")
    for name, values in (("shots", [n for n in shots if n is not None]), ("steps", steps)):
        for value in values:
            check_integer(name, value, 0)
    cells = (Cell(n, k) for n in shots for k in ([0] if n == 0 else steps))
    return list(dict.fromkeys(cells))


def check_task(task: Task) -> Task:
    """Return the task in finite tensors: only numbers that leave the finite range later count as a failure.

    Targets may be NaN, which is a missing target.
    """
    support, query, name = as_task(task)
    if not query.size:
        raise ValueError(f"task {name!r} has no query examples to be scored on")

    def checked(own: Examples, part: str) -> Examples:
        where = f" of task {name!r}"
        x, y = plain_inputs(own.x, f"{part} x", where), as_plain_tensor(own.y, f"{part} y{where}")
        for what, values in named_parts(x, f"{part} x").items():
            refuse_non_finite(values, what + where)
        refuse_infinite(y, f"{part} y of task {name!r}", FILL_TARGETS)
        return Examples(x, y)

    return Task(checked(support, "support"), checked(query, "query"), name)


def with_targets(task: Task, present: Callable[[Tensor], Tensor]) -> tuple[Task, TargetCount]:
    """Return the task without observations that have no target, and the count of its query targets."""
    *support, _ = drop_rows_without_targets(*task.support, present(task.support.y))
    *query, count = drop_rows_without_targets(*task.query, present(task.query.y))
    return Task(Examples(*support), Examples(*query), task.name), count
