"""How good adapted posteriors are: many tasks, some shots, some steps, scored on what they have not seen.

    Adapt:  (support examples or None, steps) -> Posterior

A **cell** is a number of shots and a number of adaptation steps. In every cell each task is adapted to its first
examples and scored on its query set; a row of the result is the mean over tasks, with its standard error.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from metaprior import scores
from metaprior.checks import as_plain_tensor, refuse_non_finite
from metaprior.errors import NotFinite
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.posterior import Posterior
from metaprior.scores import IntervalReliability, Reliability
from metaprior.tasks.source import Tasks, length_of
from metaprior.tasks.task import Examples, Task, as_task
from metaprior.team import current_team
from metaprior.text_table import Row, finite_or_none, text_table

Adapt = Callable[[Examples | None, int], Posterior]
"""(support, or None for zero shots; adaptation steps) -> posterior. Raises FloatingPointError when it leaves the finite
numbers."""
T = TypeVar("T")

FAILURES_SHOWN = 5
"""Failures that a table spells out; all are in ``Evaluation.failures``."""


class Cell(NamedTuple):
    """A number of shots (None: all there are) and of adaptation steps."""

    shots: int | None
    steps: int

    def __str__(self) -> str:
        return f"{'all' if self.shots is None else self.shots} shots, {self.steps} steps"


@dataclass(frozen=True)
class Failure:
    """A task that could not be scored in a cell, because numbers were not finite."""

    task: str
    index: int
    cell: Cell
    message: str


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` returns.

    ``rows``: one for each cell, with ``shots`` (None: all), ``steps``, ``support`` (mean number of examples adapted
    to), ``tasks`` (how many were scored), ``failed``, and for every measure its mean over tasks and its standard error
    (``nll``, ``nll_se``). Real-valued targets have ``mse``, ``rmse``, ``nll`` (of an observation: summed over its
    outputs), ``crps``, ``coverage_50``, ``coverage_90`` and ``std`` (of the prediction); labels have ``error``,
    ``nll``, ``confidence`` and ``ece``. That last one is of all tasks' labels together and has no standard error: a
    single task's few labels would make every forecast look uncalibrated.

    ``per_task``: one for each task and cell. ``reliability``: the counts behind a reliability diagram, by cell.
    ``failures``: what is in no mean.
    """

    rows: Sequence[Row]
    per_task: Sequence[Row]
    reliability: Mapping[Cell, Reliability | IntervalReliability]
    failures: Sequence[Failure] = ()
    examples_per_shot: int = 1

    def row(self, *, shots: int | None = None, steps: int | None = None) -> Row:
        """The row of a cell; ``shots=None`` are all shots, and ``steps`` may be left out where only one fits."""
        found = [row for row in self.rows if row["shots"] == shots and steps in (None, row["steps"])]
        if len(found) != 1:
            wanted = f"{'all' if shots is None else shots} shots{'' if steps is None else f', {steps} steps'}"
            cells = "; ".join(str(Cell(row["shots"], row["steps"])) for row in self.rows)
            raise ValueError(f"{'no row' if not found else 'more than one row'} for {wanted}; there are: {cells}")
        return found[0]

    def table(self) -> str:
        """The rows as text, ``mean ± standard error``, and under them the first of the tasks that failed."""
        shown = self.failures[:FAILURES_SHOWN]
        notes = [f"- failed: {failure.task} ({failure.cell}): {failure.message}" for failure in shown]
        if more := len(self.failures) - len(shown):
            notes.append(f"- and {more} more (all are in .failures)")
        return "\n".join([text_table([_shown(row) for row in self.rows]), *notes])

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers; what is not known (NaN) is None, and so are all shots."""
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
        plain: dict[str, Any] = finite_or_none(content)
        return plain


def _shown(row: Row) -> Row:
    """A row for reading: every mean with its standard error behind it."""
    row = {**row, "shots": "all" if row["shots"] is None else str(row["shots"])}
    for name in [name for name in row if f"{name}_se" in row]:
        error = row.pop(f"{name}_se")
        row[name] = f"{row[name]:.4g}" + (f" ± {error:.2g}" if math.isfinite(error) else "")
    return row


def evaluate(
    adapt: Adapt,
    tasks: Iterable[Task] | Tasks,
    *,
    shots: Sequence[int | None] = (None,),
    steps: Sequence[int] = (10,),
    samples: int = 20,
    examples_per_shot: int = 1,
    progress: bool = False,
) -> Evaluation:
    """Score adapted posteriors on the query sets of tasks, for every number of shots and of steps.

    ``shots`` n are the first ``n * examples_per_shot`` support examples (for C classes: ``examples_per_shot=C``, with
    the classes taking turns), None is all of them, and 0 the prior as it is, which is scored once, with 0 steps.
    Forecasts are mixtures over ``samples`` weight samples, drawn with the task's position as their seed: the same in
    all cells, so that cells differ by what was adapted alone.

    A task that leaves the finite numbers is left out of that cell and listed in ``failures``. When nothing is left at
    all, FloatingPointError is raised.

    The ranks of the current team share the tasks, and all get the result, bitwise identical to that of one process.
    Tasks by index are asked for by the rank that scores them alone; an iterator has to be gone through by every rank.
    """
    cells = _cells(shots, steps)
    _check_counts(samples, examples_per_shot)

    def scored(index: int, task: Task) -> list[_Scored | Failure]:
        task = check_task(task)
        return [_in_cell(adapt, task, index, cell, samples, examples_per_shot) for cell in cells]

    gathered = {cell: _Gathered() for cell in cells}
    failures: list[Failure] = []
    for one in chain(*_for_each(scored, tasks, progress)):
        if isinstance(one, Failure):
            failures.append(one)
            gathered[one.cell].failed += 1
        else:
            gathered[one.cell].add(one)
    _check_something_left(gathered, failures)
    return Evaluation(
        rows=[counts.row(cell) for cell, counts in gathered.items()],
        per_task=[row for counts in gathered.values() for row in counts.rows],
        reliability={cell: counts.reliability for cell, counts in gathered.items() if counts.reliability is not None},
        failures=failures,
        examples_per_shot=examples_per_shot,
    )


def _for_each(function: Callable[[int, Task], T], tasks: Iterable[Task] | Tasks, progress: bool) -> list[T]:
    """``[function(i, task) for i, task in enumerate(tasks)]``, divided over the ranks."""
    if isinstance(tasks, Sequence) or not isinstance(tasks, Iterable):
        return map_tasks(lambda index: function(index, tasks[index]), _count(tasks), progress=progress)
    team = current_team()
    passing = tqdm(tasks, desc="evaluation", unit="task", disable=not (progress and team.first), delay=1)
    # How many will come is not known, so ranks take turns.
    _, parts = team.attempt(
        lambda: [(i, function(i, task)) for i, task in enumerate(passing) if i % team.size == team.rank],
        lambda part: part,
    )
    return [result for _, result in sorted(chain(*parts), key=lambda numbered: numbered[0])]


def map_tasks(function: Callable[[int], T], count: int, *, label: str = "evaluation", progress: bool) -> list[T]:
    """``team.map`` with a progress bar on rank 0, which takes the others to be as far as itself."""
    team = current_team()
    own = len(team.share(count))
    with tqdm(total=count, desc=label, unit="task", disable=not (progress and team.first), delay=1) as bar:

        def counted(index: int) -> T:
            result = function(index)
            bar.update((index + 1) * count // own - bar.n)  # rank 0 has the first ones
            return result

        return team.map(counted, count)


class _Score(NamedTuple):
    """Of one forecast."""

    measures: dict[str, float]
    reliability: Reliability | IntervalReliability


class _Scored(NamedTuple):
    """One task in one cell; ``row`` is what ``Evaluation.per_task`` has of it."""

    cell: Cell
    row: Row
    score: _Score


def _in_cell(
    adapt: Adapt, task: Task, index: int, cell: Cell, samples: int, examples_per_shot: int
) -> _Scored | Failure:
    support = _support(task, cell, examples_per_shot)
    try:
        score = _score(adapt(support, cell.steps), task.query, samples, index)
    except FloatingPointError as error:
        return Failure(task.name, index, cell, str(error))
    row = {"task": task.name, "index": index, **cell._asdict(), "support": support.size if support else 0}
    return _Scored(cell, {**row, **score.measures}, score)


@dataclass
class _Gathered:
    """One cell, over tasks."""

    rows: list[Row] = field(default_factory=list)
    measures: tuple[str, ...] = ()
    reliability: Reliability | IntervalReliability | None = None
    failed: int = 0

    def add(self, one: _Scored) -> None:
        measures, reliability = one.score
        if self.reliability is None:
            self.measures, self.reliability = tuple(measures), reliability
        elif self.measures != tuple(measures):
            raise ValueError(
                f"task {one.row['task']!r} has other measures ({', '.join(measures)}) than the tasks before it "
                f"({', '.join(self.measures)}); evaluate real-valued targets and labels separately"
            )
        else:
            self.reliability.merge(reliability)  # type: ignore[arg-type]  # the same measures, so the same kind
        self.rows.append(one.row)

    def row(self, cell: Cell) -> Row:
        """Means over tasks; of a cell in which every task failed nothing is known."""
        row: Row = {**cell._asdict(), "support": self._values("support").mean().item()}
        row |= {"tasks": len(self.rows), "failed": self.failed}
        for measure in self.measures:
            values = self._values(measure)
            row |= {measure: values.mean().item(), f"{measure}_se": scores.standard_error(values)}
        if isinstance(self.reliability, Reliability):
            row["ece"] = self.reliability.ece
        return row

    def _values(self, name: str) -> Tensor:
        return torch.tensor([row[name] for row in self.rows], dtype=torch.float64)


def _score(posterior: Posterior, query: Examples, samples: int, seed: int) -> _Score:
    forecast = finite_forecast(posterior, query.x, samples, seed)
    score = _score_forecast(forecast, query.y)
    for name, value in score.measures.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"{name} is {value}")
    return score


def finite_forecast(posterior: Posterior, x: Tensor, samples: int, seed: int) -> Forecast:
    """The forecast for inputs that are finite; FloatingPointError where the network's output is not."""
    try:
        return posterior.predict(x, samples=samples, seed=seed)
    except NotFinite as error:  # the inputs were looked at before, so it is the network's output
        raise FloatingPointError(str(error)) from error


