"""The wheel bandit of Ravi & Beatson 2019, table 1: a prior from 64 wheels, then 2,000 contexts of a new one.

Priors are learned in two ways, each by ABML and by MAML (the same code with a point prior): from support sets of 8 to
512 examples, because a game passes through few and many; and as published, from all 512 support examples of a wheel.
Rewards are modelled on a log scale (1, 1.2 and 50 become 0, 0.18 and 3.9) by all methods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import Fitted, fit_within
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from benchmarks.wheel.bandit import Game, Outcome, Rule, play
from benchmarks.wheel.exact_posterior import play_with_exact_posterior
from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks.task import VariedSupport

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
    """How priors are learned: the sizes of support sets, and the number of trainings."""

    name: str
    support_sizes: tuple[int, ...]
    seconds: float
    """CPU seconds of a meta-training."""
    trainings: int
    """Each has other initial weights and another order of tasks, and is played on other bandits."""


RANGE = Lessons("", (8, 32, 128, 512), seconds=300.0, trainings=3)
PAPER = Lessons("support sets of 512", (512,), seconds=200.0, trainings=1)


@dataclass(frozen=True)
class Settings:
    """The same settings for every method."""

    lessons: tuple[Lessons, ...] = (RANGE, PAPER)
    warm_share: float = 0.1
    kl_weight: float = 0.05
    relative_sigma: float = 0.02
    meta_batch: int = 8
    hidden: int = 64
    steps: int = 5
    lr: float = 3e-3
    contexts: int = 2000
    trials: int = 20


class Job(NamedTuple):
    """One prior, and the rules that it is played by. Its number is the seed of all random numbers."""

    method: str
    lessons: Lessons
    rules: tuple[Rule, ...]
    number: int = 0


class Played(NamedTuple):
    """The outcome by each rule, and the training."""

    outcomes: Mapping[Rule, Outcome]
    fitted: Fitted | None


def network(hidden: int) -> nn.Module:
    """Return a network (N, 7) -> (N, 1) with LayerNorm, which lets the inner loop take long steps."""
    layers = [nn.Linear(7, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    layers += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 1))


def make_learner(settings: Settings, *, point: bool, seed: int = 0) -> mp.MetaLearner:
    """Return ABML, or MAML (a point prior) with the same network and inner loop."""
    torch.manual_seed(seed)
    inner = mp.Descent(settings.steps, 0.01, "per_tensor", kl_weight=0 if point else settings.kl_weight)
    return mp.MetaLearner(
        network(settings.hidden),
        mp.Gaussian(),
        adaptation=inner,
        objective="query" if point else "abml",
        hyperprior=None,
        relative_sigma=0 if point else settings.relative_sigma,
        seed=seed,
        standardize=False,
    )


def meta_train(learner: mp.MetaLearner, lessons: Lessons, settings: Settings) -> Fitted:
    """Train on 64 wheels of 512 + 50 examples, which are split anew in every meta-step."""
    together = settings.meta_batch
    tasks = VariedSupport(WheelTasks(), lessons.support_sizes, together=together, seed=learner.seed)
    training = mp.MetaTraining(meta_batch=together, lr=settings.lr, warm_start_lr=5e-3)
    return fit_within(learner, tasks, training, seconds=lessons.seconds, warm_share=settings.warm_share, progress=False)


def measure_prior(context: Context[Settings], job: Job) -> Played:
    """Learn a prior (or take an untrained one), and play with it."""
    settings, fitted = context.settings, None
    learner = make_learner(settings, point=job.method == MAML, seed=job.number)
    if job.method == ALONE:
        learner.start(WheelTasks())
    else:
        fitted = meta_train(learner, job.lessons, settings)
    return Played({rule: play(learner, DELTAS, game_of(settings, rule, job.number)) for rule in job.rules}, fitted)


def game_of(settings: Settings, rule: Rule, number: int = 0) -> Game:
    """Return the game of one training: the same bandits for every method."""
    return Game(contexts=settings.contexts, trials=settings.trials, rule=rule, seed=number)


def jobs_of(settings: Settings) -> list[Job]:
    """Return every prior, the longest trainings first, so that no core waits at the end."""
    main, *others = settings.lessons
    jobs = [
        Job(ABML, main, ("thompson", "optimistic", "greedy")),
        Job(MAML, main, ("greedy",)),
    ]
    for lessons in others:
        jobs += [Job(ABML, lessons, ("thompson",)), Job(MAML, lessons, ("greedy",))]
    numbered = [job._replace(number=number) for job in jobs for number in range(job.lessons.trainings)]
    return [*numbered, Job(ALONE, main, ("thompson",))]


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Learn all priors, play with them, and put the published figures beside them."""
    settings, jobs = context.settings, jobs_of(context.settings)
    played = context.map(measure_prior, [(job,) for job in jobs])
    rows = [_row(name, outcomes, settings) | _failed(outcomes) for name, outcomes in _by_name(jobs, played).items()]
    headline = headline_of(rows)
    rows += exact_rows(settings)
    for name, values in PUBLISHED.items():
        rows.append({"what": f"published: {name}"} | {f"delta {d}": v for d, v in zip(DELTAS, values, strict=True)})
    notes = [
        "regret in percent of uniformly random play: mean and its standard error, over trainings (each on bandits of "
        "its own) where there are several, over trials where there is one",
        f"priors: from support sets of {', '.join(map(str, settings.lessons[0].support_sizes))} examples where nothing "
        "else is said (512: as published); examples are divided into support and query set anew in every step",
        f"missed and wasted: jackpots left and tries in vain with delta {DELTAS[-1]}, a trial",
        *(_spent(job, found.fitted) for job, found in zip(jobs, played, strict=True) if found.fitted),
        "Bayes by Backprop: the same variational steps from an untrained prior",
        "failed_percent: adaptations that left the finite numbers, of all; the posterior before went on to decide",
        "exact posterior: a player that knows all but delta ~ U(0, 1): what a rule is worth with nothing else to learn",
        "published: Ravi & Beatson 2019, table 1",
    ]
    return BenchmarkResult(headline, rows, notes)


