"""Meta-learning beside what one would do without it: train one network on everything, fine-tune it on the task.

That competitor is a special case of ours (sigma zero, a step size by hand), so at the same training time ours should
not lose to it. It is given its best: step sizes (of the weights and of the noise scale) and number of steps are chosen
on validation tasks, for the error and for the likelihood separately.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from metaprior import scores
from metaprior.bench.budget import Fitted, fit_within, one_thread
from metaprior.bench.result import BenchResult, Row
from metaprior.evaluation import Evaluation
from metaprior.likelihoods import NOISE, Gaussian
from metaprior.metagrad.problem import LOG_LR, InnerLoop
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.mlp import MLP
from metaprior.models.unet import UNet
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.sinusoids import Sinusoids
from metaprior.tasks.source import Tasks
from metaprior.tasks.task import Task
from metaprior.training.settings import MetaTraining

POOLED, TUNED_ERROR, TUNED_NLL = "pooled, as it is", "pooled, fine-tuned (best rmse)", "pooled, fine-tuned (best nll)"
OURS, SCRATCH = "ABML", "ABML from scratch"
HEAD = r"(decoder2|output)\..*"
TRAINING_SEED, VALIDATION_SEED, TEST_SEED = 1, 2, 3


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

    sinusoid_seconds: float = 120.0
    blobs_seconds: float = 180.0
    frame: int = 16
    width: int = 8
    tuned_noise_lr: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)
    tuned_steps: tuple[int, ...] = (1, 5, 10, 20)
    validation_tasks: int = 30
    test_tasks: int = 200
    test_samples: int = 20


QUICK = Settings(
    sinusoid_seconds=6.0,
    blobs_seconds=6.0,
    tuned_noise_lr=(1e-4, 1e-2),
    tuned_steps=(1, 10),
    validation_tasks=4,
    test_tasks=10,
    test_samples=10,
)


def sinusoid(settings: Settings) -> Problem:
    """Waves have next to nothing in common but their shape: no warm start, everything random."""
    return Problem(
        "sinusoid",
        lambda: MLP(1, [40, 40], 1, activation="silu"),
        lambda seed: Sinusoids(seed=seed),
        outputs=1,
        seconds=settings.sinusoid_seconds,
        warm_share=0.0,
        inner=InnerLoop(steps=5, learn_lr="per_tensor", kl_weight=0.01),
        training=MetaTraining(meta_batch=25, lr=5e-3, warm_start_lr=3e-3),
        stochastic=".*",
        tuned_lr=(1e-4, 1e-3, 1e-2, 3e-2, 1e-1),
    )


def blobs(settings: Settings) -> Problem:
    """Frames have much in common: most of the time goes into the warm start, and the head alone is random."""
    return Problem(
        "drifting blobs",
        lambda: UNet(4, 2, width=settings.width, levels=2),
        lambda seed: DriftingBlobs(size=settings.frame, seed=seed),
        outputs=2 * settings.frame**2,
        seconds=settings.blobs_seconds,
        warm_share=0.7,
        inner=InnerLoop(steps=5, lr=1e-5, learn_lr="per_tensor", kl_weight=1.0, adapt=NOISE),
        training=MetaTraining(meta_batch=4, lr=3e-4, warm_start_lr=3e-3),
        stochastic=HEAD,
        tuned_lr=(1e-7, 1e-6, 1e-5, 1e-4, 1e-3),
    )


class Result(NamedTuple):
    """One method on one problem."""

    method: str
    found: Evaluation
    fitted: Fitted
    chosen: str


def compare(problem: Problem, settings: Settings) -> list[Result]:
    """Every method, at the same training time, on the same unseen tasks."""
    tasks = problem.tasks(TRAINING_SEED)
    pooled = pooled_learner(problem)
    plainly = fit_within(pooled, tasks, problem.training, seconds=problem.seconds, warm_share=1.0)
    results = [Result(POOLED, _tested(pooled, problem, settings, steps=0), plainly, "")]
    for method, measure in ((TUNED_ERROR, "rmse"), (TUNED_NLL, "nll")):
        best = best_tuning(pooled, problem, settings, measure)
        tuned = tuned_learner(pooled, best)
        results.append(Result(method, _tested(tuned, problem, settings, steps=best.steps), plainly, str(best)))
    for method, share in ((OURS, problem.warm_share), (SCRATCH, 0.0)):
        learner = meta_learner(problem)
        if method == SCRATCH and share == problem.warm_share:
            continue  # the same training
        fitted = fit_within(learner, tasks, problem.training, seconds=problem.seconds, warm_share=share)
        steps = learner.inner.steps
        results.append(Result(method, _tested(learner, problem, settings, steps=steps), fitted, f"{steps} steps"))
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
    learner.theta_ = theta._replace(plain={**theta.plain, LOG_LR: theta.mu.new_tensor(step_sizes).log()})
    return learner


def best_tuning(pooled: MetaLearner, problem: Problem, settings: Settings, measure: str) -> Tuning:
    """The tuning of the lowest score on validation tasks; one at which a task is not finite is out."""
    source = problem.tasks(VALIDATION_SEED)
    tasks = [source[index] for index in range(settings.validation_tasks)]
    best, lowest = Tuning(problem.tuned_lr[0], settings.tuned_noise_lr[0], 0), math.inf
    for lr, noise_lr in itertools.product(problem.tuned_lr, settings.tuned_noise_lr):
        learner = tuned_learner(pooled, Tuning(lr, noise_lr, 0))
        try:
            found = learner.evaluate(tasks, shots=(None,), steps=(0, *settings.tuned_steps), samples=2, progress=False)
        except FloatingPointError:
            continue
        for row in found.rows:
            if not row["failed"] and row[measure] < lowest:
                best, lowest = Tuning(lr, noise_lr, row["steps"]), row[measure]
    return best


def _tested(learner: MetaLearner, problem: Problem, settings: Settings, *, steps: int) -> Evaluation:
    source = problem.tasks(TEST_SEED)
    tasks: list[Task] = [source[index] for index in range(settings.test_tasks)]
    return learner.evaluate(tasks, shots=(None,), steps=(steps,), samples=settings.test_samples, progress=False)


def row_of(problem: Problem, result: Result, rivals: Sequence[Result]) -> Row:
    """A method's scores, and how it stands to the fine-tuned network (``rivals``) task by task."""
    found, fitted = result.found.rows[0], result.fitted
    row: Row = {"problem": problem.name, "method": result.method}
    row |= {key: found[key] for key in ("rmse", "rmse_se", "nll", "nll_se", "coverage_90", "crps", "tasks", "failed")}
    for measure, rival in zip(("rmse", "nll"), rivals, strict=True):
        difference = paired_difference(result.found, rival.found, measure)
        row |= {f"{measure}_minus_tuned": difference.mean, f"{measure}_minus_tuned_se": difference.standard_error}
    row["error_ratio"] = found["rmse"] / rivals[0].found.rows[0]["rmse"]
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
    """Ratios of ours to the fine-tuned network: by problem, and the worst. 1 is a draw."""
    ours = [row for row in rows if row["method"] == OURS]
    headline = {
        f"{ratio}_finetuned_{row['problem'].replace(' ', '_')}": row[ratio]
        for ratio in ("error_ratio", "nll_ratio")
        for row in ours
    }
    worst = {f"{ratio}_finetuned": max(row[ratio] for row in ours) for ratio in ("error_ratio", "nll_ratio")}
    return {**worst, **headline}


def run(*, quick: bool = False, settings: Settings | None = None) -> BenchResult:
    """Sine waves and drifting blobs."""
    settings = settings or (QUICK if quick else Settings())
    rows: list[Row] = []
    with one_thread():
        for problem in (sinusoid(settings), blobs(settings)):
            results = compare(problem, settings)
            rivals = [result for result in results if result.method in (TUNED_ERROR, TUNED_NLL)]
            rows += [row_of(problem, result, rivals) for result in results]
    notes = [
        "every method has the same training time on one core; scores are means over unseen tasks, adapted to five "
        "examples, and _se their standard errors",
        "error_ratio: rmse over that of the fine-tuned network with the best rmse",
        "nll_ratio: exp of the mean difference in nll per target value to the fine-tuned network with the best nll: "
        "how many times less likely it makes a target value",
        "_minus_tuned: mean paired difference to the same two; below 0 is better",
        "sine waves: ABML's share of warm start is 0, so ABML is ABML from scratch",
        *["--quick: budgets of seconds, in which nobody learns much"] * quick,
    ]
    return BenchResult(headline_of(rows), rows, {"bench": "warmstart", "quick": quick, **vars(settings)}, notes)
