"""Families of straight lines, a network with random and plain parts, and trainers for both, in float64."""

from typing import Any

import torch
from torch import Tensor, nn

from metaprior.adaptation.descent import DescentModel
from metaprior.likelihoods import Gaussian, Likelihood
from metaprior.metagrad import Descent, Problem, QueryLoss, keeping
from metaprior.metagrad.problem import PARTS, Engine, Objective
from metaprior.network import BayesianNetwork
from metaprior.tasks.task import Examples, Task, Tasks
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

LEARNED = Descent(steps=2, lr=0.02, learn_lr="per_tensor")


def line(
    index: int, support: int = 4, query: int = 5, slope: float = 1.0, spread: float = 0.3, noise: float = 0.1
) -> Task:
    """y = w x + noise, with w from N(slope, spread^2)."""
    generator = torch.Generator().manual_seed(index)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    w = slope + spread * normal(1)

    def examples(count: int) -> Examples:
        x = normal(count, 1)
        return Examples(x, w * x + noise * normal(count, 1))

    return Task(examples(support), examples(query), f"line {index}")


def lines(count: int, **changes: Any) -> list[Task]:
    return [line(index, **changes) for index in range(count)]


class EndlessLines:
    """One task for every index, and no length."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def __getitem__(self, index: int) -> Task:
        return line(index, **self.changes)


def damaged(task: Task, part: str = "query", value: float = torch.inf) -> Task:
    """The task with a number in its targets that is not finite."""
    examples = getattr(task, part)
    y = examples.y.clone()
    y[0] = value
    return task._replace(**{part: Examples(examples.x, y)})


def diverging(task: Task) -> Task:
    """The task with targets that are finite, and whose loss is not."""
    return task._replace(**{part: Examples(getattr(task, part).x, 1e200 * getattr(task, part).y) for part in PARTS})


def network_module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def make_problem(
    inner: Descent = LEARNED,
    objective: Objective | None = None,
    *,
    module: nn.Module | None = None,
    likelihood: Likelihood | None = None,
    stochastic: str = "2.*",
) -> Problem:
    """By default the last layer is random, the first one plain, and the noise is learned."""
    network = BayesianNetwork(module or network_module(), stochastic)
    return Problem(network, likelihood or Gaussian(), inner, objective or QueryLoss())


def make_trainer(
    tasks: Tasks,
    problem: Problem | None = None,
    *,
    pooled: Tasks | None = None,
    engine: Engine | None = None,
    stacked: bool = True,
    relative_sigma: float = 0.2,
    seed: int = 0,
    **settings: Any,
) -> Trainer:
    problem = problem or make_problem()
    theta = problem.initial(torch.ones(4, 1, dtype=torch.float64), relative_sigma)
    return Trainer(
        DescentModel(problem, engine or keeping(10), stacked),
        theta,
        tasks,
        MetaTraining(**settings),
        pooled=pooled,
        relative_sigma=relative_sigma,
        seed=seed,
    )


def copied(trainer: Trainer) -> dict[str, Tensor]:
    """Theta as it is now, by name."""
    return {name.removeprefix("plain."): value for name, value in trainer.theta.detached().named().items()}


def moved(trainer: Trainer, before: dict[str, Tensor]) -> set[str]:
    """What is not bit for bit as it was."""
    return {name for name, value in copied(trainer).items() if not torch.equal(value, before[name])}
