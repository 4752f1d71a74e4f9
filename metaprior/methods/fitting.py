"""What a meta-learner's ``fit`` is made of: a trainer, epochs with validation, a warning about an idle adaptation."""

import math
import warnings
from dataclasses import InitVar, asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from metaprior import checks
from metaprior.adaptation.task_model import HowGradients, TaskModel
from metaprior.callbacks import Callbacks, Fit, Listeners
from metaprior.errors import TrainingDiverged
from metaprior.history import EpochRecord
from metaprior.metagrad.memory import bytes_of
from metaprior.methods.target_units import pooled_targets
from metaprior.methods.validation import ValidationScores, validation_scores
from metaprior.tasks.task import Task, Tasks, VariedSupport, length_of, task_at
from metaprior.team import current_team
from metaprior.team.agreement import refuse_disagreement, task_digest, tensors_digest
from metaprior.training.epoch import Summary, refuse_nothing_learned, run_steps
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer
from metaprior.weights import WeightDistribution

if TYPE_CHECKING:
    from metaprior.methods.meta_learner import MetaLearner

JUDGED_FROM = 100
"""Meta-steps from which it is worth saying that adaptation gains nothing: a shorter training has hardly begun."""
LAST_TASKS = 20
"""Training tasks, the last ones, that adaptation is judged by where there are no validation tasks."""
WHAT_TO_TRY = (
    "If tasks are alike, a plain network does as well. Otherwise try: another adaptation (ClosedForm(), Context()); "
    "with Descent a larger lr, more steps, search_step_size=False, or an adapt pattern that matches more layers; "
    "inputs of order 1; a longer training"
)


def make_trainer(
    learner: "MetaLearner",
    tasks: Tasks,
    settings: MetaTraining,
    pooled: Tasks | None = None,
    *,
    shard: bool = False,
    before: HowGradients | None = None,
) -> Trainer:
    """Return the training of a learner; arguments are those of ``MetaLearner.trainer``. All ranks call it together."""
    team = current_team()
    budget, together = learner.budget, max(1, len(team.share(settings.meta_batch)))
    if team.size > 1:  # processes on one machine share what is free, and all take the smallest budget
        own = partial(bytes_of, budget.memory, processes=team.on_this_machine, device=learner.network.device)
        _, found = team.attempt(own, lambda amount: amount)
        budget = budget._replace(memory=min(found))

    def drawn(shots: tuple[int, ...]) -> Tasks:
        sizes = [count * learner.examples_per_shot for count in shots]
        return VariedSupport(tasks, sizes, settings.meta_batch, learner.seed) if sizes else tasks

    def begin() -> tuple[WeightDistribution, TaskModel, Task]:
        count = length_of(tasks) or max(1, settings.epochs * settings.tasks_per_epoch)
        largest = (max(settings.shots),) if settings.shots else ()  # which need most memory
        first = learner.look_at(drawn(largest), settings.meta_batch)
        model = learner.task_model(count)
        theta = model.initial(pooled_targets(first), learner.relative_sigma)
        checks.warn_of_scale(first[0].query.x)
        return theta, model.prepared(theta, first[:together], budget, learner.engine, before=before), first[0]

    def must_agree(begun: tuple[WeightDistribution, TaskModel, Task]) -> dict[str, object]:
        return {
            **asdict(settings),
            "seed": learner.seed,
            "data of the first task": task_digest(begun[2]),
            "first theta (seed torch before the module is made)": tensors_digest(begun[0].tensors()),
        }

    (theta, model, _), facts = team.attempt(begin, must_agree if team.size > 1 else lambda begun: {})
    team.on_first(lambda: refuse_disagreement(facts))
    return Trainer(
        model,
        theta,
        learner.units.tasks(drawn(settings.shots)),
        settings,
        pooled=None if pooled is None else learner.units.tasks(pooled),
        relative_sigma=learner.relative_sigma,
        seed=learner.seed,
        sharded=shard,
    )


