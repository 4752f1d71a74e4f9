"""What tasks learn from each other: plain, hierarchical and amortised variational inference on the same sine waves.

With few and many data a task and few and many tasks. *Alone* is variational inference with a fixed prior, each task by
itself (Bayes by Backprop, all tasks in one stack). *Hierarchical* learns a posterior over the prior and one for every
task, *amortised* (ABML) a prior from which a few steps lead to a task's posterior. All have the same network, the same
data and the noise scale that data were made with, so that they differ by what they know about weights alone.

Scored on points that were held out of the same tasks, and on new tasks of which as many points are given.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from benchmarks import hierarchy_memory
from benchmarks.budget import fit_within
from benchmarks.hierarchy_gains import ALONE, HIERARCHICAL, NEW, SAME, Cell, headline_of
from benchmarks.hierarchy_memory import Runner
from benchmarks.jobs import run_all
from benchmarks.result import BenchResult, Row
from benchmarks.sharing import sharing
from metaprior.evaluation import Adapt, Evaluation, evaluate
from metaprior.hyperprior import GaussianHyperprior
from metaprior.likelihoods import Gaussian
from metaprior.metagrad.problem import InnerLoop
from metaprior.methods.hierarchical_vi import HierarchicalVI
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.mlp import MLP
from metaprior.network import BayesianNetwork
from metaprior.posterior import Posterior
from metaprior.tasks.sinusoids import Sinusoids
from metaprior.tasks.task import Examples, Task
from metaprior.tasks.varied_support import VariedSupport
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution, inverse_softplus

AMORTISED = "amortised"
TRAINING_SEED, TEST_SEED = 43, 44  # settings were chosen on tasks of seeds 31 and 32


@dataclass(frozen=True)
class Descent:
    """How posteriors descend; as in ``HierarchicalVI.fit``."""

    epochs: int
    local_steps: int
    kl_warmup: float

    @property
    def steps(self) -> int:
        """Of every posterior."""
        return self.epochs * self.local_steps


@dataclass(frozen=True)
class Settings:
    """Sizes, and what was chosen on other tasks."""

    observations: tuple[int, ...] = (5, 20, 80)
    """Data a task: the first so many of its points, so that more data contain fewer."""
    tasks: tuple[int, ...] = (3, 10, 50)
    test_tasks: int = 20
    held_out: int = 100
    noise: float = 0.1
    hidden: tuple[int, ...] = (40, 40)
    prior_std: float = 1.0
    """Of the fixed prior of a task alone."""
    alone: Descent = Descent(epochs=1, local_steps=1000, kl_warmup=0.5)
    """More steps make the error of a task alone larger, not smaller."""
    together: Descent = Descent(epochs=1000, local_steps=1, kl_warmup=0.25)
    """In the hierarchy: the oftener psi is fitted to the posteriors, the better."""
    lr: float = 1e-2
    adapt_steps: int = 1000
    """To a new task."""
    amortised_seconds: float = 20.0
    """CPU time of meta-training."""
    inner_steps: int = 5
    """In meta-training."""
    amortised_steps: int = 20
    """On the tasks that are scored: more are better here, with the step sizes that were learned for few."""
    inner_lr: float = 1e-3
    inner_kl_weight: float = 1e-3
    meta_batch: int = 25
    meta_lr: float = 5e-3
    samples: int = 20
    """Weight samples of a forecast."""
    memory_tasks: tuple[int, int] = (20, 2000)
    memory_hidden: int = 310


QUICK = Settings(
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
)


class Job(NamedTuple):
    """One fit and its scores."""

    method: str
    tasks: int
    """How many are learned from. Alone: how many are fitted, each by itself."""
    observations: int
    settings: Settings


class Scores(NamedTuple):
    """Of a fit, on both kinds of tasks."""

    same: Evaluation
    new: Evaluation


def network(settings: Settings) -> MLP:
    """From the same first weights for everybody."""
    torch.manual_seed(0)
    return MLP(1, list(settings.hidden), 1, activation="tanh")


def waves(seed: int, count: int, observations: int, settings: Settings) -> list[Task]:
    """Tasks with so many data (the support set), and held-out points (the query set)."""
    most = max(settings.observations)
    source = Sinusoids(k_shot=most, k_query=settings.held_out, noise=settings.noise, seed=seed)
    tasks = [source[index] for index in range(count)]
    return [task._replace(support=Examples(*(part[:observations] for part in task.support))) for task in tasks]


def data_of(tasks: Sequence[Task]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What may be learned from."""
    return {task.name: (task.support.x, task.support.y) for task in tasks}


