"""What a meta-learner's ``fit`` is made of: a trainer, epochs with validation, a warning about an idle adaptation."""

import warnings
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from metaprior import checks
from metaprior.adaptation.task_model import HowGradients, TaskModel
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
    """The epochs of one fit so far."""

    learner: "MetaLearner"
    validation: Tasks | None
    keep_best: bool
    summaries: list[Summary] = field(default_factory=list)
    scores: list[ValidationScores | None] = field(default_factory=list)
    best: WeightDistribution | None = None
    """Theta of the best epoch, if that is what is kept."""

    def run(self, trainer: Trainer, steps: int, *, progress: bool) -> None:
        """Take the steps of an epoch and validate; raise TrainingDiverged if no task of it had a finite gradient."""
        self.summaries.append(run_steps(trainer, steps, progress=progress and trainer.team.first, shown=self._shown))
        self.scores.append(None)
        refuse_nothing_learned(self.summaries[-1])
        if trainer.progress.step <= trainer.settings.warm_start:
            return
        score, failed = self.summaries[-1].loss, 0
        if self.validation is not None and (found := self._validated(trainer.theta.detached())):
            self.scores[-1], score, failed = found, found.after, found.failed
        if trainer.note_score(score, failed) and self.keep_best:
            self.best = trainer.theta.detached()

    def _validated(self, theta: WeightDistribution) -> ValidationScores | None:
        try:
            return validation_scores(self.learner.with_theta(theta), self.validation)  # type: ignore[arg-type]
        except FloatingPointError:  # no task could be scored: training may still come out of it
            return None

    @property
    def _shown(self) -> dict[str, str]:
        last = next((one for one in reversed(self.scores) if one), None)
        return {"validation": f"{last.before:.3g} -> {last.after:.3g}"} if last else {}

    def records(self) -> list[EpochRecord]:
        """Return the records for ``history_``."""
        records = [summary.record(number) for number, summary in enumerate(self.summaries, start=1)]
        return [
            replace(record, validation=found.after, validation_before=found.before) if found else record
            for record, found in zip(records, self.scores, strict=False)
        ]


def warn_if_idle(learner: "MetaLearner", trainer: Trainer, epochs: Epochs, tasks: Tasks) -> None:
    """Warn once if adaptation changes nothing: step sizes have vanished, or scores are the same with and without it.

    The scores are those of the last validation; without any, of the last training ``tasks`` that have support examples.
    """
    settings, position = trainer.settings, trainer.progress.position
    if settings.meta_steps < JUDGED_FROM:
        return
    reason = learner.task_model().idle(learner.theta_)
    if reason is None:
        scores = epochs.scores[-1]
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