def exact_rows(settings: Settings) -> list[Row]:
    """Return the rows of both rules with the exact posterior of delta on the same bandits."""
    names: dict[Rule, str] = {"thompson": "Thompson", "greedy": "highest expected reward"}
    numbers = range(settings.lessons[0].trainings)
    return [
        _row(
            f"exact posterior, {name}",
            [play_with_exact_posterior(DELTAS, game_of(settings, rule, number)) for number in numbers],
            settings,
        )
        for rule, name in names.items()
    ]


def headline_of(rows: list[Row]) -> dict[str, float]:
    """Return the regret of ABML (Thompson sampling, and optimistic) and of MAML by delta."""
    by_name = {row["what"]: row for row in rows}
    kinds = {"": "ABML, Thompson", "_optimistic": "ABML, optimistic Thompson", "_maml": "MAML, greedy"}
    return {
        f"wheel_{delta}{ending}": by_name[name][f"delta {delta}"] for ending, name in kinds.items() for delta in DELTAS
    }


def _by_name(jobs: Sequence[Job], played: Sequence[Played]) -> dict[str, list[Outcome]]:
    """Return the outcomes of all trainings of one kind by the name of their row."""
    found: dict[str, list[Outcome]] = {}
    for job, (outcomes, _) in zip(jobs, played, strict=True):
        for rule, outcome in outcomes.items():
            name = ", ".join(part for part in (job.method, NAMES[rule], job.lessons.name) if part)
            found.setdefault(name, []).append(outcome)
    return found


def _spent(job: Job, fitted: Fitted) -> str:
    name = ", ".join(part for part in (job.method, job.lessons.name) if part)
    steps = f"{fitted.warm_start} warm-start and {fitted.meta_steps} meta-steps"
    return f"{name}, training {job.number + 1}: {fitted.seconds:.0f} s, {steps}"


def _row(name: str, outcomes: Sequence[Outcome], settings: Settings) -> Row:
    row: Row = {"what": name, "contexts": settings.contexts, "trials": settings.trials, "trainings": len(outcomes)}
    regrets = torch.stack([outcome.regret for outcome in outcomes])  # (trainings, deltas, trials)
    independent = regrets.mean(2) if len(outcomes) > 1 else regrets[0].T
    for delta, own in zip(DELTAS, independent.unbind(1), strict=True):
        found = mean_row("regret", own)
        row |= {f"delta {delta}": found["regret"], f"se {delta}": found["regret_se"]}
    missed, wasted = (
        float(torch.stack([getattr(outcome, what)[-1] for outcome in outcomes]).double().mean())
        for what in ("missed", "wasted")
    )
    return row | {"missed": missed, "wasted": wasted}


def _failed(outcomes: Sequence[Outcome]) -> Row:
    adaptations = sum(outcome.adaptations for outcome in outcomes)
    return {"failed_percent": 100 * sum(outcome.failed for outcome in outcomes) / max(1, adaptations)}


BENCHMARK = Benchmark(
    "wheel",
    "regret on the wheel bandit, beside MAML, Bayes by Backprop and published figures",
    measure,
    full=Settings(),
    quick=Settings(
        lessons=(replace(RANGE, seconds=4.0, trainings=2), replace(PAPER, seconds=8.0)),
        hidden=32,
        contexts=100,
        trials=2,
    ),
    quick_note="too short a training to compare with the published figures",
)
