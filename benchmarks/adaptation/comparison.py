"""Ways of adapting beside each other: on curves, frames, few tasks, characters and maps.

On curves and frames every way has the same CPU time of training and support sets of 0 to 20 examples in training, and
is trained several times with other first weights and other tasks. Settings were chosen on validation tasks, and on them
a factor for the spread of forecasts is fitted after each training, by number of shots.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import metaprior as mp
from benchmarks.adaptation import few_tasks, maps, neural_process, omniglot
from benchmarks.adaptation.few_tasks import Settings as FewTasks
from benchmarks.adaptation.maps import Settings as Maps
from benchmarks.adaptation.omniglot import Settings as Characters
from benchmarks.adaptation.part import Part
from benchmarks.adaptation.problems import PROBLEMS, Problem
from benchmarks.adaptation.scoring import over_trainings, rows_of_training
from benchmarks.adaptation.ways import CLOSED_FORM, DESCENT, EXACT, PROCESS, TUNED, tuned
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import Fitted, first_tasks, one_thread
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.hierarchy import comparison as hierarchy
from metaprior.evaluation import Adapt, evaluate
from metaprior.tasks.task import Tasks

SIZES = (0, 1, 2, 3, 4, 5, 7, 10, 14, 20)
"""Support sets in training, drawn uniformly."""
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1000, 2, 12
COVERED = ("sinusoid", "sine_or_line")
"""Problems of the headline's coverages."""
GAINS = {"nll_gain_sinusoid": "sinusoid", "nll_gain_frequency": "frequency"}
OTHERS: dict[str, Callable[[Context[Any]], Part]] = {
    "hierarchy": few_tasks.measure,
    "omniglot": omniglot.measure,
    "maps": maps.measure,
}
"""Parts that are no comparison of all ways; each is given its own settings."""
PARTS = (*PROBLEMS, *OTHERS)


@dataclass(frozen=True)
class Settings:
    """The same settings for every way."""

    parts: tuple[str, ...] = PARTS
    """What is measured: names of ``PARTS``."""
    seconds: float = 30.0
    """CPU seconds of a training on curves."""
    frame_seconds: float = 120.0
    """CPU seconds of a training on frames."""
    trainings: int = 3
    shots: tuple[int, ...] = (0, 1, 2, 5, 10, 20)
    train_query: int = 20
    validation_tasks: int = 200
    test_tasks: int = 300
    test_query: int = 50
    samples: int = 20
    tuned_steps: tuple[int, ...] = (5, 20)
    hierarchy: FewTasks = field(default_factory=FewTasks)
    omniglot: Characters = field(default_factory=Characters)
    maps: Maps = field(default_factory=Maps)

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"parts must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")


class Job(NamedTuple):
    """One training of one way; its number is the seed of all random numbers."""

    problem: str
    way: str
    number: int = 0


def jobs_of(settings: Settings) -> list[Job]:
    """Return every training, problem by problem."""
    jobs = []
    for name in settings.parts:
        if (problem := PROBLEMS.get(name)) is None:
            continue
        learned = [*problem.recipes, *[PROCESS] * (problem.process and neural_process.installed())]
        jobs += [Job(name, way, number) for way in learned for number in range(settings.trainings)]
        jobs += [Job(name, EXACT)] * (problem.exact is not None)
    return jobs


def tasks_for(problem: Problem, seed: int, count: int, settings: Settings) -> list[mp.Task]:
    """Return tasks with as many support examples as the largest number of shots."""
    return first_tasks(problem.tasks(seed, max(shots_of(problem, settings)), settings.test_query), count)


def shots_of(problem: Problem, settings: Settings) -> tuple[int, ...]:
    """Return the numbers of shots that are measured on a problem."""
    return tuple(shots for shots in settings.shots if shots <= problem.most_shots)


def measure_training(context: Context[Settings], job: Job) -> list[Row]:
    """Train, fit the spread on validation tasks, and return a row for each number of shots."""
    settings, problem = context.settings, PROBLEMS[job.problem]
    with one_thread():
        validation = tasks_for(problem, VALIDATION_SEED, settings.validation_tasks, settings)
        test = tasks_for(problem, TEST_SEED, settings.test_tasks, settings)
        adapt, fitted = trained(problem, job, validation, settings)
        rows = rows_of_training(
            adapt, validation, test, shots_of(problem, settings), settings.samples, calibrate=job.way != EXACT
        )
    about: Row = {} if fitted is None else {"training_seconds": fitted.seconds, "meta_steps": fitted.meta_steps}
    return [row | about for row in rows]


def trained(
    problem: Problem, job: Job, validation: Sequence[mp.Task], settings: Settings
) -> tuple[Adapt, Fitted | None]:
    """Return how a way adapts after its training, and the training."""
    if job.way == EXACT:
        assert problem.exact is not None
        return problem.exact, None
    seconds = settings.frame_seconds if problem.frames else settings.seconds
    sizes = tuple(size for size in SIZES if size <= problem.most_shots)
    tasks: Tasks = problem.tasks(TRAINING_SEED + job.number, max(sizes), settings.train_query)
    if job.way == PROCESS:
        process, fitted = neural_process.trained(problem.inputs, tasks, sizes, seconds, job.number)
        return process.adapted, fitted  # type: ignore[return-value]
    learner, fitted = problem.recipes[job.way].trained(tasks, sizes, seconds, job.number)
    if job.way == TUNED:
        learner = best_tuned(learner, problem, validation, settings)
    return adaptation_of(learner), fitted


