"""Meta-gradients by every engine of ``metaprior.metagrad``: task by task, and stacked where the engine can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import metaprior as mp
from metaprior import metagrad
from metaprior.models import UNet
from tests.golden.adapters import mlp, theta_entries
from tests.golden.data import Waves, generator
from tests.golden.digest import Entries
from tests.golden.registry import case

STACKED: dict[str, Any] = {
    "mixed": metagrad.mixed,
    "twice_reverse": metagrad.twice_reverse,
    "keeping(1)": metagrad.keeping(1),
    "keeping(all)": metagrad.keeping(10**6),
    "first_order": metagrad.first_order,
    "truncated(2)": metagrad.truncated(2),
}
ENGINES: dict[str, Any] = {
    **STACKED,
    "finite_difference": metagrad.finite_difference,
    "unrolled": metagrad.unrolled,
    "checkpointed": metagrad.checkpointed,
    "implicit": metagrad.implicit,
    "implicit, damped": metagrad.Implicit(iterations=4, damping=0.3),
}
INNER: dict[str, Any] = {"steps": 3, "lr": 0.02, "learn_lr": "per_tensor"}

Parts = tuple[metagrad.Problem, list[mp.Task]]


def waves(inner: Any = None, objective: Any = None, *, stochastic: str = ".*", **changes: Any) -> Parts:
    """Return a regression problem of a small network, and tasks."""
    network = mp.BayesianNetwork(mlp(), stochastic)
    loop = metagrad.Descent(**{**INNER, **(inner or {})})
    problem = metagrad.Problem(network, mp.Gaussian(), loop, objective or metagrad.QueryLoss(), **changes)
    return problem, [problem.check(Waves()[number]) for number in range(3)]


def classes() -> Parts:
    """Return a classification problem."""
    network = mp.BayesianNetwork(mlp(outputs=3), ".*")
    loop = metagrad.Descent(**INNER, samples=2)
    problem = metagrad.Problem(network, mp.Categorical(), loop, metagrad.QueryLoss(2))
    return problem, [problem.check(Waves("classes")[number]) for number in range(3)]


def images(module: nn.Module, stochastic: str, adapt: str | None, **changes: Any) -> Parts:
    """Return a problem of maps (2, 8, 8) -> (2, 8, 8)."""
    made = generator(7)
    loop = metagrad.Descent(steps=2, lr=1e-3, learn_lr="per_tensor", adapt=adapt, momentum=0.5)
    network = mp.BayesianNetwork(module.double(), stochastic)
    problem = metagrad.Problem(network, mp.Gaussian(per_channel=True), loop, metagrad.AmortizedELBO(9), **changes)

    def examples(count: int) -> mp.Examples:
        return mp.Examples(*torch.randn(2, count, 2, 8, 8, dtype=torch.float64, generator=made))

    return problem, [problem.check(mp.Task(examples(3), examples(2), f"maps {number}")) for number in range(2)]


def unet(stochastic: str, adapt: str | None, **changes: Any) -> Parts:
    """Return a problem of a small U-Net."""
    torch.manual_seed(0)
    return images(UNet(2, 2, width=4, levels=2), stochastic, adapt, **changes)


def bayesian_unet() -> Parts:
    """Return a problem of the U-Net that says itself which parameters are random."""
    torch.manual_seed(0)
    module = mp.BayesianUNet(input_len=2, target_len=2, width=4, levels=2, scales=False)
    return images(module, module.stochastic, None)


def conv_net() -> Parts:
    """Return a problem of a convolutional network that is not of this package."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 2, 1))
    return images(nn.Sequential(*layers), "3.*", "(3|likelihood).*")


PROBLEMS: dict[str, tuple[Callable[[], Parts], list[str]]] = {
    "query": (waves, list(ENGINES)),
    "abml, momentum, samples": (
        lambda: waves({"momentum": 0.7, "samples": 2}, metagrad.AmortizedELBO(7, samples=2)),
        list(ENGINES),
    ),
    "predictive, one step size, undamped": (
        lambda: waves({"learn_lr": "one", "damped": False}, metagrad.QueryLoss(3, predictive=True)),
        list(ENGINES),
    ),
    "trunk and head": (lambda: waves({"adapt": "likelihood.*"}, stochastic=r"layers\.2.*"), list(ENGINES)),
    "trunk and head, trunk not learned": (
        lambda: waves({"adapt": None}, stochastic=r"layers\.2.*", learn_trunk=False),
        ["mixed", "twice_reverse", "keeping(all)", "first_order", "implicit"],
    ),
    "micro-batches": (lambda: waves(micro_batch=2), ["mixed", "twice_reverse", "keeping(1)", "checkpointed"]),
    "classes": (classes, ["mixed", "keeping(all)", "unrolled", "checkpointed", "implicit"]),
    "U-Net, random decoder": (
        lambda: unet(r"decoder2\.block\.[03].*", "(decoder2|output|likelihood).*"),
        ["mixed", "keeping(all)"],
    ),
    "U-Net, all random": (lambda: unet(".*", ".*"), ["twice_reverse"]),
    "Bayesian U-Net": (bayesian_unet, ["keeping(1)"]),
    "convolutions, head adapts": (conv_net, ["mixed", "twice_reverse"]),
}


