"""Small trainings in float64, for one process and for several: ``python -m tests.team.cases FOLDER`` under torchrun."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from metaprior.adaptation import descent as descent_module
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.settings import Context
from metaprior.errors import TrainingDiverged
from metaprior.likelihoods import Categorical, Gaussian, Likelihood
from metaprior.metagrad import Descent
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models import MLP
from metaprior.priors import NormalGammaHyperprior
from metaprior.runs import finish
from metaprior.runs.program import train
from metaprior.tasks.task import Examples, Task, Tasks
from metaprior.team import Team, team_of_torchrun
from metaprior.team.launch import leave
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer
from tests.runs.tiny import request

STEPS = 20
SEARCH_TASKS = 3
"""For the search of step sizes: enough for two ranks to have unlike shares, and for a test to be short."""
INNER = Descent(steps=2, lr=0.05, learn_lr="per_tensor")

FIRST_TO_DIVERGE = 12
"""Behind the warm start, which cannot tell which task of its batch diverged."""


@dataclass
class Waves:
    """Sine waves, or the signs of them, that remember which were asked for."""

    labels: bool = False
    sizes: Sequence[int] = (4,)
    """Support examples of tasks in turn."""
    bad: frozenset[int] = frozenset()
    """Indices of tasks whose data are damaged; later ones have finite data, and a loss that is not."""
    slow: float = 0.0
    """Seconds that reading takes."""
    asked: list[int] = field(default_factory=list)
    thread_safe: ClassVar[bool] = True

    def __getitem__(self, index: int) -> Task:
        self.asked.append(index)
        time.sleep(self.slow)
        generator = torch.Generator().manual_seed(index)
        amplitude, phase = torch.rand(2, 1, dtype=torch.float64, generator=generator)

        def examples(count: int) -> Examples:
            x = 4 * torch.rand(count, 1, dtype=torch.float64, generator=generator) - 2
            y = (0.5 + amplitude) * torch.sin(2 * x + phase)
            return Examples(x, (y > 0).long().squeeze(1) if self.labels else y)

        support, query = examples(self.sizes[index % len(self.sizes)]), examples(3)
        if index in self.bad:
            damaged = index < FIRST_TO_DIVERGE
            support = Examples(support.x * math.nan, support.y) if damaged else Examples(support.x, 1e200 * support.y)
        return Task(support, query, f"wave {index}")


@dataclass
class Pool(Waves):
    """A number of waves: training goes through them in shuffled passes."""

    def __len__(self) -> int:
        return 7


@dataclass(frozen=True)
class Case:
    tasks: Callable[[], Waves] = Waves
    likelihood: Callable[[], Likelihood] = Gaussian
    learner: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    hidden: Sequence[int] = (4,)
    outputs: int = 1
    shard: bool = False
    meta_batch: int = 4

    def trainer(self) -> tuple[Trainer, Waves]:
        torch.manual_seed(0)
        module: nn.Module = MLP(1, self.hidden, self.outputs, activation="tanh").double()
        learner = MetaLearner(module, self.likelihood(), **{"adaptation": INNER, **self.learner}, standardize=False)
        settings = {"epochs": 1, "tasks_per_epoch": STEPS * self.meta_batch, "meta_batch": self.meta_batch}
        tasks = self.tasks()
        trainer = learner.trainer(
            tasks, MetaTraining(**{**settings, "warm_start": 3, **self.training}), shard=self.shard
        )
        tasks.asked.clear()
        return trainer, tasks


HALVED = Case(  # the tasks of meta-steps 5 and 6 are bad, all of them
    lambda: Waves(bad=frozenset(range(32, 40))), hidden=(64, 64), training={"tasks_per_epoch": 40}
)
CASES: dict[str, Case] = {
    "stacked": Case(),
    "one by one": Case(lambda: Waves(sizes=(4, 5)), meta_batch=5),
    "predictive": Case(learner={"objective": "predictive", "outer_samples": 3}, meta_batch=5),
    "abml": Case(Pool, learner={"objective": "abml", "hyperprior": NormalGammaHyperprior()}, meta_batch=3),
    "point": Case(Pool, learner={"relative_sigma": 0, "adaptation": Descent(2, 0.05, learn_lr="one", kl_weight=0.0)}),
    "labels": Case(lambda: Waves(labels=True), Categorical, outputs=2, meta_batch=3),
    "one task": Case(meta_batch=1, training={"balance_step_sizes": True}),
    "plain layer": Case(learner={"stochastic": r"layers\.2.*"}, training={"balance_step_sizes": True}),
    "closed form": Case(lambda: Waves(sizes=(4, 0, 2)), learner={"adaptation": ClosedForm(components=2)}, meta_batch=5),
    "context": Case(lambda: Waves(sizes=(4, 0, 2)), learner={"adaptation": Context(size=4)}, meta_batch=3),
    "context, closed form": Case(Pool, learner={"adaptation": Context(size=4) + ClosedForm()}),
    "context, descent": Case(learner={"adaptation": Context(size=4) + INNER}, meta_batch=3),
    "read ahead": Case(lambda: Waves(slow=0.004)),
    "bad tasks": Case(lambda: Waves(bad=frozenset({1, 24, 37, 38, 41, 44, 45, 46, 47})), meta_batch=4),
    "whole": HALVED,
    "sharded": Case(**{**vars(HALVED), "shard": True}),
}
ALL_BAD = Case(lambda: Waves(bad=frozenset(range(24, 999))), training={"most_bad_tasks": 8})
"""From meta-step 3 on, so that the search has found something."""


def learned(case: Case) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Theta and moments after all steps; and what happened on the way."""
    trainer, tasks = case.trainer()
    failures: list[str] = []
    losses: list[float] = []
    stopped = None
    try:
        while not trainer.done:
            report = trainer.step()
            losses.append(report.loss)
            failures += [f"{trainer.progress.step}: {failure}" for failure in report.failures]
    except TrainingDiverged as error:
        stopped = str(error)
    state = trainer.optimizer._adam.state.values()
    held = sum(value.numel() for moments in state for name, value in moments.items() if name != "step")
    facts = {
        "losses": [str(loss) for loss in losses],
        "failures": failures,
        "asked": tasks.asked,
        "stacked": trainer.model.how.stacked,
        "progress": str(trainer.progress),
        "stopped": stopped,
        "held": held,
    }
    return trainer.tensors(), facts


