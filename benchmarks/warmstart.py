"""Meta-learning beside what one would do without it: train one network on everything, fine-tune it on the task.

That competitor is a special case of ours (sigma zero, a step size by hand), so at the same training time ours should
not lose to it. It is given its best: step sizes (of the weights and of the noise scale) and number of steps are chosen
on validation tasks, for the error and for the likelihood separately. So are the number of steps of ABML and factors of
its learned step sizes (of the weights and of the noise scale): it learns them for few steps, and more but smaller ones
may go further.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from benchmarks.budget import Fitted, fit_within, one_thread
from benchmarks.result import BenchResult, Row
from metaprior import scores
from metaprior.evaluation import Evaluation
from metaprior.likelihoods import NOISE, Gaussian
from metaprior.metagrad.problem import InnerLoop
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.mlp import MLP
from metaprior.models.unet import UNet
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.sinusoids import Sinusoids
from metaprior.tasks.source import Tasks
from metaprior.tasks.task import Task
from metaprior.training.settings import MetaTraining
from metaprior.training.step_size_search import step_sizes_of

POOLED, TUNED, OURS = "pooled, as it is", "pooled, fine-tuned", "ABML"
HEAD = r"output\..*"
MEASURES = ("rmse", "nll")
RATIOS = {"error_ratio": "rmse", "nll_ratio": "nll"}
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1, 2, 13  # settings were chosen on tasks of seed 3


@dataclass(frozen=True)
class Problem:
    """One comparison: network, tasks, training time, and what is chosen for ABML on it."""

    name: str
    module: Callable[[], nn.Module]
    tasks: Callable[[int], Tasks]
    """The source of tasks with a seed."""
    outputs: int
    """Numbers in one observation's target, which a difference in NLL is divided by."""
    seconds: float
    warm_share: float
    inner: InnerLoop
    training: MetaTraining
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
    """The first one while the step size of the weights is chosen, then all of them."""
    tuned_steps: tuple[int, ...] = (5, 20, 40)
    abml_steps: tuple[int, ...] = (5, 20, 40)
    abml_factors: tuple[float, ...] = (1.0, 0.3, 3.0)
    abml_noise_factors: tuple[float, ...] = (1.0, 0.3, 3.0)
    """Of the noise scale's step size, beside the factor of all."""
    validation_tasks: int = 20
    test_tasks: int = 100
    test_samples: int = 20


QUICK = Settings(
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
)


def sinusoid(settings: Settings) -> Problem:
    """Waves have next to nothing in common but their shape: no warm start, everything random."""
    return Problem(
        "sinusoid",
        lambda: MLP(1, [40, 40], 1, activation="tanh"),
        lambda seed: Sinusoids(seed=seed),
        outputs=1,
        seconds=settings.sinusoid_seconds,
        warm_share=0.0,
        inner=InnerLoop(steps=5, lr=0.01, learn_lr="per_tensor", kl_weight=1e-3),
        training=MetaTraining(meta_batch=25, lr=5e-3, warm_start_lr=3e-3, search_step_size=False),
        stochastic=".*",
        tuned_lr=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    )


def blobs(settings: Settings) -> Problem:
    """Frames have much in common: nearly all of the time goes into the warm start, and what is left into scales (step
    sizes, sigma, noise). All parameters adapt, the last layer's are random.
    """
    return Problem(
        "drifting blobs",
        lambda: UNet(4, 2, width=settings.width, levels=2),
        lambda seed: DriftingBlobs(size=settings.frame, seed=seed),
        outputs=2 * settings.frame**2,
        seconds=settings.blobs_seconds,
        warm_share=0.97,
        inner=InnerLoop(steps=5, lr=1e-5, learn_lr="per_tensor"),
        training=MetaTraining(meta_batch=4, warm_start_lr=3e-3, scales_first=1.0),
        stochastic=HEAD,
        relative_sigma=0.01,
        tuned_lr=(1e-7, 3e-7, 1e-6, 3e-6),
    )


class Result(NamedTuple):
    """One method on one problem."""

    method: str
    chosen_by: str
    found: Evaluation
    fitted: Fitted
    chosen: str