def _score_forecast(forecast: Forecast, targets: Tensor) -> _Score:
    if isinstance(forecast, GaussianForecast):
        return _score_real(forecast, _in_shape(targets.to(forecast.means.device), forecast.mean))
    if isinstance(forecast, BernoulliForecast):
        return _score_labels(forecast, _in_shape(targets.to(forecast.logits.device), forecast.mean))
    if isinstance(forecast, CategoricalForecast):
        return _score_labels(forecast, targets.to(forecast.logits.device))
    raise TypeError(
        f"cannot score a {type(forecast).__name__}; known are GaussianForecast, CategoricalForecast, BernoulliForecast"
    )


def _in_shape(targets: Tensor, prediction: Tensor) -> Tensor:
    """Targets (N,) for predictions (N, 1), and the other way round; every other difference is an error later on."""
    if targets.ndim == 1 and prediction.shape == (len(targets), 1):
        return targets.unsqueeze(-1)
    if prediction.ndim == 1 and targets.shape == (len(prediction), 1):
        return targets.squeeze(-1)
    return targets


def _score_real(forecast: GaussianForecast, targets: Tensor) -> _Score:
    mse = scores.mean_squared_error(forecast.mean, targets)
    inside = IntervalReliability()
    inside.add(forecast, targets)
    measures = {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "nll": -forecast.log_prob(targets).double().mean().item(),
        "crps": scores.crps(forecast, targets).double().mean().item(),
        "coverage_50": inside.coverage(0.5),
        "coverage_90": inside.coverage(0.9),
        "std": forecast.std.double().mean().item(),
    }
    return _Score(measures, inside)


