"""How much a training depends on the configured step size: the same training from six values, 1e-4 to 1.

Every training is run with the safety nets (a searched initial step size, damped inner steps), which are the default,
and without. Step sizes are learned in both, and a meta-batch without a finite task halves them in both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks, one_thread
from benchmarks.common.result import BenchmarkResult, Row
from metaprior.likelihoods import NOISE_RHO
from metaprior.progress import track
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.task import Tasks
from metaprior.tasks.waves import Sinusoids
from metaprior.training.epoch import run_steps
from metaprior.training.trainer import Trainer

HEAD = r"(decoder2|output)\..*"
TRAINING_SEED, TEST_SEED = 1, 2
WITH, WITHOUT = "on", "off"


@dataclass(frozen=True)
class Settings:
    """The same settings for every step size."""

    sinusoid_steps: int = 250
    sinusoid_lr: float = 5e-3
    unet_warm_start: int = 200
    unet_steps: int = 40
    unet_lr: float = 1e-3
    meta_batch: int = 4
    inner_steps: int = 5
    kl_weight: float = 0.01
    outer_samples: int = 4
    frame: int = 16
    width: int = 8
    test_tasks: int = 50
    test_samples: int = 10
    sweep: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 2e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Case:
    """A problem: its network, its tasks, which parameters are random, and how long it is trained."""

    name: str
    module: Callable[[], nn.Module]
    tasks: Callable[[int], Tasks]
    """Returns the source of tasks with a seed."""
    meta_steps: int
    lr: float
    warm_start: int = 0
    stochastic: str = ".*"


def cases(settings: Settings) -> list[Case]:
    """Return sine waves with all parameters random, and drifting blobs with a random head after a warm start."""
    frame, width = settings.frame, settings.width
    return [
        Case(
            "sinusoid",
            lambda: mp.MLP(1, [40, 40], 1, activation="tanh"),
            lambda seed: Sinusoids(seed=seed),
            settings.sinusoid_steps,
            settings.sinusoid_lr,
        ),
        Case(
            "unet",
            lambda: mp.UNet(4, 2, width=width, levels=2),
            lambda seed: DriftingBlobs(size=frame, seed=seed),
            settings.unet_steps,
            settings.unet_lr,
            warm_start=settings.unet_warm_start,
            stochastic=HEAD,
        ),
    ]


def learner_for(case: Case, lr: float, settings: Settings, *, nets: bool) -> mp.MetaLearner:
    """Return ABML that starts from a given step size."""
    torch.manual_seed(0)
    inner = mp.Descent(
        steps=settings.inner_steps,
        lr=lr,
        learn_lr="per_tensor",
        kl_weight=settings.kl_weight,
        adapt=NOISE_RHO,
        damped=nets,
    )
    return mp.MetaLearner(
        case.module(),
        mp.Gaussian(),
        adaptation=inner,
        objective="predictive",
        outer_samples=settings.outer_samples,
        stochastic=case.stochastic,
        standardize=False,
    )


def train(case: Case, lr: float, settings: Settings, *, nets: bool) -> Row:
    """Train once, and return the scores on unseen tasks (NaN where no task could be scored)."""
    learner = learner_for(case, lr, settings, nets=nets)
    training = mp.MetaTraining(
        epochs=1,
        tasks_per_epoch=case.meta_steps * settings.meta_batch,
        meta_batch=settings.meta_batch,
        lr=case.lr,
        warm_start=case.warm_start,
        search_step_size=nets,
    )
    trainer = learner.trainer(case.tasks(TRAINING_SEED), training)
    stopped = _stops_early(trainer)
    learner.theta_ = trainer.theta.detached()
    return {
        "problem": case.name,
        "nets": WITH if nets else WITHOUT,
        "inner_lr": lr,
        **_scores(learner, case, settings),
        "bad_tasks": trainer.progress.bad_tasks,
        "halvings": trainer.progress.halvings,
        "steps_done": trainer.progress.step,
        "stopped": "yes" if stopped else "no",
        "finite_theta": "yes" if _is_finite(trainer) else "no",
    }


def _stops_early(trainer: Trainer) -> bool:
    """Return whether the training stopped early because of too many bad tasks in a row."""
    try:
        run_steps(trainer, trainer.settings.steps)
    except mp.TrainingDiverged:
        return True
    return False


def _is_finite(trainer: Trainer) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in trainer.theta.tensors())


def _scores(learner: mp.MetaLearner, case: Case, settings: Settings) -> Row:
    tasks = first_tasks(case.tasks(TEST_SEED), settings.test_tasks)
    try:
        found = learner.evaluate(tasks, shots=(None,), samples=settings.test_samples, progress=False).rows[0]
    except FloatingPointError:
        return {**dict.fromkeys(("rmse", "rmse_se", "nll", "nll_se"), math.nan), "failed": settings.test_tasks}
    return {name: found[name] for name in ("rmse", "rmse_se", "nll", "nll_se", "failed")}


def worst_over_best(rows: Sequence[Row], problem: str, nets: str = WITH) -> float:
    """Return the largest error of the sweep over the smallest; infinite if a task could not be scored."""
    chosen = [row for row in rows if (row["problem"], row["nets"]) == (problem, nets)]
    if any(row["failed"] for row in chosen):
        return math.inf
    errors = [float(row["rmse"]) for row in chosen]
    return max(errors) / min(errors)


def headline_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the spread of errors by problem, and the numbers of trainings that diverged or stopped early."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    headline = {f"worst_over_best_{problem}": worst_over_best(rows, problem) for problem in problems}
    headline |= {f"worst_over_best_{problem}_without": worst_over_best(rows, problem, WITHOUT) for problem in problems}
    for name, column, bad in (("non_finite_theta", "finite_theta", "no"), ("stopped", "stopped", "yes")):
        headline[name] = sum(row[column] == bad for row in rows if row["nets"] == WITH)
        headline[f"{name}_without"] = sum(row[column] == bad for row in rows if row["nets"] == WITHOUT)
    return headline


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Train both problems from every step size, with the safety nets and without."""
    settings = context.settings
    jobs = [(case, lr, nets) for nets in (True, False) for case in cases(settings) for lr in settings.sweep]
    with one_thread():
        shown = track(jobs, "step sizes", unit="trainings", show=True)
        rows = [train(case, lr, settings, nets=nets) for case, lr, nets in shown]
    notes = [
        "rmse and nll: means over unseen tasks, adapted to five examples; failed: tasks without a finite forecast",
        "nets on: search_step_size=True and damped=True, the defaults; off: both False. worst_over_best is infinite "
        "(null in JSON) where a task could not be scored",
        "powers of ten search the same grid of step sizes, so their trainings are bitwise identical; 0.02 lies between",
        "stopped: the training gave up after 40 bad tasks in a row; its theta is the last good one, and is scored",
    ]
    return BenchmarkResult(headline_of(rows), rows, notes)


BENCHMARK = Benchmark(
    "robustness",
    "the same training from step sizes 1e-4 to 1, with the safety nets and without",
    measure,
    full=Settings(),
    quick=Settings(sinusoid_steps=30, unet_warm_start=20, unet_steps=5, test_tasks=5, sweep=(1e-4, 2e-2, 1.0)),
    quick_note="trainings too short to have settled, so the spread is that of unfinished ones",
)
