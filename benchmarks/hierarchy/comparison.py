"""What tasks learn from each other: plain, hierarchical and amortised variational inference on the same sine waves.

Methods are compared with few and many data in a task, and with few and many tasks. *Alone* is variational inference
with a fixed prior for each task (Bayes by Backprop, all tasks in one stack). *Hierarchical* learns a posterior over the
prior and one for every task, *amortised* (ABML) a prior from which a few steps lead to a task's posterior. All have the
same network, the same data and the true noise scale, so that they differ only by what they learn about weights.

Scores are those of points that were held out of the same tasks, and of new tasks with as many data.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks, fit_within
from benchmarks.common.processes import in_own_process
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.hierarchy import collapsed
from benchmarks.hierarchy.gains import ALONE, HIERARCHICAL, NEW, SAME, Cell, headline_of
from benchmarks.hierarchy.memory import Job as MemoryJob
from benchmarks.hierarchy.memory import measure_training
from metaprior.evaluation import Adapt, Evaluation, evaluate
from metaprior.progress import track
from metaprior.tasks.task import VariedSupport
from metaprior.tasks.waves import Sinusoids
from metaprior.weights import inverse_softplus

AMORTISED = "amortised"
TRAINING_SEED, TEST_SEED = 43, 44  # settings were chosen on tasks of seeds 31 and 32


@dataclass(frozen=True)
class Descent:
    """How posteriors are fitted; the arguments of ``HierarchicalVI.fit``."""

    epochs: int
    local_steps: int
    kl_warmup: float

    @property
    def steps(self) -> int:
        """The steps of every posterior."""
        return self.epochs * self.local_steps


@dataclass(frozen=True)
class Settings:
    """Sizes, and settings that were chosen on other tasks."""

    observations: tuple[int, ...] = (5, 20, 80)
    """Data of a task: its first points, so that more data contain fewer."""
    tasks: tuple[int, ...] = (3, 10, 50)
    test_tasks: int = 20
    held_out: int = 100
    noise: float = 0.1
    hidden: tuple[int, ...] = (40, 40)
    prior_std: float = 1.0
    """Standard deviation of the fixed prior of a task alone."""
    alone: Descent = Descent(epochs=1, local_steps=1000, kl_warmup=0.5)
    """More steps make the error of a task alone larger, not smaller."""
    together: Descent = Descent(epochs=1000, local_steps=1, kl_warmup=0.25)
    """In the hierarchy: scores improve the more often psi is fitted to the posteriors."""
    lr: float = 1e-2
    adapt_steps: int = 1000
    """Steps of the adaptation to a new task."""
    amortised_seconds: float = 20.0
    """CPU time of meta-training."""
    inner_steps: int = 5
    """Inner steps in meta-training."""
    amortised_steps: int = 20
    """Inner steps on the tasks that are scored: more are better here, with the step sizes learned for few."""
    inner_lr: float = 1e-3
    inner_kl_weight: float = 1e-3
    meta_batch: int = 25
    meta_lr: float = 5e-3
    samples: int = 20
    """Weight samples of a forecast."""
    memory_tasks: tuple[int, int] = (20, 2000)
    memory_hidden: int = 310
    few_tasks: collapsed.Settings = field(default_factory=collapsed.Settings)
    """Few tasks with few data, with the local posteriors in closed form."""


class Job(NamedTuple):
    """One fit and its scores."""

    method: str
    tasks: int
    """The number of tasks that are learned from, or fitted alone."""
    observations: int


class Scores(NamedTuple):
    """The scores of a fit on both kinds of tasks."""

    same: Evaluation
    new: Evaluation


def network(settings: Settings) -> mp.MLP:
    """Return a network with the same initial weights for every method."""
    torch.manual_seed(0)
    return mp.MLP(1, list(settings.hidden), 1, activation="tanh")


def waves(seed: int, count: int, observations: int, settings: Settings) -> list[mp.Task]:
    """Return tasks with so many data (the support set) and held-out points (the query set)."""
    most = max(settings.observations)
    source = Sinusoids(k_shot=most, k_query=settings.held_out, noise=settings.noise, seed=seed)
    return [
        task._replace(support=mp.Examples(*(part[:observations] for part in task.support)))
        for task in first_tasks(source, count)
    ]


def measure_method(context: Context[Settings], job: Job) -> Scores:
    """Fit a method, and score it on both kinds of tasks."""
    same = waves(TRAINING_SEED, job.tasks, job.observations, context.settings)
    new = waves(TEST_SEED, context.settings.test_tasks, job.observations, context.settings)
    return METHODS[job.method](same, new, context.settings)


def alone(same: Sequence[mp.Task], new: Sequence[mp.Task], settings: Settings) -> Scores:
    """Fit every task under a fixed prior: nothing passes from task to task, and new tasks are like old ones."""
    prior = fixed_prior(settings)
    learners = [(fitted(tasks, prior, settings.alone, settings), tasks) for tasks in (same, new)]
    return Scores(*(_of_training(learner, tasks, settings) for learner, tasks in learners))


def fixed_prior(settings: Settings) -> mp.WeightDistribution:
    """Return the same normal distribution for every weight."""
    zero = torch.zeros(mp.BayesianNetwork(network(settings)).layout.dimension)
    return mp.WeightDistribution(zero, inverse_softplus(torch.full_like(zero, settings.prior_std)))


def hierarchical(same: Sequence[mp.Task], new: Sequence[mp.Task], settings: Settings) -> Scores:
    """Learn a posterior for every task and one for their prior, under which new tasks are then fitted."""
    learner = fitted(same, mp.GaussianHyperprior(), settings.together, settings)

    def adapted(support: mp.Examples | None, steps: int) -> mp.Predictive:
        return learner.prior_predictive() if support is None else learner.adapt(support, steps, lr=settings.lr)

    return Scores(_of_training(learner, same, settings), _scored(adapted, new, settings.adapt_steps, settings))


def fitted(
    tasks: Sequence[mp.Task],
    hyperprior: mp.GaussianHyperprior | mp.WeightDistribution,
    descent: Descent,
    settings: Settings,
) -> mp.HierarchicalVI:
    """Return a hierarchy that is fitted to all tasks in every round, and psi to their posteriors after each."""
    learner = mp.HierarchicalVI(
        network(settings), mp.Gaussian(noise=settings.noise), hyperprior=hyperprior, standardize=False
    )
    return learner.fit(
        {task.name: task.support for task in tasks},
        **asdict(descent),
        task_batch=len(tasks),
        lr=settings.lr,
        progress=False,
    )


def amortised(same: Sequence[mp.Task], new: Sequence[mp.Task], settings: Settings) -> Scores:
    """Learn a prior for a few inner steps; a task's data are split into new halves in every meta-step."""
    learner = mp.MetaLearner(
        network(settings),
        mp.Gaussian(noise=settings.noise),
        adaptation=mp.Descent(
            settings.inner_steps, settings.inner_lr, learn_lr="per_tensor", kl_weight=settings.inner_kl_weight
        ),
        objective="abml",
        standardize=False,
    )
    training = mp.MetaTraining(meta_batch=settings.meta_batch, lr=settings.meta_lr, search_step_size=False)
    lessons = VariedSupport(
        [_halved(task) for task in same], [(same[0].support.size + 1) // 2], together=settings.meta_batch
    )
    fit_within(learner, lessons, training, seconds=settings.amortised_seconds, progress=False)

    def adapted(support: mp.Examples | None, steps: int) -> mp.Predictive:
        return learner.prior_predictive() if support is None else learner.adapt(support, steps)

    return Scores(*(_scored(adapted, tasks, settings.amortised_steps, settings) for tasks in (same, new)))


def _halved(task: mp.Task) -> mp.Task:
    """Return the data of a task (without held-out points) as a support and a query set."""
    middle = (task.support.size + 1) // 2
    first, second = (
        mp.Examples(task.support.x[part], task.support.y[part]) for part in (slice(middle), slice(middle, None))
    )
    return mp.Task(first, second, task.name)


METHODS: dict[str, Callable[[Sequence[mp.Task], Sequence[mp.Task], Settings], Scores]] = {
    ALONE: alone,
    HIERARCHICAL: hierarchical,
    AMORTISED: amortised,
}


def _of_training(learner: mp.HierarchicalVI, tasks: Sequence[mp.Task], settings: Settings) -> Evaluation:
    """Score the posteriors of the training."""
    turns = iter(tasks)
    return _scored(lambda support, steps: learner.posterior(next(turns).name), tasks, 0, settings)


def _scored(adapted: Adapt, tasks: Sequence[mp.Task], steps: int, settings: Settings) -> Evaluation:
    return evaluate(adapted, tasks, shots=(None,), steps=(steps,), samples=settings.samples)


def jobs_of(settings: Settings) -> list[Job]:
    """Return all jobs, the longest first, so that no core waits at the end; tasks alone are fitted once."""
    sizes = [(tasks, data) for tasks in sorted(settings.tasks, reverse=True) for data in settings.observations]
    most = max(settings.tasks)
    return [
        *(Job(ALONE, most, data) for data in settings.observations),
        *(Job(method, tasks, data) for tasks, data in sizes for method in (HIERARCHICAL, AMORTISED)),
    ]


def cells_of(jobs: Sequence[Job], scores: Sequence[Scores], counts: Sequence[int]) -> list[Cell]:
    """Return all scores. Tasks alone appear once for every number of tasks: the first so many of them."""
    cells = []
    for job, score in zip(jobs, scores, strict=True):
        for count in counts if job.method == ALONE else (job.tasks,):
            first = [row for row in score.same.per_task if row["index"] < count]
            failed = sum(failure.index < count for failure in score.same.failures)
            cells.append(Cell(job.method, count, job.observations, SAME, first, failed))
            cells.append(Cell(job.method, count, job.observations, NEW, score.new.per_task, len(score.new.failures)))
    return sorted(cells, key=lambda cell: (cell.on != SAME, cell.tasks, cell.observations))


def memory_rows(settings: Settings) -> list[Row]:
    """Return the memory of the same training with few and with many tasks, each in a fresh process."""
    jobs = [MemoryJob(tasks, settings.memory_hidden) for tasks in settings.memory_tasks]
    found = [in_own_process(measure_training, job) for job in track(jobs, "memory", unit="processes", show=True)]
    return [{"method": f"memory, D = {row['weights']}", **row} for row in found]


def measure_collapsed(context: Context[Settings], method: str, count: int, observations: int, seed: int) -> Row:
    """Return the scores of a way to infer theta, or of the Gaussian process, on one set of tasks."""
    settings = context.settings
    same = waves(collapsed.FIRST_TRAINING_SEED + seed, count, observations, settings)
    new = waves(collapsed.FIRST_TEST_SEED + seed, settings.few_tasks.test_tasks, observations, settings)
    return collapsed.scores(method, same, new, settings.noise, settings.few_tasks)


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method with every number of data and of tasks, few tasks in closed form, and the memory of many."""
    settings = context.settings
    jobs = jobs_of(settings)
    cells = cells_of(jobs, context.map(measure_method, [(job,) for job in jobs]), settings.tasks)
    closed = collapsed.table(settings.few_tasks, context.map(measure_collapsed, settings.few_tasks.jobs))
    memory = memory_rows(settings)
    few, many = (row["peak_gib"] for row in memory)
    headline = {**headline_of(cells), **collapsed.headline_of(closed, settings.few_tasks.sizes)}
    headline["hvi_memory_ratio"] = many / few
    rows = [cell.row() for cell in cells]
    picture = partial(_draw, rows=rows, noise=settings.noise**2)
    return BenchmarkResult(headline, [*rows, *closed, *memory], _notes(settings), picture=picture)


def _draw(path: Path, rows: Sequence[Row], noise: float) -> None:
    from benchmarks.hierarchy.picture import draw  # it needs the extra `report`

    draw(path, rows, noise)


def _notes(settings: Settings) -> list[str]:
    return [
        f"sine waves with noise {settings.noise:g}, which all methods know; 1-40-40-1 with tanh, all weights random; "
        f"means over tasks, MSE and NLL of {settings.held_out} held-out points a task; gains are MSE alone over MSE in "
        "the hierarchy on the same tasks, with paired standard errors; settings were chosen on other tasks. alone: "
        f"prior N(0, {settings.prior_std:g}), {settings.alone.steps} steps; hierarchical: {settings.together.steps} "
        f"steps a task, {settings.adapt_steps} for a new one; amortised: objective 'abml', "
        f"{settings.amortised_seconds:g} CPU s, {settings.inner_steps} inner steps, {settings.amortised_steps} on the "
        "tasks scored. coverage_* without _many_data is that of the fewest data and most tasks, on the same tasks",
        f"collapsed, theta from its prior, Gaussian process: hidden layers {settings.few_tasks.hidden}; means over "
        f"{settings.few_tasks.data_seeds} sets of tasks and, for each, {settings.few_tasks.test_tasks} new; "
        "seconds are those of a fit on one core. *_3x5, *_10x5, *_50x5 and coverage_worst (of all sets of tasks) are "
        "of Hamiltonian Monte Carlo; nll_over_* is its NLL minus that of the Gaussian process, or of the prior",
        f"memory: peak of a fresh process, importing torch included, {settings.memory_tasks[0]} and "
        f"{settings.memory_tasks[1]} tasks; hvi_memory_ratio is their ratio",
    ]


BENCHMARK = Benchmark(
    "hierarchy",
    "what sine waves learn from each other: plain, hierarchical, amortised; memory of 2,000 tasks",
    measure,
    full=Settings(),
    quick=Settings(
        observations=(5, 20),
        tasks=(3, 8),
        test_tasks=4,
        held_out=50,
        alone=Descent(1, 100, 0.5),
        together=Descent(100, 1, 0.25),
        adapt_steps=50,
        amortised_seconds=2.0,
        memory_tasks=(10, 50),
        memory_hidden=64,
        few_tasks=collapsed.Settings(
            data_seeds=1,
            test_tasks=10,
            hmc=mp.HMC(8, 5, 5, 50),
            anchored=mp.Anchored(8, 50),
            variational=mp.Variational(8, 50),
        ),
    ),
    quick_note="far from done learning, and so small that importing torch is most of the memory",
)
