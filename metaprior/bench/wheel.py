"""The wheel bandit of Ravi & Beatson 2019, table 1: a prior from 64 wheels, then 2,000 contexts of a new one.

Rewards are modelled on a log scale (1, 1.2 and 50 become 0, 0.18 and 3.9), the same for all methods.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from metaprior import scores
from metaprior.bench.bandit import Game, play
from metaprior.bench.budget import Fitted, fit_within, one_thread
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


@dataclass(frozen=True)
class Settings:
    """The same for every method."""

    seconds: float = 260.0
    """CPU time of meta-training."""
    warm_share: float = 0.1
    hidden: int = 64
    relative_sigma: float = 0.02
    steps: int = 5
    kl_weight: float = 0.01
    objective: str = "abml"
    outer_samples: int = 2
    meta_batch: int = 16
    lr: float = 3e-3
    support_sizes: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    contexts: int = 2000
    trials: int = 20


QUICK = Settings(seconds=8.0, hidden=32, contexts=100, trials=2)


def network(hidden: int) -> nn.Module:
    """Two hidden layers with LayerNorm, which lets the inner loop take long steps: (N, 7) -> (N, 1)."""
    layers = [nn.Linear(7, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    layers += [nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 1))


def make_learner(settings: Settings, *, point: bool) -> MetaLearner:
    """ABML, or MAML (a point prior) with the same network and inner loop."""
    torch.manual_seed(0)
    inner = InnerLoop(settings.steps, 0.01, "per_tensor", kl_weight=0 if point else settings.kl_weight)
    return MetaLearner(
        network(settings.hidden),
        Gaussian(),
        inner=inner,
        objective="query" if point else settings.objective,
        outer_samples=1 if point else settings.outer_samples,
        hyperprior=None,
        relative_sigma=0 if point else settings.relative_sigma,
    )


def meta_train(learner: MetaLearner, settings: Settings) -> Fitted:
    """On 64 wheels of 512 + 50 examples, with support sets of several sizes."""
    tasks = VariedSupport(WheelTasks(), settings.support_sizes, together=settings.meta_batch)
    training = MetaTraining(meta_batch=settings.meta_batch, lr=settings.lr, warm_start_lr=5e-3)
    return fit_within(learner, tasks, training, seconds=settings.seconds, warm_share=settings.warm_share)


def run(*, quick: bool = False) -> BenchResult:
    """Meta-train, play, and put the published figures beside."""
    settings = QUICK if quick else Settings()
    thompson, optimistic, greedy = (
        Game(settings.contexts, settings.trials, rule=rule) for rule in ("thompson", "optimistic", "greedy")
    )
    with one_thread():
        abml, maml, none = (make_learner(settings, point=point) for point in (False, True, False))
        spent = {"ABML": meta_train(abml, settings), "MAML": meta_train(maml, settings)}
        none.start(WheelTasks())
        regrets = {
            "ABML, Thompson": play(abml, DELTAS, thompson),
            "ABML, optimistic Thompson": play(abml, DELTAS, optimistic),
            "ABML, greedy": play(abml, DELTAS, greedy),
            "MAML, greedy": play(maml, DELTAS, greedy),
            "Bayes by Backprop on each wheel alone, Thompson": play(none, DELTAS, thompson),
        }
    rows = [_row(name, regret, settings) for name, regret in regrets.items()]
    rows += [{"what": f"published: {name}", **_columns(values)} for name, values in PUBLISHED.items()]
    headline = {f"wheel_{delta}": float(regrets["ABML, Thompson"][i].mean()) for i, delta in enumerate(DELTAS)}
    headline |= {
        f"wheel_{delta}_optimistic": float(regrets["ABML, optimistic Thompson"][i].mean())
        for i, delta in enumerate(DELTAS)
    }
    headline |= {f"wheel_{delta}_maml": float(regrets["MAML, greedy"][i].mean()) for i, delta in enumerate(DELTAS)}
    notes = [
        "regret in percent of uniformly random play, mean over trials and its standard error",
        *(
            f"{name}: {f.seconds:.0f} s, {f.warm_start} warm-start and {f.meta_steps} meta-steps"
            for name, f in spent.items()
        ),
        "Bayes by Backprop: the same variational steps from an untrained prior",
        "published: Ravi & Beatson 2019, table 1",
        *["--quick: too short a training to compare with the published figures"] * quick,
    ]
    return BenchResult(headline, rows, {"bench": "wheel", "quick": quick, **asdict(settings)}, notes)


def _row(name: str, regret: Tensor, settings: Settings) -> Row:
    row: Row = {"what": name, "contexts": settings.contexts, "trials": settings.trials}
    for delta, own in zip(DELTAS, regret, strict=True):
        row |= {f"delta {delta}": float(own.mean()), f"se {delta}": scores.standard_error(own)}
    return row


def _columns(values: tuple[float, ...]) -> Row:
    return {f"delta {delta}": value for delta, value in zip(DELTAS, values, strict=True)}