def measure(job: Job) -> Scores:
    """Fit and score."""
    same = waves(TRAINING_SEED, job.tasks, job.observations, job.settings)
    new = waves(TEST_SEED, job.settings.test_tasks, job.observations, job.settings)
    return MEASURE[job.method](same, new, job.settings)


def alone(same: Sequence[Task], new: Sequence[Task], settings: Settings) -> Scores:
    """A theta that is known and not learned: nothing passes from task to task, and new ones are like old ones."""
    prior = fixed_prior(settings)
    learners = [(fitted(tasks, prior, settings.alone, settings), tasks) for tasks in (same, new)]
    return Scores(*(_of_training(learner, tasks, settings) for learner, tasks in learners))


def fixed_prior(settings: Settings) -> WeightDistribution:
    """The same normal distribution for every weight."""
    zero = torch.zeros(BayesianNetwork(network(settings)).layout.dimension)
    return WeightDistribution(zero, inverse_softplus(torch.full_like(zero, settings.prior_std)))


def hierarchical(same: Sequence[Task], new: Sequence[Task], settings: Settings) -> Scores:
    """A posterior for every task and one for their prior, under which new tasks are then learned."""
    learner = fitted(same, GaussianHyperprior(), settings.together, settings)

    def adapted(support: Examples | None, steps: int) -> Posterior:
        return learner.prior if support is None else learner.adapt(support, steps, lr=settings.lr)

    return Scores(_of_training(learner, same, settings), _scored(adapted, new, settings.adapt_steps, settings))


def fitted(
    tasks: Sequence[Task],
    hyperprior: GaussianHyperprior | WeightDistribution,
    descent: Descent,
    settings: Settings,
) -> HierarchicalVI:
    """All tasks in every round; psi is fitted to their posteriors after each."""
    learner = HierarchicalVI(network(settings), Gaussian(noise=settings.noise), hyperprior=hyperprior)
    return learner.fit(
        data_of(tasks),
        **asdict(descent),
        task_batch=len(tasks),
        lr=settings.lr,
        progress=False,
    )