def scattered(problem: metagrad.Problem, task: mp.Task) -> mp.WeightDistribution:
    """Return a theta in which no two numbers are alike."""
    theta, made = problem.initial(task.support.y, 0.3), generator(3)

    def move(value: torch.Tensor) -> torch.Tensor:
        return value + 0.1 * torch.randn(value.shape, dtype=value.dtype, generator=made)

    plain = {name: move(value) for name, value in theta.plain.items()}
    log_lr = None if theta.log_lr is None else move(theta.log_lr)
    return mp.WeightDistribution(move(theta.mu), move(theta.rho), plain, log_lr)


def gradient(parts: Parts, engine: Any, *, stacked: bool) -> Entries:
    """Return the loss of a meta-batch, its terms, and its gradient by theta."""
    problem, tasks = parts
    theta, noise = scattered(problem, tasks[0]), mp.Noise(seed=11)
    found = metagrad.meta_gradient(problem, theta, tasks, noise, engine=engine, stacked=stacked)
    terms = {f"terms/{name}": float(value) for name, value in found.terms._asdict().items()}
    return {"loss": float(found.loss), "tasks": found.count, **terms, **theta_entries(found.grads, "gradient")}


def single(parts: Parts, engine: Any) -> Entries:
    """Return what an engine says about one task: the inner loss before each step, and its diagnostics."""
    problem, tasks = parts
    found = engine(problem, scattered(problem, tasks[0]), tasks[0], mp.Noise(seed=11)).or_raise()
    diagnostics = {f"diagnostics/{name}": value for name, value in found.diagnostics.items()}
    return {"inner/nll": found.inner.nll, "inner/kl": found.inner.kl, **diagnostics}


def register(name: str, make: Callable[[], Parts], engine: str) -> None:
    """Make a case of a problem and an engine."""

    @case(f"engines/{name}: {engine}")
    def run(folder: Path) -> Entries:
        found = gradient(make(), ENGINES[engine], stacked=False) | single(make(), ENGINES[engine])
        if engine in STACKED and "micro" not in name:
            stacked = gradient(make(), ENGINES[engine], stacked=True)
            found |= {f"stacked/{key}": value for key, value in stacked.items()}
        return found


for name, (make, engines) in PROBLEMS.items():
    for engine in engines:
        register(name, make, engine)


@case("engines/adapt")
def adapted(folder: Path) -> Entries:
    problem, tasks = waves({"momentum": 0.5, "samples": 2})
    theta = scattered(problem, tasks[0])
    found = theta_entries(metagrad.adapt(problem, theta, tasks[0].support, mp.Noise(1), steps=4), "one")
    supports = mp.Examples(*(torch.stack(parts) for parts in zip(*(task.support for task in tasks), strict=True)))
    stack = metagrad.adapt_stack(problem, theta, supports, [mp.Noise(1, number) for number in range(3)])
    return found | theta_entries(stack, "stack")


@case("engines/a training with each engine")
def trained(folder: Path) -> Entries:
    found: Entries = {}
    for name, engine in ENGINES.items():
        learner = mp.MetaLearner(
            mlp(), mp.Gaussian(), adaptation=metagrad.Descent(**INNER), engine=engine, standardize=False
        )
        learner.fit(
            Waves(),
            epochs=1,
            tasks_per_epoch=4,
            meta_batch=2,
            grad_clip_norm=1.0,
            progress=False,
            search_step_size=False,
        )
        found |= theta_entries(learner.theta_, name)
    return found


@case("engines/planner")
def planned(folder: Path) -> Entries:
    """Return the ways that are considered and their costs; peaks are measured, and belong to an implementation."""
    problem, tasks = waves({"samples": 2}, stochastic=r"layers\.2.*")
    choices = metagrad.plan(problem, scattered(problem, tasks[0]), tasks[0], "100GiB").choices
    return {
        "ways": "; ".join(f"{choice.engine.name}, micro-batch {choice.micro_batch}" for choice in choices),
        "cost": torch.tensor([choice.cost for choice in choices], dtype=torch.float64),
    }
