"""Meta-learning beside a network that is trained on all tasks together and fine-tuned on the new one.

The fine-tuned network is a special case of ABML (sigma zero, step sizes chosen by hand), so ABML should not lose at the
same training time. Its step sizes (of the weights and of the noise scale) and its number of steps are chosen on
validation tasks, for the error and for the likelihood separately. So are ABML's number of steps and factors of its
learned step sizes: it learns them for few steps, and more but smaller steps may go further.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import Fitted, first_tasks, fit_within, one_thread
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from metaprior.evaluation import Evaluation
from metaprior.likelihoods import NOISE_RHO
from metaprior.metagrad.step_size_search import step_sizes_of
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.task import Tasks
from metaprior.tasks.waves import Sinusoids

POOLED, TUNED, OURS = "pooled, as it is", "pooled, fine-tuned", "ABML"
HEAD = r"output\..*"
MEASURES = ("rmse", "nll")
RATIOS = {"error_ratio": "rmse", "nll_ratio": "nll"}
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1, 2, 13  # settings were chosen on tasks of seed 3


@dataclass(frozen=True)
class Problem:
    """One comparison: its network, its tasks, the training time, and the settings of ABML for it."""

    name: str
    module: Callable[[], nn.Module]
    tasks: Callable[[int], Tasks]
    """Returns the source of tasks with a seed."""
    outputs: int
    """Numbers in the target of one observation, by which a difference in NLL is divided."""
    seconds: float
    warm_share: float
    adaptation: mp.Descent
    training: mp.MetaTraining
    stochastic: str
    tuned_lr: tuple[float, ...]
    outer_samples: int = 4
    relative_sigma: float = 0.1


@dataclass(frozen=True)
class Settings:
    """Budgets and sizes."""

    sinusoid_seconds: float = 45.0
    blobs_seconds: float = 600.0
    frame: int = 16
    width: int = 8
    tuned_noise_lr: tuple[float, ...] = (3e-4, 1e-4, 1e-3)
    """The first one is used while the step size of the weights is chosen, then all of them are compared."""
    tuned_steps: tuple[int, ...] = (5, 20, 40)
    abml_steps: tuple[int, ...] = (5, 20, 40)
    abml_factors: tuple[float, ...] = (1.0, 0.3, 3.0)
    abml_noise_factors: tuple[float, ...] = (1.0, 0.3, 3.0)
    """Further factors of the noise scale's step size."""
    validation_tasks: int = 20
    test_tasks: int = 100
    test_samples: int = 20


def sinusoid(settings: Settings) -> Problem:
    """Return the problem of sine waves, which have little in common except their shape: no warm start, all random."""
    return Problem(
        "sinusoid",
        lambda: mp.MLP(1, [40, 40], 1, activation="tanh"),
        lambda seed: Sinusoids(seed=seed),
        outputs=1,
        seconds=settings.sinusoid_seconds,
        warm_share=0.0,
        adaptation=mp.Descent(steps=5, lr=0.01, learn_lr="per_tensor", kl_weight=1e-3),
        training=mp.MetaTraining(meta_batch=25, lr=5e-3, warm_start_lr=3e-3, search_step_size=False),
        stochastic=".*",
        tuned_lr=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    )


def blobs(settings: Settings) -> Problem:
    """Return the problem of drifting blobs, whose frames have much in common.

    Nearly all of the time goes into the warm start, and the rest into scales (step sizes, sigma, noise). All parameters
    are adapted; those of the last layer are random.
    """
    return Problem(
        "drifting blobs",
        lambda: mp.UNet(4, 2, width=settings.width, levels=2),
        lambda seed: DriftingBlobs(size=settings.frame, seed=seed),
        outputs=2 * settings.frame**2,
        seconds=settings.blobs_seconds,
        warm_share=0.97,
        adaptation=mp.Descent(steps=5, lr=1e-5, learn_lr="per_tensor"),
        training=mp.MetaTraining(meta_batch=4, warm_start_lr=3e-3, scales_first=1.0),
        stochastic=HEAD,
        relative_sigma=0.01,
        tuned_lr=(1e-7, 3e-7, 1e-6, 3e-6),
    )


class Choice(NamedTuple):
    """How a learner is adapted to a task: its steps, and a size for all weights and one for the noise scale.

    Sizes are step sizes of the fine-tuned network, and factors of the learned step sizes of ABML.
    """

    size: float
    noise_size: float
    steps: int = 0


class Result(NamedTuple):
    """One method on one problem."""

    method: str
    chosen_by: str
    found: Evaluation
    fitted: Fitted
    chosen: str