def fitted(tasks: Tasks) -> dict[str, Tensor]:
    torch.manual_seed(0)
    learner = MetaLearner(MLP(1, [4], 1).double(), Gaussian(), adaptation=INNER, standardize=False)
    learner.fit(tasks, epochs=2, tasks_per_epoch=6, meta_batch=3, warm_start=2, progress=True)
    return learner.theta_.named()


class PowerFailure(BaseException):
    """Of all processes at once."""


def fail_at(step: int) -> None:
    """From now on a training does not get further."""
    real = Trainer.step

    def failing(self: Trainer) -> Any:
        if self.progress.step == step:
            raise PowerFailure
        return real(self)

    Trainer.step = failing  # type: ignore[method-assign]


def resumed_and_stopped(folder: Path, team: Team) -> list[str]:
    """Go on with the run that one process has begun; begin another one, for one process to go on with."""
    said: list[str] = []
    finish.draw = lambda *_: []
    # On rank 0 alone: it writes the file that it reads.
    train(team.on_first(lambda: request(folder / "one then two", resume=True)), said.append)
    fail_at(11)
    try:
        train(team.on_first(lambda: request(folder / "two then one")), lambda _: None)
    except PowerFailure:
        return said
    raise AssertionError("the run has not stopped")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    descent_module.SEARCH_TASKS = SEARCH_TASKS
    with team_of_torchrun() as team:
        facts: dict[str, Any] = {}
        for name, case in {**CASES, "all bad": ALL_BAD}.items():
            tensors, facts[name] = learned(case)
            save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name} {team.rank}")
        save_file(fitted(Waves()), folder / f"fit {team.rank}")
        facts["runs"] = resumed_and_stopped(folder, team)
        (folder / f"facts {team.rank}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave(0)