def compare(problem: Problem, settings: Settings) -> list[Result]:
    """Every method, at the same training time, on the same unseen tasks."""
    tasks = problem.tasks(TRAINING_SEED)
    pooled = pooled_learner(problem)
    plainly = fit_within(pooled, tasks, problem.training, seconds=problem.seconds, warm_share=1.0)
    results = [Result(POOLED, "", _tested(pooled, problem, settings, steps=0), plainly, "")]
    for measure, tuning in tunings(pooled, problem, settings).items():
        found = _tested(tuned_learner(pooled, tuning), problem, settings, steps=tuning.steps)
        results.append(Result(TUNED, measure, found, plainly, str(tuning)))
    learner = meta_learner(problem)
    fitted = fit_within(learner, tasks, problem.training, seconds=problem.seconds, warm_share=problem.warm_share)
    for measure, pace in paces(learner, problem, settings).items():
        found = _tested(paced_learner(learner, pace), problem, settings, steps=pace.steps)
        results.append(Result(OURS, measure, found, fitted, str(pace)))
    return results


def meta_learner(problem: Problem) -> MetaLearner:
    """ABML: the log score of the forecast is what theta is learned for."""
    torch.manual_seed(0)
    return MetaLearner(
        problem.module(),
        Gaussian(),
        inner=problem.inner,
        objective="predictive",
        outer_samples=problem.outer_samples,
        stochastic=problem.stochastic,
        relative_sigma=problem.relative_sigma,
    )


def pooled_learner(problem: Problem) -> MetaLearner:
    """A plain network: a point prior that is only ever trained on pooled tasks."""
    torch.manual_seed(0)
    return MetaLearner(problem.module(), Gaussian(), inner=InnerLoop(steps=0, kl_weight=0.0), relative_sigma=0.0)


class Tuning(NamedTuple):
    """How the plain network is fine-tuned: all its weights, and the noise scale with a step size of its own."""

    lr: float
    noise_lr: float
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps, lr {self.lr:g}, noise {self.noise_lr:g}"


def tuned_learner(pooled: MetaLearner, tuning: Tuning) -> MetaLearner:
    """The pooled network with given step sizes."""
    inner = InnerLoop(steps=tuning.steps, lr=tuning.lr, learn_lr="per_tensor", kl_weight=0.0, adapt=NOISE)
    learner = MetaLearner(pooled.network.module, pooled.likelihood, inner=inner, relative_sigma=0.0)
    step_sizes = [tuning.lr] * 2 * len(learner.network.layout.names) + [tuning.noise_lr]
    theta = pooled.theta_
    learner.theta_ = theta.replace(log_lr=theta.mu.new_tensor(step_sizes).log())
    return learner


def tunings(pooled: MetaLearner, problem: Problem, settings: Settings) -> dict[str, Tuning]:
    """The tunings of the lowest error and of the lowest NLL on validation tasks.

    First the step size of the weights (and the number of steps), then that of the noise scale (and again the number).
    """
    first, *others = settings.tuned_noise_lr
    tried: dict[Tuning, Row] = {}

    def attempt(lr: float, noise_lr: float) -> None:
        learner = tuned_learner(pooled, Tuning(lr, noise_lr, 0))
        for row in _validated(learner, problem, settings, (0, *settings.tuned_steps)):
            tried[Tuning(lr, noise_lr, row["steps"])] = row

    for lr in problem.tuned_lr:
        attempt(lr, first)
    for lr in {_best(tried, measure).lr for measure in MEASURES}:
        for noise_lr in others:
            attempt(lr, noise_lr)
    return {measure: _best(tried, measure) for measure in MEASURES}


class Pace(NamedTuple):
    """How a learned prior is adapted: the number of steps, and what its step sizes are multiplied with."""

    steps: int
    factor: float
    noise_factor: float = 1.0
    """Of the noise scale's step size, beside the factor of all."""

    def __str__(self) -> str:
        return f"{self.steps} steps, learned sizes x {self.factor:g}, noise x {self.factor * self.noise_factor:g}"


def paced_learner(learner: MetaLearner, pace: Pace) -> MetaLearner:
    """The same prior with other step sizes."""
    paced = copy.copy(learner)
    theta = learner.theta_
    step_sizes = step_sizes_of(theta) + math.log(pace.factor)
    step_sizes[_place_of_noise(learner)] += math.log(pace.noise_factor)
    paced.theta_ = theta.replace(log_lr=step_sizes)
    return paced


def _place_of_noise(learner: MetaLearner) -> int:
    """Where the noise scale's step size is among the learned ones: means and scales come first, then what is plain."""
    return 2 * len(learner.network.layout.names) + learner.problem(1).adapted_names.index(NOISE)


