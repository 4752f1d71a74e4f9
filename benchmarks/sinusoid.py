"""Sine waves from five points: ABML, MAML (the same code with a point prior) and Bayes by Backprop on a task alone.

ABML and MAML are trained for the same time, on the same tasks, with the same network. Bayes by Backprop sees only the
support set of the test task, so it shows what the other tasks are worth.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks, fit_within, one_thread
from benchmarks.common.result import BenchmarkResult, Row
from metaprior.evaluation import Evaluation, evaluate
from metaprior.posterior import Predictive
from metaprior.tasks.waves import Sinusoids

ABML, MAML, ALONE = "ABML", "MAML", "Bayes by Backprop, task alone"
SHOTS, MOST_SHOTS = 5, 10
MEASURES = ("mse", "nll", "crps", "coverage_90")
LIKELIHOOD = mp.HeteroscedasticGaussian(min_scale=0.01)
"""A wave is known near the five points and unknown far from them: one scale for all x would cover too much."""
TRAINING_SEED, TEST_SEED = 1, 12  # settings were chosen on tasks of seeds 2 and 77

PUBLISHED = {1: 0.600, 10: 0.280}
"""Mean squared error of MAML, 5 shots, by adaptation steps (Finn et al. 2017; cited from memory)."""


@dataclass(frozen=True)
class Settings:
    """The same settings for every learner, except ``kl_weight`` and ``outer_samples``, which are those of ABML."""

    seconds: float = 300.0
    """CPU seconds of training for ABML and for MAML."""
    activation: str = "tanh"
    inner_steps: int = 10
    inner_lr: float = 0.01
    """The initial step size, as published. It is learned from there, and not searched: see the notes."""
    kl_weight: float = 1e-3
    outer_samples: int = 4
    meta_batch: int = 20
    lr: float = 5e-3
    train_query: int = 10
    test_tasks: int = 200
    test_query: int = 100
    test_samples: int = 20
    shots: tuple[int, ...] = (0, 1, 5, 10)
    steps: tuple[int, ...] = (1, 5, 10)
    alone_tasks: int = 50
    alone_steps: int = 300
    alone_lr: float = 1e-2


def network(settings: Settings) -> mp.MLP:
    """Return a network 1-40-40-2 (mean and scale) with the same initial weights for every learner."""
    torch.manual_seed(0)
    return mp.MLP(1, [40, 40], 2, activation=settings.activation)


def learners(settings: Settings) -> dict[str, mp.MetaLearner]:
    """Return ABML and MAML (a point prior, no KL, one sample). Both learn their step sizes."""
    inner = mp.Descent(
        steps=settings.inner_steps, lr=settings.inner_lr, learn_lr="per_tensor", kl_weight=settings.kl_weight
    )
    point = replace(inner, kl_weight=0.0)
    samples = settings.outer_samples
    return {
        ABML: mp.MetaLearner(
            network(settings),
            LIKELIHOOD,
            adaptation=inner,
            objective="predictive",
            outer_samples=samples,
            standardize=False,
        ),
        MAML: mp.MetaLearner(
            network(settings), LIKELIHOOD, adaptation=point, objective="query", relative_sigma=0.0, standardize=False
        ),
    }


def test_tasks(settings: Settings) -> list[mp.Task]:
    """Return waves that no learner was trained on; the first five of ten support points are the five shots."""
    return first_tasks(Sinusoids(k_shot=MOST_SHOTS, k_query=settings.test_query, seed=TEST_SEED), settings.test_tasks)


def meta_learned(name: str, learner: mp.MetaLearner, settings: Settings) -> list[Row]:
    """Train within the budget, adapt to every test task, and return a row for every number of shots and steps."""
    training = mp.MetaTraining(meta_batch=settings.meta_batch, lr=settings.lr, search_step_size=False)
    tasks = Sinusoids(k_shot=SHOTS, k_query=settings.train_query, seed=TRAINING_SEED)
    fitted = fit_within(learner, tasks, training, seconds=settings.seconds)
    found = learner.evaluate(
        test_tasks(settings), shots=settings.shots, steps=settings.steps, samples=settings.test_samples
    )
    about: Row = {"training_seconds": fitted.seconds, "meta_steps": fitted.meta_steps, "bad_tasks": fitted.bad_tasks}
    return rows_of(name, found, about)


def fitted_alone(settings: Settings) -> list[Row]:
    """Fit Bayes by Backprop with a standard normal prior to the five points of each test task."""
    started = time.perf_counter()
    module = network(settings)

    def fit(support: mp.Examples | None, steps: int) -> Predictive:
        if support is None:
            raise ValueError("Bayes by Backprop on a task alone needs at least one shot")
        learner = mp.BayesByBackprop(module, LIKELIHOOD, prior=mp.NormalPrior(1.0))
        learner.fit(*support, epochs=steps, lr=settings.alone_lr, progress=False)
        return learner.posterior_

    found = evaluate(
        fit,
        test_tasks(settings)[: settings.alone_tasks],
        shots=(SHOTS,),
        steps=(settings.alone_steps,),
        samples=settings.test_samples,
        progress=True,
    )
    return rows_of(ALONE, found, {"fitting_seconds_a_task": (time.perf_counter() - started) / settings.alone_tasks})


def rows_of(name: str, found: Evaluation, about: Row) -> list[Row]:
    """Return a row for every cell of an evaluation: means over tasks with their standard errors."""
    return [
        {
            "method": name,
            **{key: row[key] for key in ("shots", "steps", "tasks", "failed")},
            **{key: row[key] for measure in MEASURES for key in (measure, f"{measure}_se")},
            "rmse": row["rmse"],
            **about,
        }
        for row in found.rows
    ]


def headline_of(rows: Sequence[Row], settings: Settings) -> dict[str, float]:
    """Return the five-shot scores after most steps by method, and the mean squared error after the fewest."""
    first, last = min(settings.steps), max(settings.steps)
    headline: dict[str, float] = {}
    for name, ending, steps in ((ABML, "", last), (MAML, "_maml", last), (ALONE, "_alone", settings.alone_steps)):
        row = _row(rows, name, steps)
        shown = "" if name == ALONE else f"_{last}steps"
        headline[f"mse_5shot{shown}{ending}"] = row["mse"]
        headline |= {f"{measure}{ending}": row[measure] for measure in ("nll", "crps", "coverage_90")}
    for name, ending in ((ABML, ""), (MAML, "_maml")):
        headline[f"mse_5shot_{first}steps{ending}"] = _row(rows, name, first)["mse"]
    return headline


def _row(rows: Sequence[Row], name: str, steps: int) -> Row:
    found = [row for row in rows if (row["method"], row["shots"], row["steps"]) == (name, SHOTS, steps)]
    return found[0]


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Train both meta-learners, fit Bayes by Backprop, and put the published figures beside them."""
    settings = context.settings
    with one_thread():
        rows = [row for name, learner in learners(settings).items() for row in meta_learned(name, learner, settings)]
        rows += fitted_alone(settings)
    headline = headline_of(rows, settings)
    rows += [
        {"method": "published: MAML (Finn et al. 2017)", "shots": SHOTS, "steps": steps, "mse": mse}
        for steps, mse in PUBLISHED.items()
    ]
    notes = [
        f"1-40-40-2 with {settings.activation}; noise-free waves, training and test tasks of different seeds",
        f"ABML and MAML: {settings.seconds:g} CPU s of training each, on one core, {settings.inner_steps} inner steps, "
        "learned step sizes; the network gives mean and scale",
        "MAML is the same code with relative_sigma=0, kl_weight=0 and objective='query'",
        f"Bayes by Backprop: prior N(0, 1), {settings.alone_steps} steps of Adam on the five points of the test task",
        "published (cited from memory): ReLU, fixed step size 0.01, one inner step in training, 70,000 meta-steps",
        "the initial step size is not searched: the best one for a fresh network is a hundred times too large for one "
        "that is trained and has a small noise scale, and training is slower from there",
        "headline nll, crps and coverage_90 are those of five shots after most steps",
    ]
    return BenchmarkResult(headline, rows, notes)


BENCHMARK = Benchmark(
    "sinusoid",
    "five-shot sine waves, beside MAML and Bayes by Backprop",
    measure,
    full=Settings(),
    quick=Settings(
        seconds=15.0, meta_batch=8, test_tasks=20, test_query=50, shots=(0, 5), steps=(1, 10), alone_tasks=10
    ),
    quick_note="too short a training to compare with the published figures",
)