def compare(problem: Problem, settings: Settings) -> list[Result]:
    """Train every method for the same time, and score all of them on the same unseen tasks."""
    tasks = problem.tasks(TRAINING_SEED)
    pooled = pooled_learner(problem)
    plainly = fit_within(pooled, tasks, problem.training, seconds=problem.seconds, warm_share=1.0)
    results = [Result(POOLED, "", _tested(pooled, problem, settings, steps=0), plainly, "")]

    def validated(trained: mp.MetaLearner, steps: Sequence[int]) -> Sequence[Row]:
        return _validated(trained, problem, settings, steps)

    tunings = choose(
        lambda tuning: validated(tuned_learner(pooled, tuning), (0, *settings.tuned_steps)),
        problem.tuned_lr,
        settings.tuned_noise_lr,
    )
    for measure, tuning in tunings.items():
        found = _tested(tuned_learner(pooled, tuning), problem, settings, steps=tuning.steps)
        text = f"{tuning.steps} steps, lr {tuning.size:g}, noise {tuning.noise_size:g}"
        results.append(Result(TUNED, measure, found, plainly, text))
    learner = meta_learner(problem)
    fitted = fit_within(learner, tasks, problem.training, seconds=problem.seconds, warm_share=problem.warm_share)
    paces = choose(
        lambda pace: validated(paced_learner(learner, pace), settings.abml_steps),
        settings.abml_factors,
        settings.abml_noise_factors,
    )
    for measure, pace in paces.items():
        found = _tested(paced_learner(learner, pace), problem, settings, steps=pace.steps)
        text = f"{pace.steps} steps, learned sizes x {pace.size:g}, noise x {pace.size * pace.noise_size:g}"
        results.append(Result(OURS, measure, found, fitted, text))
    return results


def meta_learner(problem: Problem) -> mp.MetaLearner:
    """Return ABML, whose theta is learned for the log score of the forecast."""
    torch.manual_seed(0)
    return mp.MetaLearner(
        problem.module(),
        mp.Gaussian(),
        adaptation=problem.adaptation,
        objective="predictive",
        outer_samples=problem.outer_samples,
        stochastic=problem.stochastic,
        relative_sigma=problem.relative_sigma,
        standardize=False,
    )


def pooled_learner(problem: Problem) -> mp.MetaLearner:
    """Return a plain network: a point prior that is only trained on pooled tasks."""
    torch.manual_seed(0)
    return mp.MetaLearner(
        problem.module(),
        mp.Gaussian(),
        adaptation=mp.Descent(steps=0, kl_weight=0.0),
        relative_sigma=0.0,
        standardize=False,
    )


def tuned_learner(pooled: mp.MetaLearner, tuning: Choice) -> mp.MetaLearner:
    """Return the pooled network with given step sizes of all weights and of the noise scale."""
    inner = mp.Descent(steps=tuning.steps, lr=tuning.size, learn_lr="per_tensor", kl_weight=0.0, adapt=NOISE_RHO)
    learner = mp.MetaLearner(
        pooled.network.module, pooled.likelihood, adaptation=inner, relative_sigma=0.0, standardize=False
    )
    step_sizes = [tuning.size] * 2 * len(learner.network.layout.names) + [tuning.noise_size]
    theta = pooled.theta_
    learner.theta_ = theta.replace(log_lr=theta.mu.new_tensor(step_sizes).log())
    return learner


def paced_learner(learner: mp.MetaLearner, pace: Choice) -> mp.MetaLearner:
    """Return the same prior with its learned step sizes multiplied."""
    paced = copy.copy(learner)
    theta = learner.theta_
    step_sizes = step_sizes_of(theta) + math.log(pace.size)
    step_sizes[_place_of_noise(learner)] += math.log(pace.noise_size)
    paced.theta_ = theta.replace(log_lr=step_sizes)
    return paced


def _place_of_noise(learner: mp.MetaLearner) -> int:
    """Return the index of the noise scale's step size; those of means, scales and plain parameters follow in order."""
    return 2 * len(learner.network.layout.names) + learner.problem(1).adapted_names.index(NOISE_RHO)


def choose(
    validated: Callable[[Choice], Sequence[Row]], sizes: Sequence[float], noise_sizes: Sequence[float]
) -> dict[str, Choice]:
    """Return the choices of the lowest error and of the lowest NLL on validation tasks.

    The size for the weights is searched first, then that for the noise scale. ``validated`` returns the scores of a
    learner with the sizes of a choice, one row for every number of steps.
    """
    first, *others = noise_sizes
    tried: dict[Choice, Row] = {}

    def attempt(size: float, noise_size: float) -> None:
        choice = Choice(size, noise_size)
        tried.update({choice._replace(steps=row["steps"]): row for row in validated(choice)})

    for size in sizes:
        attempt(size, first)
    for size in {_best(tried, measure).size for measure in MEASURES}:
        for noise_size in others:
            attempt(size, noise_size)
    return {measure: _best(tried, measure) for measure in MEASURES}