def _score_labels(forecast: CategoricalForecast | BernoulliForecast, labels: Tensor) -> _Score:
    sure = Reliability()
    sure.add(forecast, labels)
    measures = {
        "error": scores.error_rate(forecast, labels),
        "nll": -forecast.log_prob(labels).double().mean().item(),
        "confidence": scores.confidence(forecast).double().mean().item(),
    }
    return _Score(measures, sure)


def _support(task: Task, cell: Cell, examples_per_shot: int) -> Examples | None:
    """The examples to adapt to, or None for zero shots."""
    if cell.shots == 0:
        return None
    if cell.shots is None:
        return task.support
    count = cell.shots * examples_per_shot
    if count > task.support.size:
        each = f" of {examples_per_shot} examples each" if examples_per_shot > 1 else ""
        raise ValueError(
            f"task {task.name!r} has {task.support.size} support examples, too few for {cell.shots} shots{each}; "
            "ask for fewer shots, or for None (all there are)"
        )
    return task.support.first(count)


def _cells(shots: Sequence[int | None], steps: Sequence[int]) -> list[Cell]:
    """Every number of shots with every number of steps, each once."""
    if not shots or not steps:
        raise ValueError(f"evaluate needs shots and steps to go through, got shots={shots!r} and steps={steps!r}")
    for name, values in (("shots", [n for n in shots if n is not None]), ("steps", steps)):
        if wrong := [value for value in values if not _is_count(value)]:
            raise ValueError(f"{name} have to be whole numbers, 0 or more, got {wrong[0]!r}")
    cells = (Cell(n, k) for n in shots for k in ([0] if n == 0 else steps))
    return list(dict.fromkeys(cells))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_counts(samples: int, examples_per_shot: int) -> None:
    for name, value, least in (("samples", samples, 2), ("examples_per_shot", examples_per_shot, 1)):
        if not _is_count(value) or value < least:
            raise ValueError(f"{name} has to be a whole number, {least} or more, got {value!r}")


