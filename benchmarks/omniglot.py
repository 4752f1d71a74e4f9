"""Omniglot, five classes from one and from five examples each: ABML, MAML, ANIL, and Bayes by Backprop alone.

All methods are the same code with the same network, tasks and time. MAML adapts all layers, as published; ABML adapts
the last one, and so does ANIL ("almost no inner loop", Raghu et al. 2020), which is ABML with a point prior. Bayes by
Backprop sees only the support set of the test task, so it shows what the other tasks are worth.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks, fit_within
from benchmarks.common.data import OMNIGLOT
from benchmarks.common.omniglot import Part, omniglot
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from metaprior import scores
from metaprior.evaluation import finite_forecast
from metaprior.forecasts import CategoricalForecast
from metaprior.models.small import Conv4
from metaprior.posterior import Predictive
from metaprior.scores import Reliability
from metaprior.tasks.few_shot import FewShotClasses

ABML, MAML, ANIL, ALONE = "ABML", "MAML", "ANIL (MAML of the last layer)", "Bayes by Backprop, task alone"
WAYS = 5
SHOTS = (5, 1)  # the longest first, so that no core waits at the end
HEAD = r"head\..*"
MEASURES = ("accuracy", "nll")
TRAINING_SEED, TEST_SEED = 1, 2
RESAMPLES = 500
BINS = 15

PUBLISHED = {"BNN": 0.795, "MAML": 0.693, "MLAP": 0.700, "BMAML": 0.764, "PACOH-NN": 0.885}
"""Accuracy, 5-way 5-shot (Rothfuss et al. 2021, PACOH, their rerun of all five)."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """Settings that were chosen on the validation classes."""

    seconds: float = 240.0
    """CPU seconds of each method at each number of shots: to learn from tasks, or to fit all test tasks."""
    width: int = 32
    inner_steps: int = 1
    """One long step. Several steps saturate: once five examples are told apart, little is left to learn from them, so
    that forecasts of query examples, which are less alike, stay underconfident."""
    inner_lr: float = 1.0
    """Initial step size; it is learned."""
    maml_steps: int = 3
    """The last layer starts at zero, so the first step moves only that layer: a single step would be ANIL."""
    maml_lr: float = 0.4
    """Initial step size of all layers; it is learned."""
    inner_samples: int = 4
    kl_weight: float = 3e-4
    sigma: float = 0.02
    """Initial standard deviation of the last layer's weights (which start at zero)."""
    outer_samples: int = 10
    meta_batch: int = 4
    lr: float = 4e-3
    scale_lr: float = 3e-2
    train_query: int = 3
    """Query examples of a class in training."""
    test_tasks: int = 400
    test_query: int = 15
    test_samples: int = 50
    alone_lr: float = 2e-2
    alone_prior_std: float = 1.0


class TaskScore(NamedTuple):
    """One test task. ``counts`` (3, bins): confidence, right answers and labels, summed over each bin of confidence."""

    accuracy: float
    nll: float
    counts: FloatArray


class Measured(NamedTuple):
    """The scores of all test tasks (None for a failed one), and columns about the training."""

    scores: list[TaskScore | None]
    about: Row


def network(settings: Settings) -> nn.Sequential:
    """Return Conv4 with a LayerNorm before its last layer, with the same initial weights for every method.

    Features that passed a ReLU have most of their length in a direction that all images share. It tells no classes
    apart, but the last layer's loss is steepest along it, so it would limit the step sizes, and noise along it is a
    random preference for a class. Classes are numbered at random in every task, so the last layer starts at zero.
    """
    torch.manual_seed(0)
    *trunk, (name, head) = Conv4(classes=WAYS, width=settings.width).named_children()
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(OrderedDict([*trunk, ("norm", nn.LayerNorm(settings.width)), (name, head)]))


def tasks_of(folder: Path, part: Part, *, shots: int, k_query: int, seed: int) -> FewShotClasses:
    """Return tasks from the classes of one part of Omniglot."""
    return FewShotClasses(*omniglot(folder, part), ways=WAYS, k_shot=shots, k_query=k_query, seed=seed)


def learner(method: str, settings: Settings) -> mp.MetaLearner:
    """Return ABML, or MAML or ANIL (a point prior, no KL, one sample). Each tensor's step size is learned."""
    inner = mp.Descent(
        steps=settings.inner_steps,
        lr=settings.inner_lr,
        learn_lr="per_tensor",
        kl_weight=settings.kl_weight,
        samples=settings.inner_samples,
        adapt=None,
    )
    if method in (MAML, ANIL):
        inner = replace(inner, kl_weight=0.0, samples=1)
        if method == MAML:
            inner = replace(inner, steps=settings.maml_steps, lr=settings.maml_lr, adapt=".*")
        return mp.MetaLearner(
            network(settings),
            mp.Categorical(),
            adaptation=inner,
            objective="query",
            stochastic=HEAD,
            relative_sigma=0.0,
        )
    return mp.MetaLearner(
        network(settings),
        mp.Categorical(),
        adaptation=inner,
        objective="predictive",
        outer_samples=settings.outer_samples,
        stochastic=HEAD,
        relative_sigma=settings.sigma,  # of means that are all zero it is sigma itself
    )