def _best(tried: Mapping[Choice, Row], measure: str) -> Choice:
    """Return the choice of the lowest score among those without a failed task."""
    finite = [choice for choice, row in tried.items() if not row["failed"]]
    return min(finite, key=lambda choice: tried[choice][measure])


def _validated(learner: mp.MetaLearner, problem: Problem, settings: Settings, steps: Sequence[int]) -> Sequence[Row]:
    tasks = first_tasks(problem.tasks(VALIDATION_SEED), settings.validation_tasks)
    samples = 2 if learner.relative_sigma == 0 else settings.test_samples  # the samples of a point are all the same
    try:
        return learner.evaluate(tasks, shots=(None,), steps=steps, samples=samples, progress=False).rows
    except FloatingPointError:  # not a single task in any cell
        return []


def _tested(learner: mp.MetaLearner, problem: Problem, settings: Settings, *, steps: int) -> Evaluation:
    tasks = first_tasks(problem.tasks(TEST_SEED), settings.test_tasks)
    return learner.evaluate(tasks, shots=(None,), steps=(steps,), samples=settings.test_samples, progress=False)


def row_of(problem: Problem, result: Result, rivals: Mapping[str, Result]) -> Row:
    """Return a method's scores, and its paired differences to the fine-tuned networks chosen by each measure."""
    found, fitted = result.found.rows[0], result.fitted
    row: Row = {"problem": problem.name, "method": result.method, "chosen_by": result.chosen_by}
    row |= {key: found[key] for key in ("rmse", "rmse_se", "nll", "nll_se", "coverage_90", "crps", "tasks", "failed")}
    for measure, rival in rivals.items():
        row |= mean_row(f"{measure}_minus_tuned", paired_differences(result.found, rival.found, measure))
    row["error_ratio"] = found["rmse"] / rivals["rmse"].found.rows[0]["rmse"]
    row["nll_ratio"] = math.exp(row["nll_minus_tuned"] / problem.outputs)
    return row | {
        "training_seconds": fitted.seconds,
        "warm_steps": fitted.warm_start,
        "meta_steps": fitted.meta_steps,
        "adaptation": result.chosen,
    }


def paired_differences(one: Evaluation, other: Evaluation, measure: str) -> list[float]:
    """Return the differences of two methods on the tasks that both were scored on."""
    theirs = {row["index"]: row[measure] for row in other.per_task}
    return [row[measure] - theirs[row["index"]] for row in one.per_task if row["index"] in theirs]


def headline_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the ratios of ABML to the fine-tuned network chosen by the same measure: by problem, and the worst."""
    headline = {}
    for ratio, measure in RATIOS.items():
        ours = {row["problem"]: row[ratio] for row in rows if (row["method"], row["chosen_by"]) == (OURS, measure)}
        headline[f"{ratio}_finetuned"] = max(ours.values())
        headline |= {f"{ratio}_finetuned_{name.replace(' ', '_')}": value for name, value in ours.items()}
    return headline


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Compare the methods on sine waves and on drifting blobs."""
    settings = context.settings
    rows: list[Row] = []
    with one_thread():
        for problem in (sinusoid(settings), blobs(settings)):
            results = compare(problem, settings)
            rivals = {result.chosen_by: result for result in results if result.method == TUNED}
            rows += [row_of(problem, result, rivals) for result in results]
    notes = [
        "every method has the same training time on one core; scores are means over unseen tasks, adapted to five "
        "examples, and _se their standard errors",
        "chosen_by: the measure on validation tasks by which numbers of steps and step sizes were chosen; the headline "
        "compares methods chosen by the same",
        "error_ratio: rmse over that of the fine-tuned network chosen by rmse",
        "nll_ratio: exp of the mean difference in nll per target value to the fine-tuned network chosen by nll: "
        "how many times less likely it makes a target value",
        "_minus_tuned: mean paired difference to the same two; below 0 is better",
        "sine waves: ABML's share of warm start is 0; blobs: nearly all, then scales alone",
    ]
    return BenchmarkResult(headline_of(rows), rows, notes)


BENCHMARK = Benchmark(
    "warmstart",
    "beside one network trained on everything and fine-tuned",
    measure,
    full=Settings(),
    quick=Settings(
        sinusoid_seconds=6.0,
        blobs_seconds=6.0,
        frame=8,
        width=4,
        tuned_noise_lr=(3e-4, 3e-3),
        tuned_steps=(5,),
        abml_steps=(5,),
        abml_factors=(1.0,),
        abml_noise_factors=(1.0,),
        validation_tasks=4,
        test_tasks=10,
        test_samples=10,
    ),
    quick_note="budgets of seconds, in which no method learns much",
)