def amortised(same: Sequence[Task], new: Sequence[Task], settings: Settings) -> Scores:
    """A prior for which a few inner steps are enough; a task's data are halved anew in every meta-step."""
    learner = MetaLearner(
        network(settings),
        Gaussian(noise=settings.noise),
        inner=InnerLoop(
            settings.inner_steps, settings.inner_lr, learn_lr="per_tensor", kl_weight=settings.inner_kl_weight
        ),
        objective="abml",
    )
    training = MetaTraining(meta_batch=settings.meta_batch, lr=settings.meta_lr, search_step_size=False)
    lessons = VariedSupport(
        [_halved(task) for task in same], [(same[0].support.size + 1) // 2], together=settings.meta_batch
    )
    fit_within(learner, lessons, training, seconds=settings.amortised_seconds, progress=False)

    def adapted(support: Examples | None, steps: int) -> Posterior:
        return learner.prior if support is None else learner.adapt(support, steps)

    return Scores(*(_scored(adapted, tasks, settings.amortised_steps, settings) for tasks in (same, new)))


def _halved(task: Task) -> Task:
    """The data of a task as a support and a query set; held-out points are not among them."""
    middle = (task.support.size + 1) // 2
    first, second = (
        Examples(task.support.x[part], task.support.y[part]) for part in (slice(middle), slice(middle, None))
    )
    return Task(first, second, task.name)


MEASURE: dict[str, Callable[[Sequence[Task], Sequence[Task], Settings], Scores]] = {
    ALONE: alone,
    HIERARCHICAL: hierarchical,
    AMORTISED: amortised,
}


def _of_training(learner: HierarchicalVI, tasks: Sequence[Task], settings: Settings) -> Evaluation:
    """Posteriors as they are after the training."""
    turns = iter(tasks)
    return _scored(lambda support, steps: learner.posterior(next(turns).name), tasks, 0, settings)


def _scored(adapted: Adapt, tasks: Sequence[Task], steps: int, settings: Settings) -> Evaluation:
    return evaluate(adapted, tasks, shots=(None,), steps=(steps,), samples=settings.samples)


def jobs_of(settings: Settings) -> list[Job]:
    """The long ones first, so that no core waits at the end; a task alone does not know how many others there are."""
    sizes = [(tasks, data) for tasks in sorted(settings.tasks, reverse=True) for data in settings.observations]
    most = max(settings.tasks)
    return [
        *(Job(ALONE, most, data, settings) for data in settings.observations),
        *(Job(method, tasks, data, settings) for tasks, data in sizes for method in (HIERARCHICAL, AMORTISED)),
    ]


def cells_of(jobs: Sequence[Job], scores: Sequence[Scores]) -> list[Cell]:
    """All that was scored. Tasks alone are counted as often as there are numbers of tasks: the first so many."""
    cells = []
    for job, score in zip(jobs, scores, strict=True):
        counts = job.settings.tasks if job.method == ALONE else (job.tasks,)
        for count in counts:
            first = [row for row in score.same.per_task if row["index"] < count]
            failed = sum(failure.index < count for failure in score.same.failures)
            cells.append(Cell(job.method, count, job.observations, SAME, first, failed))
            cells.append(Cell(job.method, count, job.observations, NEW, score.new.per_task, len(score.new.failures)))
    return sorted(cells, key=lambda cell: (cell.on != SAME, cell.tasks, cell.observations))


def memory_rows(settings: Settings, runner: Runner) -> list[Row]:
    """The same training with few and with many tasks, each in a fresh process."""
    jobs = [hierarchy_memory.Job(tasks, settings.memory_hidden) for tasks in settings.memory_tasks]
    bar = tqdm(jobs, desc="memory", unit="process")
    return [{"method": f"memory, D = {row['weights']}", **row} for row in map(runner, bar)]


def run(*, quick: bool = False, workers: int | None = None, settings: Settings | None = None) -> BenchResult:
    """Every method with every number of data and of tasks; then the memory of many tasks."""
    settings = settings or (QUICK if quick else Settings())
    jobs = jobs_of(settings)
    cells = cells_of(jobs, run_all(measure, jobs, workers=workers, label="hierarchy"))
    memory = memory_rows(settings, hierarchy_memory.in_own_process)
    few, many = (row["peak_gib"] for row in memory)
    headline = {**headline_of(cells), "hvi_memory_ratio": many / few}
    about = {"bench": "hierarchy", "quick": quick, **asdict(settings)}
    return BenchResult(headline, [*(cell.row() for cell in cells), *memory], about, _notes(settings, quick))


def draw(result: BenchResult, path: Path) -> None:
    """The error against data a task, by method and number of tasks, as a PNG."""
    sharing(
        path,
        [row for row in result.rows if "on" in row],
        by_themselves=(ALONE,),
        floor=result.settings["noise"] ** 2,
        title="What tasks learn from each other",
    )


def _notes(settings: Settings, quick: bool) -> list[str]:
    return [
        f"sine waves with noise {settings.noise:g}, which all methods know; 1-40-40-1 with tanh, all weights random; "
        f"means over tasks, MSE and NLL of {settings.held_out} held-out points a task; gains are MSE alone over MSE in "
        "the hierarchy on the same tasks, with paired standard errors; settings were chosen on other tasks. alone: "
        f"prior N(0, {settings.prior_std:g}), {settings.alone.steps} steps; hierarchical: {settings.together.steps} "
        f"steps a task, {settings.adapt_steps} for a new one; amortised: objective 'abml', "
        f"{settings.amortised_seconds:g} CPU s, {settings.inner_steps} inner steps, {settings.amortised_steps} on the "
        "tasks scored. coverage_* without _many_data is that of the fewest data and most tasks, on the same tasks",
        f"memory: peak of a fresh process, importing torch included, {settings.memory_tasks[0]} and "
        f"{settings.memory_tasks[1]} tasks; hvi_memory_ratio is their ratio",
        *["--quick: far from done learning, and so small that importing torch is most of the memory"] * quick,
    ]