def measure_method(context: Context[Settings], method: str, shots: int) -> Measured:
    """Train a method that learns from tasks, then adapt to every test task and score its query set."""
    settings = context.settings
    source = tasks_of(context.data, "test", shots=shots, k_query=settings.test_query, seed=TEST_SEED)
    tasks = first_tasks(source, settings.test_tasks)
    if method == ALONE:
        return _alone(tasks, settings)
    trained = learner(method, settings)
    # The features are of no use at first, so scales cannot be learned, or step sizes searched, before the means.
    training = mp.MetaTraining(
        meta_batch=settings.meta_batch,
        lr=settings.lr,
        scale_lr=settings.scale_lr,
        scales_first=0.0,
        search_step_size=False,
    )
    source = tasks_of(context.data, "train", shots=shots, k_query=settings.train_query, seed=TRAINING_SEED)
    fitted = fit_within(trained, source, training, seconds=settings.seconds, progress=False)
    found = score_tasks(trained.adapt, tasks, settings.test_samples)
    return Measured(
        found, {"seconds": fitted.seconds, "steps": fitted.meta_steps, "bad_training_tasks": fitted.bad_tasks}
    )


def _alone(tasks: Sequence[mp.Task], settings: Settings) -> Measured:
    """Fit Bayes by Backprop to each test task for its share of the time, with a random last layer.

    With all 28,000 weights random their KL outweighs 25 images, the fit stays at the prior, and accuracy is chance.
    """
    module = network(settings)

    def fit(support: mp.Examples, steps: int) -> Predictive:
        method = mp.BayesByBackprop(
            module, mp.Categorical(), prior=mp.NormalPrior(settings.alone_prior_std), stochastic=HEAD
        )
        return method.fit(*support, epochs=steps, lr=settings.alone_lr, samples=1, progress=False).posterior_

    steps = _steps_within(settings.seconds / len(tasks), lambda count: fit(tasks[0].support, count))
    started = time.process_time()
    found = score_tasks(lambda support: fit(support, steps), tasks, settings.test_samples)
    return Measured(found, {"seconds": time.process_time() - started, "steps": steps})


def _steps_within(seconds: float, run_steps: Callable[[int], object], trial: int = 10) -> int:
    run_steps(1)  # what happens once is not measured
    started = time.process_time()
    run_steps(trial)
    return max(1, round(seconds * trial / (time.process_time() - started)))


def score_tasks(
    adapt: Callable[[mp.Examples], mp.Predictive], tasks: Sequence[mp.Task], samples: int
) -> list[TaskScore | None]:
    """Return the scores of every task; None where a number was not finite."""
    return [_score(adapt, task, samples, index) for index, task in enumerate(tasks)]


def _score(adapt: Callable[[mp.Examples], mp.Predictive], task: mp.Task, samples: int, seed: int) -> TaskScore | None:
    try:
        forecast = finite_forecast(adapt(task.support), task.query.x, samples, seed)
    except FloatingPointError:
        return None
    if not isinstance(forecast, CategoricalForecast):
        raise TypeError(f"expected class probabilities, got {type(forecast).__name__}")
    labels = task.query.y
    return TaskScore(
        1 - scores.error_rate(forecast, labels),
        -float(forecast.log_prob(labels).double().mean()),
        counts_of(forecast, labels),
    )


def counts_of(forecast: CategoricalForecast, labels: torch.Tensor) -> FloatArray:
    """Return the sums (3, bins + 1) of a calibration error; those of several tasks may be added."""
    reliability = Reliability(BINS)
    reliability.add(forecast, labels)
    counts = np.zeros((3, BINS + 1))
    for number, row in enumerate(reliability.rows):
        if row["count"]:
            counts[:, number] = row["count"] * np.array([row["confidence"], row["accuracy"], 1.0])
    return counts


def pooled_ece(counts: FloatArray) -> FloatArray:
    r"""Return $\sum_b |\mathrm{right}_b - \mathrm{confidence}_b| / \sum_b n_b$ of sums (..., 3, bins), shape (...)."""
    sure, right, labels = np.moveaxis(counts, -2, 0)
    error: FloatArray = np.abs(right - sure).sum(-1) / labels.sum(-1)
    return error