def adaptation_of(learner: mp.MetaLearner) -> Adapt:
    """Return the adaptation of a learner, for any number of examples."""
    return lambda support, steps: learner.prior_predictive() if support is None else learner.adapt(support)


def best_tuned(
    network: mp.MetaLearner, problem: Problem, validation: Sequence[mp.Task], settings: Settings
) -> mp.MetaLearner:
    """Return the fine-tuning (step size and number of steps) with the lowest NLL on some validation tasks."""
    shots = tuple(count for count in shots_of(problem, settings) if count)

    def nll(learner: mp.MetaLearner) -> float:
        try:
            found = evaluate(adaptation_of(learner), validation[:20], shots=shots, steps=(0,), samples=2)
        except FloatingPointError:
            return float("inf")
        return sum(row["nll"] for row in found.rows) if not found.failures else float("inf")

    tried = [tuned(network, lr, steps) for lr in problem.tuned_lr for steps in settings.tuned_steps]
    return min(tried, key=nll)


def headline_of(found: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """Return coverages and gains of the problems that were measured, from the rows of each."""
    headline: dict[str, float] = {}
    for way, name in ((CLOSED_FORM, "coverage"), (DESCENT, "coverage_descent")):
        own = [row["coverage_90"] for part in COVERED for row in found.get(part, ()) if row["method"] == way]
        if own and all(part in found for part in COVERED):
            headline |= {f"{name}_low": min(own), f"{name}_high": max(own)}
    for name, part in GAINS.items():
        nll = {row["method"]: row["nll"] for row in found.get(part, ()) if row["shots"] == 5}
        if {DESCENT, CLOSED_FORM} <= nll.keys():
            headline[name] = nll[DESCENT] - nll[CLOSED_FORM]
    return headline


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure the parts that are asked for; a part without its data says so in a note."""
    settings, jobs = context.settings, jobs_of(context.settings)
    results = context.map(measure_training, [(job,) for job in jobs]) if jobs else []
    trainings: dict[tuple[str, str], list[list[Row]]] = {}
    for job, rows in zip(jobs, results, strict=True):
        trainings.setdefault((job.problem, job.way), []).append(rows)
    by_problem: dict[str, list[Row]] = {}
    for (problem, way), own in trainings.items():
        by_problem.setdefault(problem, []).extend(over_trainings(PROBLEMS[problem].name, way, own))
    headline = headline_of(by_problem)
    rows, notes = [row for own in by_problem.values() for row in own], list[str]()
    if by_problem:
        notes += notes_of(settings)
    for name in settings.parts:
        if name in OTHERS:
            part = OTHERS[name](Context(getattr(settings, name), context.data, context.workers, context.label))
            rows, headline, notes = [*rows, *part.rows], headline | part.headline, [*notes, *part.notes]
    return BenchmarkResult(headline, rows, notes)


def notes_of(settings: Settings) -> list[str]:
    """Return what a reader of the tables of curves and frames has to know."""
    return [
        f"every way: {settings.seconds:g} CPU s of training on one core ({settings.frame_seconds:g} on frames), "
        f"{settings.trainings} trainings with other weights and tasks; _low and _high: the lowest and highest of them",
        f"support sets in training: {', '.join(map(str, SIZES))} examples, as far as a problem's go",
        f"nll, crps and coverage_90: with a factor for the spread by number of shots, fitted on "
        f"{settings.validation_tasks} validation tasks; _raw: without it",
        f"{settings.test_tasks} test tasks, the same for all; nll of an observation, summed over its outputs",
        "adapt_ms: CPU time of one adaptation and its forecast for the query set",
        f"{TUNED}: a network trained on pooled tasks; step size and number of steps of lowest NLL on validation tasks",
        f"{EXACT}: of the true prior and noise, in closed form for linear tasks (a Gaussian process with the true "
        "kernel), by sequential Monte Carlo for waves and lines: the best that is possible",
        "headline: coverage of the closed form and of descent, lowest and highest over shots and the problems "
        "sinusoids and sine or line; nll_gain: nats at five shots by which the closed form is better than descent",
        *[neural_process.MISSING] * (not neural_process.installed()),
    ]


BENCHMARK = Benchmark(
    "adaptation",
    "descent, closed form and context at every number of shots, beside neural processes and exact posteriors",
    measure,
    full=Settings(),
    quick=Settings(
        parts=("sinusoid", "sine_or_line", "linear"),
        seconds=1.5,
        trainings=1,
        shots=(0, 1, 5),
        validation_tasks=15,
        test_tasks=15,
        hierarchy=hierarchy.BENCHMARK.quick,
        omniglot=omniglot.QUICK,
        maps=maps.QUICK,
    ),
    quick_note="too short a training to compare ways by; frames, few tasks, characters and maps are left out",
)
