"""The training of theta, one step at a time. Everything that a later step depends on is in ``Progress`` and theta."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from metaprior.metagrad.meta_batch import MetaBatch, meta_gradient
from metaprior.metagrad.problem import LOG_LR, Engine, NonFinite, OuterTerms, Problem
from metaprior.noise import Noise
from metaprior.tasks.source import Tasks, task_at
from metaprior.tasks.task import Task
from metaprior.training.door import Door
from metaprior.training.gradient_choice import Stacker
from metaprior.training.optimizer import (
    MEANS,
    SCALES,
    descend,
    leaves_of,
    make_optimizer,
    moments,
    named_tensors,
    restore_moments,
)
from metaprior.training.phases import Phase, annealed, learning_rate_factor, phase_at
from metaprior.training.pooled import pooled_gradient
from metaprior.training.settings import MetaTraining
from metaprior.training.step_size_search import searched_step_sizes
from metaprior.weights import WeightDistribution

SEARCH_TASKS = 8
SHARE, SHARE_WARM = 0.25, 0.9
"""Share of the best step size's gain with which a shorter one will do, from scratch and after a warm start.

Steps that suit a network that knows nothing yet are ten times too long a little later (sinusoids trained from the best
ended at twice the error), and short ones grow by learning."""


class MetaTrainingStopped(ArithmeticError):
    """Too many tasks in a row without a finite gradient; theta is the last good one."""


@dataclass
class Progress:
    """Where a training stands; numbers alone, so that it can be written down."""

    step: int = 0
    """Steps done, the warm start included."""
    position: int = 0
    """Tasks drawn."""
    bad_tasks: int = 0
    bad_in_a_row: int = 0
    halvings: int = 0
    """How often all step sizes were halved, because no task of a meta-batch was finite."""
    plateau_factor: float = 1.0
    best: float = math.inf
    """Lowest validation score so far, and"""
    since_best: int = 0
    """validations since."""


@dataclass(frozen=True)
class StepReport:
    """What a step did."""

    phase: Phase
    loss: float
    terms: OuterTerms
    tasks: int
    failures: tuple[NonFinite, ...]
    grad_norms: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Theta, its optimiser, and the next step. ``engine`` and ``stacked`` say how gradients are computed; ``pooled`` is
    the warm start's own source of tasks, if it has one."""

    def __init__(
        self,
        problem: Problem,
        theta: WeightDistribution,
        tasks: Tasks,
        settings: MetaTraining,
        *,
        pooled: Tasks | None = None,
        engine: Engine,
        stacked: bool,
        relative_sigma: float,
        seed: int,
    ) -> None:
        if settings.balance_step_sizes and problem.inner.learn_lr != "per_tensor":
            raise ValueError(
                "balance_step_sizes gives every tensor a step size of its own, which needs "
                f"inner.learn_lr='per_tensor'; got {problem.inner.learn_lr!r}"
            )
        self.problem, self.tasks, self.settings = problem, tasks, settings
        self.pooled = tasks if pooled is None else pooled
        self.engine, self.stacked, self.relative_sigma, self.seed = engine, stacked, relative_sigma, seed
        self.theta = leaves_of(theta)
        self.optimizer = make_optimizer(problem, self.theta, settings)
        self.progress = Progress()
        self._door, self._stacker = Door(problem), Stacker(problem, engine)

    @property
    def done(self) -> bool:
        """Whether all steps are taken."""
        return self.progress.step >= self.settings.steps

    def step(self) -> StepReport:
        """Take the next step of the present phase."""
        phase = phase_at(self.settings, self.progress.step)
        if self.progress.step == self.settings.warm_start:
            self._begin_meta_training()
        tasks = self._draw(self.pooled if phase.pooled else self.tasks, self.settings.meta_batch)
        batch = self._gradient(phase, tasks)
        norms = self._descend(phase, batch) if batch.count else {}
        self._count(phase, tasks, batch)
        return StepReport(phase, float(batch.loss), batch.terms, batch.count, batch.failures, norms)

    def _draw(self, source: Tasks, count: int) -> list[Task]:
        return [self._door(task_at(source, self.progress.position + i, self.seed)) for i in range(count)]

    def _gradient(self, phase: Phase, tasks: Sequence[Task]) -> MetaBatch:
        if phase.pooled:
            return pooled_gradient(self.problem, self.theta, tasks)
        problem = replace(annealed(self.problem, self.settings, self.progress.step), learn_trunk=phase.moves_means)
        noise = Noise(self.seed).fork("meta-training").at(task=self.progress.position)
        stacked = self.stacked and self._stacker(tasks)
        return meta_gradient(problem, self.theta, tasks, noise, engine=self.engine, stacked=stacked)

    def _descend(self, phase: Phase, batch: MetaBatch) -> dict[str, float]:
        settings, step = self.settings, self.progress.step

        def rate(lr: float, since: int) -> float:
            return lr * learning_rate_factor(settings, step, since) * self.progress.plateau_factor

        rates = {SCALES: rate(settings.scale_lr, 0 if phase.pooled else settings.warm_start)}
        if phase.moves_means:
            rates[MEANS] = rate(settings.warm_start_lr if phase.pooled else settings.lr, phase.start)
        return descend(self.optimizer, self.theta, batch.grads, rates, self.settings.grad_clip_norm)

    def _count(self, phase: Phase, tasks: Sequence[Task], batch: MetaBatch) -> None:
        progress = self.progress
        progress.step += 1
        progress.position += len(tasks)
        progress.bad_tasks += len(batch.failures)
        if batch.count:
            progress.bad_in_a_row = 0
            return
        progress.bad_in_a_row += len(tasks)
        if progress.bad_in_a_row >= self.settings.most_bad_tasks:
            raise MetaTrainingStopped(self._why_stopped(batch.failures[-1]))
        if LOG_LR in self.theta.plain and not phase.pooled:
            with torch.no_grad():
                self.theta.plain[LOG_LR] -= math.log(2)
            progress.halvings += 1

    def _why_stopped(self, last: NonFinite) -> str:
        return (
            f"{self.progress.bad_in_a_row} tasks in a row had no finite gradient (step {self.progress.step}); the last "
            f"was {last}. Theta is as it was before them, but for step sizes that were halved. Also try: a warm "
            "start, learned step sizes (inner.learn_lr), a smaller inner.kl_weight, a smaller lr"
        )

    def _begin_meta_training(self) -> None:
        """After the warm start: scales that fit the means, a first step size that works, fresh moments."""
        theta = self.theta
        if self.settings.warm_start:
            theta = theta._replace(rho=self.problem.network.relative_rho(theta.mu.detach(), self.relative_sigma))
        if LOG_LR in theta.plain and self.settings.search_step_size:
            noise = Noise(self.seed).fork("step size search")
            share = SHARE_WARM if self.settings.starts_warm else SHARE
            tasks = self._draw(self.tasks, SEARCH_TASKS)
            balanced = self.settings.balance_step_sizes
            theta = searched_step_sizes(self.problem, theta, tasks, noise, share=share, balanced=balanced)
        self.theta = leaves_of(theta)
        self.optimizer = make_optimizer(self.problem, self.theta, self.settings)

    def note_score(self, score: float) -> bool:
        """Take note of a validation score (lower is better); true if it is the best so far."""
        progress = self.progress
        if score < progress.best:
            progress.best, progress.since_best = score, 0
            return True
        progress.since_best += 1
        if self.settings.schedule == "plateau" and progress.since_best % self.settings.plateau_patience == 0:
            progress.plateau_factor /= 2
        return False

    def tensors(self) -> dict[str, Tensor]:
        """Theta and the optimiser's moments, by name."""
        theta = {f"theta/{name}": value.detach() for name, value in named_tensors(self.theta).items()}
        return theta | {f"adam/{name}": value for name, value in moments(self.optimizer, self.theta)}

    def restore(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Stand where another trainer stood when it gave its ``tensors`` and its ``progress``."""
        with torch.no_grad():
            for name, value in named_tensors(self.theta).items():
                value.copy_(tensors[f"theta/{name}"])
        self.optimizer = make_optimizer(self.problem, self.theta, self.settings)
        saved = {name.removeprefix("adam/"): value for name, value in tensors.items() if name.startswith("adam/")}
        restore_moments(self.optimizer, self.theta, saved)
        self.progress = replace(progress)