def resampled(counts: FloatArray) -> FloatArray:
    """Return sums (resamples, 3, bins) over tasks (T, 3, bins) that are drawn with replacement (bootstrap)."""
    generator = mp.Noise(0).fork("bootstrap over tasks").generator()
    drawn = torch.randint(len(counts), (RESAMPLES, len(counts)), generator=generator).numpy()
    return np.stack([counts[rows].sum(0) for rows in drawn])


def row_of(method: str, shots: int, measured: Measured) -> Row:
    """Return means over tasks with standard errors, and the calibration error of all labels with its bootstrap."""
    found = [score for score in measured.scores if score is not None]
    row: Row = {"method": method, "shots": shots, "tasks": len(found), "failed": len(measured.scores) - len(found)}
    for name in MEASURES:
        row |= mean_row(name, [getattr(score, name) for score in found])
    counts = np.stack([score.counts for score in found])
    row |= {"ece": float(pooled_ece(counts.sum(0))), "ece_se": float(pooled_ece(resampled(counts)).std(ddof=1))}
    sure, _, labels = counts.sum(0).sum(-1)
    return row | {"confidence": float(sure / labels), **measured.about}


def difference_row(other: str, shots: int, abml: Measured, theirs: Measured) -> Row:
    """Return the paired differences of ABML and another method on the tasks that both could adapt to."""
    pairs = [(a, m) for a, m in zip(abml.scores, theirs.scores, strict=True) if a is not None and m is not None]
    row: Row = {"method": f"ABML minus {other}, same tasks", "shots": shots, "tasks": len(pairs)}
    for name in MEASURES:
        row |= mean_row(name, [getattr(a, name) - getattr(m, name) for a, m in pairs])
    one, two = (np.stack([pair[side].counts for pair in pairs]) for side in (0, 1))
    error = pooled_ece(resampled(one)) - pooled_ece(resampled(two))  # the same tasks are drawn for both
    return row | {
        "ece": float(pooled_ece(one.sum(0)) - pooled_ece(two.sum(0))),
        "ece_se": float(error.std(ddof=1)),
    }


def headline_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return accuracy, NLL and calibration error by shots and method, and ABML's calibration error over MAML's."""
    by_cell = {(row["method"], row["shots"]): row for row in rows}
    headline: dict[str, float] = {}
    for shots in sorted(SHOTS):
        for method, ending in ((ABML, ""), (MAML, "_maml"), (ANIL, "_anil"), (ALONE, "_alone")):
            row = by_cell[method, shots]
            headline |= {f"{name}_{shots}shot{ending}": row[name] for name in ("accuracy", "nll", "ece")}
        headline[f"ece_ratio_{shots}shot"] = by_cell[ABML, shots]["ece"] / by_cell[MAML, shots]["ece"]
    return headline


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method at both numbers of shots, and put the published figures beside them."""
    settings = context.settings
    jobs = [(method, shots) for shots in SHOTS for method in (ABML, MAML, ANIL, ALONE)]
    measured = dict(zip(jobs, context.map(measure_method, jobs), strict=True))
    rows = [row_of(*cell, measured[cell]) for cell in sorted(measured, key=lambda cell: cell[1])]
    headline = headline_of(rows)
    rows += [
        difference_row(other, shots, measured[ABML, shots], measured[other, shots])
        for other in (MAML, ANIL)
        for shots in sorted(SHOTS)
    ]
    rows += [{"method": f"published: {name}", "shots": 5, "accuracy": value} for name, value in PUBLISHED.items()]
    notes = [
        f"{WAYS} ways, Vinyals splits; Conv4 of width {settings.width} with GroupNorm, and LayerNorm before the last "
        f"layer; learned step sizes; steps of the last layer (ABML, ANIL): {settings.inner_steps}, of all layers "
        f"(MAML): {settings.maml_steps}",
        f"{settings.seconds:g} CPU s, on one core, of each method at each number of shots; Bayes by Backprop has them "
        "for all test tasks together, with a random last layer too and every other layer learned",
        "MAML and ANIL are the same code with relative_sigma=0, kl_weight=0 and objective='query'; ABML has the "
        f"objective 'predictive' with {settings.outer_samples} weight samples; its forecasts have "
        f"{settings.test_samples}",
        f"standard errors over tasks; ece: {BINS} bins, of all tasks' labels together, standard error by bootstrap",
        "published: accuracies in Rothfuss et al. 2021 (PACOH), their rerun of all five; their tasks and budget differ",
    ]
    return BenchmarkResult(headline, rows, notes)


BENCHMARK = Benchmark(
    "omniglot",
    "five classes of characters from one and five examples, beside MAML and Bayes by Backprop",
    measure,
    full=Settings(),
    quick=Settings(seconds=6.0, width=16, test_tasks=20, test_samples=10),
    quick_note="too short a training to compare anything",
    data=(OMNIGLOT,),
)