def paces(learner: MetaLearner, problem: Problem, settings: Settings) -> dict[str, Pace]:
    """The paces of the lowest error and of the lowest NLL on validation tasks, found as ``tunings`` are."""
    first, *others = settings.abml_noise_factors
    tried: dict[Pace, Row] = {}

    def attempt(factor: float, noise_factor: float) -> None:
        paced = paced_learner(learner, Pace(0, factor, noise_factor))
        for row in _validated(paced, problem, settings, settings.abml_steps):
            tried[Pace(row["steps"], factor, noise_factor)] = row

    for factor in settings.abml_factors:
        attempt(factor, first)
    for factor in {_best(tried, measure).factor for measure in MEASURES}:
        for noise_factor in others:
            attempt(factor, noise_factor)
    return {measure: _best(tried, measure) for measure in MEASURES}


Choice = TypeVar("Choice", Tuning, Pace)


def _best(tried: Mapping[Choice, Row], measure: str) -> Choice:
    """The choice of the lowest score; one at which a task failed is out."""
    finite = [choice for choice, row in tried.items() if not row["failed"]]
    return min(finite, key=lambda choice: tried[choice][measure])


def _validated(learner: MetaLearner, problem: Problem, settings: Settings, steps: Sequence[int]) -> Sequence[Row]:
    source = problem.tasks(VALIDATION_SEED)
    tasks = [source[index] for index in range(settings.validation_tasks)]
    samples = 2 if learner.relative_sigma == 0 else settings.test_samples  # the samples of a point are all the same
    try:
        return learner.evaluate(tasks, shots=(None,), steps=steps, samples=samples, progress=False).rows
    except FloatingPointError:  # not a single task in any cell
        return []


def _tested(learner: MetaLearner, problem: Problem, settings: Settings, *, steps: int) -> Evaluation:
    source = problem.tasks(TEST_SEED)
    tasks: list[Task] = [source[index] for index in range(settings.test_tasks)]
    return learner.evaluate(tasks, shots=(None,), steps=(steps,), samples=settings.test_samples, progress=False)


def row_of(problem: Problem, result: Result, rivals: Mapping[str, Result]) -> Row:
    """A method's scores, and how it stands to the fine-tuned network (by what that was chosen for) task by task."""
    found, fitted = result.found.rows[0], result.fitted
    row: Row = {"problem": problem.name, "method": result.method, "chosen_by": result.chosen_by}
    row |= {key: found[key] for key in ("rmse", "rmse_se", "nll", "nll_se", "coverage_90", "crps", "tasks", "failed")}
    for measure, rival in rivals.items():
        difference = paired_difference(result.found, rival.found, measure)
        row |= {f"{measure}_minus_tuned": difference.mean, f"{measure}_minus_tuned_se": difference.standard_error}
    row["error_ratio"] = found["rmse"] / rivals["rmse"].found.rows[0]["rmse"]
    row["nll_ratio"] = math.exp(row["nll_minus_tuned"] / problem.outputs)
    return row | {
        "training_seconds": fitted.seconds,
        "warm_steps": fitted.warm_start,
        "meta_steps": fitted.meta_steps,
        "adaptation": result.chosen,
    }


class Difference(NamedTuple):
    """Mean over tasks of a difference, and its standard error."""

    mean: float
    standard_error: float


def paired_difference(one: Evaluation, other: Evaluation, measure: str) -> Difference:
    """Of two methods on the same tasks; a task that one of them failed on is left out."""
    theirs = {row["index"]: row[measure] for row in other.per_task}
    pairs = [row[measure] - theirs[row["index"]] for row in one.per_task if row["index"] in theirs]
    values = torch.tensor(pairs, dtype=torch.float64)
    return Difference(float(values.mean()), scores.standard_error(values))


def headline_of(rows: Sequence[Row]) -> dict[str, float]:
    """Ratios of ours to the fine-tuned network, both chosen for a measure: by problem, and the worst. 1 is a draw."""
    headline = {}
    for ratio, measure in RATIOS.items():
        ours = {row["problem"]: row[ratio] for row in rows if (row["method"], row["chosen_by"]) == (OURS, measure)}
        headline[f"{ratio}_finetuned"] = max(ours.values())
        headline |= {f"{ratio}_finetuned_{name.replace(' ', '_')}": value for name, value in ours.items()}
    return headline


def run(*, quick: bool = False, settings: Settings | None = None) -> BenchResult:
    """Sine waves and drifting blobs."""
    settings = settings or (QUICK if quick else Settings())
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
        *["--quick: budgets of seconds, in which nobody learns much"] * quick,
    ]
    return BenchResult(headline_of(rows), rows, {"bench": "warmstart", "quick": quick, **vars(settings)}, notes)