def check_task(task: Task) -> Task:
    """The task in tensors. Numbers that are not finite have to come from the adaptation, not from the data, to count as
    its failure."""
    support, query, name = as_task(task)
    if not len(query.x):
        raise ValueError(f"task {name!r} has no query examples to be scored on")
    return Task(_finite(support, "support", name), _finite(query, "query", name), name)


def _finite(examples: Examples, part: str, task: str) -> Examples:
    """In tensors."""

    def checked(values: object, name: str) -> Tensor:
        told = f"{part} {name} of task {task!r}"
        tensor = as_plain_tensor(values, told)
        refuse_non_finite(tensor, told)
        return tensor

    return Examples(checked(examples.x, "x"), checked(examples.y, "y"))


def _count(tasks: Tasks) -> int:
    """How many there are; an endless source would never raise IndexError."""
    if isinstance(tasks, Sequence):
        return len(tasks)  # none is an error of its own
    count = length_of(tasks)
    if count is None:
        raise ValueError(
            f"{type(tasks).__name__} has no length, so there would be no end; evaluate on some of its tasks, "
            "as in [tasks[i] for i in range(100)]"
        )
    return count


def _check_something_left(gathered: Mapping[Cell, _Gathered], failures: Sequence[Failure]) -> None:
    if any(counts.rows for counts in gathered.values()):
        return
    if not failures:
        raise ValueError("there are no tasks to evaluate on: the collection is empty")
    first = failures[0]
    raise FloatingPointError(
        f"no task could be scored in any cell; the first of {len(failures)} failures was {first.task!r} "
        f"({first.cell}): {first.message}"
    )
