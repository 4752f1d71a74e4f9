"""The training of theta, one step at a time; later steps depend on theta, its moments and ``Progress`` alone."""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from metaprior.adaptation.task_model import MEANS, SCALES, Start, TaskModel
from metaprior.errors import TrainingDiverged
from metaprior.metagrad.meta_batch import BatchSums, MetaBatch, mean_of_pool, sum_over_ranks
from metaprior.metagrad.problem import NonFinite, OuterTerms
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.missing import NO_TARGETS, TargetCount
from metaprior.noise import Noise
from metaprior.tasks.task import Task, Tasks, task_at
from metaprior.team import current_team
from metaprior.training.optimizer import Average, Shards, ThetaOptimizer, movable_copy
from metaprior.training.settings import MetaTraining, Phase, kl_share, learning_rate_factor, phase_at
from metaprior.weights import WeightDistribution

Reading = tuple[bool, range]
"""Tasks to be read: whether from the pooled source, and at which positions."""
Item = TypeVar("Item")
Value = TypeVar("Value")
WORTH_A_THREAD = 0.002
"""Seconds of reading from which the next tasks are read ahead; less is over before a thread has started."""


@dataclass
class Progress:
    """The progress of a training, in numbers alone, so that it can be written to a file."""

    step: int = 0
    """Number of steps done, the warm start included."""
    position: int = 0
    """Number of tasks drawn."""
    bad_tasks: int = 0
    bad_in_a_row: int = 0
    halvings: int = 0
    """How often all step sizes were halved because no task of a meta-batch was finite."""
    plateau_factor: float = 1.0
    best: float = math.inf
    """Lowest validation score so far, among validations in which the fewest tasks failed."""
    fewest_failed: float = math.inf
    """Number of tasks that failed in the best validation."""
    since_best: int = 0
    """Number of validations since the best one."""


@dataclass(frozen=True)
class StepReport:
    """The outcome of a step."""

    phase: Phase
    loss: float
    terms: OuterTerms
    tasks: int
    failures: tuple[NonFinite, ...]
    grad_norms: dict[str, float] = field(default_factory=dict)
    targets: TargetCount = NO_TARGETS

    @property
    def losses(self) -> dict[str, float]:
        """Return the loss and its terms by name."""
        return {"loss": self.loss, **{name: float(value) for name, value in self.terms._asdict().items()}}

    @classmethod
    def of(cls, phase: Phase, batch: MetaBatch, norms: Mapping[str, Tensor]) -> "StepReport":
        """Return the report of a step on a meta-batch; all its numbers are read from a GPU at once."""
        numbers = torch.stack([batch.loss, *batch.terms, *norms.values()]).cpu()
        terms = OuterTerms(*numbers[1 : 1 + len(batch.terms)])
        read = dict(zip(norms, numbers[1 + len(batch.terms) :].tolist(), strict=True))
        return cls(phase, float(numbers[0]), terms, batch.count, batch.failures, read, batch.targets)


class ReadAhead(Generic[Item, Value]):
    """Call ``read``, and where it takes long, read the next item in a second thread meanwhile."""

    def __init__(self, read: Callable[[Item], Value]) -> None:
        self._read = read
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Item, Future[Value]] | None = None

    def __call__(self, item: Item, following: Item | None) -> Value:
        """Return what is read for ``item``; ``following`` is the next item, if there is one."""
        coming, self._coming = self._coming, None
        if coming is not None and coming[0] == item:
            value = coming[1].result()
        else:
            began = time.perf_counter()
            value = self._read(item)
            if self._thread is None and time.perf_counter() - began > WORTH_A_THREAD:
                self._thread = ThreadPoolExecutor(1, "read ahead")
        if following is not None and self._thread is not None:
            self._coming = following, self._thread.submit(self._read, following)
        return value