@dataclass
class Epochs:
    """The epochs of one fit so far; arguments are those of ``MetaLearner.fit``."""

    learner: "MetaLearner"
    trainer: Trainer
    validation: Tasks | None
    keep_best: bool
    callbacks: InitVar[Callbacks]
    progress: InitVar[bool]
    summaries: list[Summary] = field(default_factory=list)
    records: list[EpochRecord] = field(default_factory=list)
    """The records for ``history_``."""
    scores: ValidationScores | None = None
    """Those of the last epoch, if its validation was possible."""
    best: WeightDistribution | None = None
    """Theta of the best epoch, if that is what is kept."""

    def __post_init__(self, callbacks: Callbacks, progress: bool) -> None:
        lengths, steps = epoch_lengths(self.trainer.settings), self.trainer.settings.steps
        fit = Fit(
            self.learner,
            "Meta-Training",
            epochs=len(lengths),
            steps=steps,
            fitted=self._fitted,
            keep=self._keep_present,
            validates=self.validation is not None,
        )
        self._listeners = Listeners(fit, callbacks, progress=progress)

    def run(self) -> None:
        """Take all epochs, until a callback stops them."""
        with self._listeners as listeners:
            for length in epoch_lengths(self.trainer.settings):
                self._take(length)
                listeners.after_epoch(self.records[-1])
                if listeners.fit.stopped is not None:
                    break

    def learned_before(self, stopped: BaseException) -> bool:
        """Return whether what was learned before an error is good: hours of work, which are not thrown away."""
        usable = isinstance(stopped, TrainingDiverged | KeyboardInterrupt) or stopped is self._listeners.error
        return usable and self.trainer.progress.position > self.trainer.progress.bad_tasks

    @property
    def theta(self) -> WeightDistribution:
        """The theta that the fit ends with, if it ends now."""
        return self.best or self.trainer.theta.detached()

    def _take(self, steps: int) -> None:
        """Take the steps of an epoch and validate; raise TrainingDiverged if no task of it had a finite gradient."""
        trainer, listeners = self.trainer, self._listeners
        summary = run_steps(trainer, steps, lambda report: listeners.after_step(lambda: report.losses))
        self.summaries.append(summary)
        self.records.append(summary.record(len(self.summaries)))
        self.scores = None
        refuse_nothing_learned(summary)
        if trainer.progress.step <= trainer.settings.warm_start:
            return
        score, failed = summary.loss, 0
        if self.validation is not None:
            self.scores = found = self._validated(trainer.theta.detached())
            if found:
                score, failed = found.after, found.failed
            after, before = (found.after, found.before) if found else (math.nan, math.nan)
            self.records[-1] = replace(self.records[-1], validation=after, validation_before=before)
        if trainer.note_score(score, failed) and self.keep_best:
            self._keep_present()

    def _validated(self, theta: WeightDistribution) -> ValidationScores | None:
        try:
            return validation_scores(self.learner.with_theta(theta), self.validation)  # type: ignore[arg-type]
        except FloatingPointError:  # no task could be scored: training may still come out of it
            return None

    def _keep_present(self) -> None:
        self.best = self.trainer.theta.detached()

    def _fitted(self) -> "MetaLearner":
        """Return a learner with the present theta, not calibrated."""
        learner = self.learner.with_theta(self.trainer.theta.detached())
        learner.history_ = [*self.records]
        return learner


def epoch_lengths(settings: MetaTraining) -> list[int]:
    """Return the number of steps of every epoch; a warm start is the first."""
    return [settings.warm_start] * (settings.warm_start > 0) + [settings.steps_per_epoch] * settings.epochs


def warn_if_idle(learner: "MetaLearner", epochs: Epochs, tasks: Tasks) -> None:
    """Warn once if adaptation changes nothing: step sizes have vanished, or scores are the same with and without it.

    The scores are those of the last validation; without any, of the last training ``tasks`` that have support examples.
    """
    trainer = epochs.trainer
    settings, position = trainer.settings, trainer.progress.position
    if trainer.progress.step - settings.warm_start < JUDGED_FROM:
        return
    reason = learner.task_model().idle(learner.theta_)
    if reason is None:
        scores = epochs.scores
        if scores is None and epochs.validation is None:
            first = max(settings.warm_start * settings.meta_batch, position - LAST_TASKS)
            last = [task_at(tasks, number, learner.seed) for number in range(first, position)]
            scores = _scored([task for task in last if len(task.support[0])], learner)
        reason = scores.idle() if scores else None
    if reason is not None and trainer.team.first:
        warnings.warn(f"{reason}. {WHAT_TO_TRY}", stacklevel=3)


def _scored(tasks: list[Task], learner: "MetaLearner") -> ValidationScores | None:
    try:
        return validation_scores(learner, tasks) if tasks else None
    except (FloatingPointError, ValueError):  # the training has warned of bad tasks already
        return None
