"""The wheel bandit of Ravi & Beatson 2019, table 1: a prior from 64 wheels, then 2,000 contexts of a new one.

Priors are learned in two ways, each by ABML and by MAML (the same code with a point prior): as published, from all 512
support examples of a wheel; and from support sets of many sizes, which teaches what to make of a few examples.
Rewards are modelled on a log scale (1, 1.2 and 50 become 0, 0.18 and 3.9), the same for all methods.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metaprior import scores
from metaprior.bench.bandit import Game, Outcome, Rule, play
from metaprior.bench.budget import Fitted, fit_within
from metaprior.bench.jobs import run_all
from metaprior.bench.known_wheel import play_with_exact_posterior
from metaprior.bench.result import BenchResult, Row
from metaprior.likelihoods import Gaussian
from metaprior.metagrad.problem import InnerLoop
from metaprior.methods.meta_learner import MetaLearner
from metaprior.tasks.varied_support import VariedSupport
from metaprior.tasks.wheel import WheelTasks
from metaprior.training.settings import MetaTraining

DELTAS = (0.5, 0.7, 0.9, 0.95, 0.99)
PUBLISHED: dict[str, tuple[float, ...]] = {
    "MAML, greedy (n = 2,000)": (1.79, 2.10, 6.08, 16.80, 55.53),
    "ABML, Thompson (n = 2,000)": (1.36, 1.59, 3.51, 7.21, 35.04),
    "NeuralLinear (n = 80,000)": (0.95, 1.60, 4.65, 9.56, 49.63),
    "ABML (n = 80,000)": (0.22, 0.29, 0.66, 1.03, 4.66),
}
"""Cumulative regret in percent of uniform play (Ravi & Beatson 2019, table 1; 50 trials)."""

ABML, MAML, ALONE = "ABML", "MAML", "Bayes by Backprop on each wheel alone"
NAMES: dict[Rule, str] = {"thompson": "Thompson", "optimistic": "optimistic Thompson", "greedy": "greedy"}


@dataclass(frozen=True)
class Lessons:
    """How priors are learned: the support sets, and what suits ABML on them."""

    name: str
    support_sizes: tuple[int, ...]
    objective: str
    kl_weight: float
    relative_sigma: float
    meta_batch: int
    seconds: float
    """CPU time of meta-training."""


PAPER = Lessons("", (512,), "abml", kl_weight=0.05, relative_sigma=0.02, meta_batch=8, seconds=200.0)
VARIED = Lessons(
    "support sets of 4 to 128",
    (4, 8, 16, 32, 64, 128),
    "query",
    1e-4,
    relative_sigma=0.01,
    meta_batch=16,
    seconds=260.0,
)


@dataclass(frozen=True)
class Settings:
    """The same for every method."""

    lessons: tuple[Lessons, ...] = (PAPER, VARIED)
    warm_share: float = 0.1
    hidden: int = 64
    steps: int = 5
    lr: float = 3e-3
    contexts: int = 2000
    trials: int = 20


QUICK = Settings(lessons=(replace(PAPER, seconds=8.0), replace(VARIED, seconds=4.0)), hidden=32, contexts=100, trials=2)


class Job(NamedTuple):
    """One prior, and the rules that it is played by."""

    method: str
    lessons: Lessons
    rules: tuple[Rule, ...]
    settings: Settings


class Played(NamedTuple):
    """What came out by each rule, and what the training came to."""

    outcomes: Mapping[Rule, Outcome]
    fitted: Fitted | None


def network(hidden: int) -> nn.Module:
    """Two hidden layers with LayerNorm, which lets the inner loop take long steps: (N, 7) -> (N, 1)."""
    layers = [nn.Linear(7, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    layers += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 1))


def make_learner(lessons: Lessons, settings: Settings, *, point: bool) -> MetaLearner:
    """ABML, or MAML (a point prior) with the same network and inner loop."""
    torch.manual_seed(0)
    inner = InnerLoop(settings.steps, 0.01, "per_tensor", kl_weight=0 if point else lessons.kl_weight)
    return MetaLearner(
        network(settings.hidden),
        Gaussian(),
        inner=inner,
        objective="query" if point else lessons.objective,
        hyperprior=None,
        relative_sigma=0 if point else lessons.relative_sigma,
    )


def meta_train(learner: MetaLearner, lessons: Lessons, settings: Settings) -> Fitted:
    """On 64 wheels of 512 + 50 examples, divided anew in every meta-step."""
    tasks = VariedSupport(WheelTasks(), lessons.support_sizes, together=lessons.meta_batch)
    training = MetaTraining(meta_batch=lessons.meta_batch, lr=settings.lr, warm_start_lr=5e-3)
    return fit_within(learner, tasks, training, seconds=lessons.seconds, warm_share=settings.warm_share, progress=False)


def measure(job: Job) -> Played:
    """Learn a prior, if there is something to learn it from, and play with it."""
    learner, fitted = make_learner(job.lessons, job.settings, point=job.method == MAML), None
    if job.method == ALONE:
        learner.start(WheelTasks())
    else:
        fitted = meta_train(learner, job.lessons, job.settings)
    size = {"contexts": job.settings.contexts, "trials": job.settings.trials}
    return Played({rule: play(learner, DELTAS, Game(**size, rule=rule)) for rule in job.rules}, fitted)


def jobs_of(settings: Settings) -> list[Job]:
    """Every prior, the long ones first, so that no core waits at the end."""
    paper, *others = settings.lessons
    jobs = [
        Job(ABML, paper, ("thompson", "optimistic", "greedy"), settings),
        Job(MAML, paper, ("greedy",), settings),
    ]
    for lessons in others:
        jobs += [Job(ABML, lessons, ("thompson",), settings), Job(MAML, lessons, ("greedy",), settings)]
    return [*jobs, Job(ALONE, paper, ("thompson",), settings)]


def run(*, quick: bool = False, workers: int | None = None) -> BenchResult:
    """Meta-train, play, and put the published figures beside."""
    settings = QUICK if quick else Settings()
    jobs = jobs_of(settings)
    played = run_all(measure, jobs, workers=workers, label="Wheel")
    rows = [
        _row(_name(job, rule), outcome.regret, settings) | _failed(outcome)
        for job, found in zip(jobs, played, strict=True)
        for rule, outcome in found.outcomes.items()
    ]
    headline = headline_of(rows)
    rows += exact_rows(settings)
    rows += [{"what": f"published: {name}", **_columns(values)} for name, values in PUBLISHED.items()]
    notes = [
        "regret in percent of uniformly random play, mean over trials and its standard error",
        "priors: from support sets of 512 examples, as published, where nothing else is said; examples are divided "
        "into support and query set anew in every step",
        *(_spent(job, found.fitted) for job, found in zip(jobs, played, strict=True) if found.fitted),
        "Bayes by Backprop: the same variational steps from an untrained prior",
        "failed_percent: adaptations that left the finite numbers, of all; the posterior before went on to decide",
        "exact posterior: a player that knows all but delta ~ U(0, 1): what a rule is worth with nothing else to learn",
        "published: Ravi & Beatson 2019, table 1",
        *["--quick: too short a training to compare with the published figures"] * quick,
    ]
    return BenchResult(headline, rows, {"bench": "wheel", "quick": quick, **asdict(settings)}, notes)


def exact_rows(settings: Settings) -> list[Row]:
    """Where a method could get to: both rules with the exact posterior of delta, on the same bandits."""
    names: dict[Rule, str] = {"thompson": "Thompson", "greedy": "highest expected reward"}
    size = {"contexts": settings.contexts, "trials": settings.trials}
    return [
        _row(f"exact posterior, {name}", play_with_exact_posterior(DELTAS, Game(**size, rule=rule)), settings)
        for rule, name in names.items()
    ]


def headline_of(rows: list[Row]) -> dict[str, float]:
    """By delta: ABML's regret with Thompson sampling and its optimistic kind, and MAML's."""
    by_name = {row["what"]: row for row in rows}
    kinds = {"": "ABML, Thompson", "_optimistic": "ABML, optimistic Thompson", "_maml": "MAML, greedy"}
    return {
        f"wheel_{delta}{ending}": by_name[name][f"delta {delta}"] for ending, name in kinds.items() for delta in DELTAS
    }


def _name(job: Job, rule: Rule) -> str:
    return ", ".join(part for part in (job.method, NAMES[rule], job.lessons.name) if part)


def _spent(job: Job, fitted: Fitted) -> str:
    name = ", ".join(part for part in (job.method, job.lessons.name) if part)
    return f"{name}: {fitted.seconds:.0f} s, {fitted.warm_start} warm-start and {fitted.meta_steps} meta-steps"


def _row(name: str, regret: Tensor, settings: Settings) -> Row:
    row: Row = {"what": name, "contexts": settings.contexts, "trials": settings.trials}
    for delta, own in zip(DELTAS, regret, strict=True):
        row |= {f"delta {delta}": float(own.mean()), f"se {delta}": scores.standard_error(own)}
    return row


def _failed(outcome: Outcome) -> Row:
    return {"failed_percent": 100 * outcome.failed / max(1, outcome.adaptations)}


def _columns(values: tuple[float, ...]) -> Row:
    return {f"delta {delta}": value for delta, value in zip(DELTAS, values, strict=True)}