class Trainer:
    """Theta, its optimiser, and the next step. ``model`` computes the gradients; ``pooled`` is the warm start's own
    source of tasks, if it has one.

    The tasks of a step are divided over the ranks of the current team; theta and everything that decides about the next
    step are the same on all of them. ``sharded``: each holds a part of the optimiser's moments.
    """

    def __init__(
        self,
        model: TaskModel,
        theta: WeightDistribution,
        tasks: Tasks,
        settings: MetaTraining,
        *,
        pooled: Tasks | None = None,
        relative_sigma: float,
        seed: int,
        sharded: bool = False,
    ) -> None:
        self.model, self.tasks, self.settings, self.seed = model, tasks, settings, seed
        self.pooled = tasks if pooled is None else pooled
        self._start = Start(
            self._first_tasks,
            warm_started=settings.warm_start > 0,
            trained=settings.starts_warm,
            relative_sigma=relative_sigma,
            search_step_size=settings.search_step_size,
            balance_step_sizes=settings.balance_step_sizes,
        )
        model.check_start(self._start)
        self.team = current_team()
        self._shards = Shards(self.team if sharded and self.team.size > 1 else None)
        self._hold(theta)
        self.progress = Progress()
        self._average = self._begun_average()
        self._check = TaskChecker(model)
        self._read = ReadAhead(self._tasks_at)

    def _hold(self, theta: WeightDistribution) -> None:
        """Set theta, with a fresh optimiser."""
        self.theta = movable_copy(theta)
        self.optimizer = ThetaOptimizer(self.model.groups(self.theta), self.theta, self.settings, self._shards)

    @property
    def done(self) -> bool:
        """Whether all steps were taken."""
        return self.progress.step >= self.settings.steps

    def step(self) -> StepReport:
        """Take the next step, and return its report."""
        phase = phase_at(self.settings, self.progress.step)
        if self.progress.step == self.settings.warm_start:
            self._begin_meta_training()
        batch = self._gradient(phase)
        norms = self._descend(phase, batch) if batch.count else {}
        if self._average:
            done = self.progress.step + 1
            if batch.count:
                self._average.add(self.theta, done)
            if done == self.settings.warm_start:  # the average becomes theta
                self._hold(self._average.theta)
                self._average = None
        self._count(phase, batch)
        return StepReport.of(phase, batch, norms)

    def _begun_average(self) -> Average | None:
        """Return the average that a warm start under way ends with, if it does."""
        settings = self.settings
        under_way = settings.warm_start_average > 0 and self.progress.step < settings.warm_start
        return Average(self.theta, settings.warm_start_average) if under_way else None

    def _gradient(self, phase: Phase) -> MetaBatch:
        """Return the gradient of this step's meta-batch; every rank computes its share."""
        own = self.team.share(self.settings.meta_batch)
        if phase.pooled:
            sums = sum_over_ranks(
                self.theta, lambda: self._counted(self.model.pooled_sums(self.theta, self._draw(own)))
            )
            return mean_of_pool(sums, self.theta)
        return sum_over_ranks(self.theta, lambda: self._counted(self._meta_sums(phase, own))).mean(self.theta)

    def _counted(self, sums: BatchSums) -> BatchSums:
        """Return the sums of the tasks that were just drawn, with the count of their targets."""
        return replace(sums, targets=self._check.taken())

    def _meta_sums(self, phase: Phase, own: range) -> BatchSums:
        share = kl_share(self.settings, self.progress.step)
        model = self.model if share == 1 else self.model.annealed(share)
        noise = Noise(self.seed).fork("meta-training").at(task=self.progress.position + own.start)
        return model.sums(self.theta, self._draw(own), noise, means_move=phase.moves_means)

    def _draw(self, own: range) -> list[Task]:
        """Return this rank's tasks of this step; those of the next step may be read meanwhile."""
        now, last = self.progress.step, self.settings.steps - 1
        ahead = now < last and all(getattr(source, "thread_safe", False) for source in (self.tasks, self.pooled))
        following = self._reading(now + 1, own) if ahead else None
        return self._check.several(self._read(self._reading(now, own), following))

    def _reading(self, step: int, own: range) -> Reading:
        first = self.progress.position + (step - self.progress.step) * self.settings.meta_batch
        return step < self.settings.warm_start, range(first + own.start, first + own.stop)

    def _tasks_at(self, reading: Reading) -> list[Task]:
        pooled, positions = reading
        return [task_at(self.pooled if pooled else self.tasks, position, self.seed) for position in positions]

    def _descend(self, phase: Phase, batch: MetaBatch) -> dict[str, Tensor]:
        settings, step = self.settings, self.progress.step

        def rate(lr: float, since: int) -> float:
            return lr * learning_rate_factor(settings, step, since) * self.progress.plateau_factor

        rates = {SCALES: rate(settings.scale_lr, 0 if phase.pooled else settings.warm_start)}
        if phase.moves_means:
            rates[MEANS] = rate(settings.warm_start_lr if phase.pooled else settings.lr, phase.start)
        return self.optimizer.descend(batch.grads, rates, settings.grad_clip_norm)

    def _count(self, phase: Phase, batch: MetaBatch) -> None:
        progress, size = self.progress, self.settings.meta_batch
        progress.step += 1
        progress.position += size
        progress.bad_tasks += len(batch.failures)
        if batch.count:
            progress.bad_in_a_row = 0
            return
        progress.bad_in_a_row += size
        if progress.bad_in_a_row >= self.settings.most_bad_tasks:
            last = batch.failures[-1]
            halved = "" if self.theta.log_lr is None else ", but for step sizes that were halved"
            advice = f"{halved}. Also try: {self.model.advice}"
            raise TrainingDiverged(
                f"{progress.bad_in_a_row} tasks in a row had no finite gradient (step {progress.step}); the last was "
                f"{last}. Theta is as it was before them{'' if last.step == 'data' else advice}"
            )
        diverged = any(failure.step != "data" for failure in batch.failures)
        if self.theta.log_lr is not None and not phase.pooled and diverged:
            with torch.no_grad():
                self.theta.log_lr.sub_(math.log(2))
            progress.halvings += 1

    def _begin_meta_training(self) -> None:
        """Set the theta that the model begins with, and fresh moments."""
        self._hold(self.model.begin(self.theta, self._start))

    def _first_tasks(self, count: int) -> tuple[list[Task], Noise]:
        """Return this rank's share of the next tasks, and the noise of its first one."""
        own, first = self.team.share(count), self.progress.position
        drawn = False, range(first + own.start, first + own.stop)
        tasks, _ = self.team.attempt(lambda: [self._check(task) for task in self._tasks_at(drawn)], lambda _: None)
        self._check.taken()  # these targets are counted when they are learned from
        return tasks, Noise(self.seed).fork("step size search").at(task=own.start)

    def note_score(self, score: float, failed: int = 0) -> bool:
        """Record a validation, and return whether it is the best so far.

        Fewer tasks that ``failed`` are better, whatever the others score (without a hard task the mean of the rest is
        lower); of as many, the lower ``score`` is better.
        """
        progress = self.progress
        if math.isfinite(score) and (failed, score) < (progress.fewest_failed, progress.best):
            progress.fewest_failed, progress.best, progress.since_best = failed, score, 0
            return True
        progress.since_best += 1
        if self.settings.schedule == "plateau" and progress.since_best % self.settings.plateau_patience == 0:
            progress.plateau_factor /= 2
        return False

    def tensors(self) -> dict[str, Tensor]:
        """Return theta and the optimiser's moments, by name and whole, however many ranks there are.

        All ranks must call this together; moments, which may be sharded, are returned to the first one alone.
        """
        theta = {f"theta/{name}": value.detach() for name, value in self.theta.named().items()}
        if self._average:
            theta |= {f"average/{name}": value for name, value in self._average.tensors.items()}
        return theta | {f"adam/{name}": value for name, value in self.optimizer.moments() if self.team.first}

    def restore(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Set the state to that of another trainer when it gave its ``tensors`` and its ``progress``."""
        with torch.no_grad():
            for name, value in self.theta.named().items():
                value.copy_(tensors[f"theta/{name}"])
        self._hold(self.theta)
        saved = {name.removeprefix("adam/"): value for name, value in tensors.items() if name.startswith("adam/")}
        self.optimizer.restore_moments(saved)
        self.progress = replace(progress)
        self._average = self._begun_average()
        if self._average:
            for name, value in self._average.tensors.items():
                value.copy_(tensors[f"average/{name}"])
