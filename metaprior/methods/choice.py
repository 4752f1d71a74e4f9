"""``adaptation="auto"``: short trainings of every way of adapting, compared on validation tasks.

Each candidate is trained for a share of the meta-steps, and scored by the mean NLL of its forecasts with 0 shots, 1
shot, half of the shots and all of them. The best one is then trained in full.
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from metaprior.adaptation import WAYS, Adaptation, Combined, kind_of
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.settings import Context
from metaprior.checks import check_share
from metaprior.metagrad.problem import Descent
from metaprior.methods.validation import MOST_TASKS, ValidationScores, validation_scores
from metaprior.tasks.task import Task, Tasks, as_task, as_tasks, length_of
from metaprior.team import current_team
from metaprior.text_table import text_table
from metaprior.training.settings import MetaTraining

if TYPE_CHECKING:
    from metaprior.methods.meta_learner import MetaLearner

CANDIDATES: tuple[Adaptation, ...] = (
    Descent(learn_lr="per_tensor"),
    ClosedForm(),
    Context() + ClosedForm(),
    Context(),
)
HELD_OUT = 5
"""Of a collection without validation tasks every so manieth is held out of the trials; the full training has all."""


@dataclass(frozen=True)
class Trial:
    """A short training of one candidate.

    Args:
        adaptation: the candidate.
        score: mean NLL on validation tasks over all numbers of shots; infinite where it does not work.
        seconds: time of training and scoring.
        reason: why it does not work, if it does not.
    """

    adaptation: Adaptation
    score: float
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class AdaptationChoice:
    """All trials, and the sentence that says which adaptation was taken and why."""

    trials: Sequence[Trial]
    adaptation: Adaptation
    sentence: str

    def table(self) -> str:
        """Return the trials as text, a row each."""
        return text_table(
            [
                {
                    "adaptation": in_words(trial.adaptation),
                    "nll": trial.score if math.isfinite(trial.score) else None,
                    "seconds": trial.seconds,
                    "note": trial.reason,
                }
                for trial in self.trials
            ]
        )

    def __str__(self) -> str:
        return f"{self.table()}\n{self.sentence}"


@dataclass(frozen=True)
class _Part:
    """Tasks of a source at some of its indices."""

    source: Tasks
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Task:
        return self.source[self.indices[index]]

    @property
    def thread_safe(self) -> bool:
        return bool(getattr(self.source, "thread_safe", False))


def fit_chosen(
    learner: "MetaLearner",
    tasks: Tasks,
    settings: MetaTraining,
    options: Mapping[str, Any],
    *,
    share: float,
    validation: Tasks | Mapping[str, Task] | None,
    progress: bool,
) -> None:
    """Choose an adaptation, train it in full, and give what was learned to the learner.

    Args:
        learner: the learner whose adaptation is "auto".
        tasks: the tasks to learn from.
        settings: the settings of the full training.
        options: other arguments of ``fit``.
        share: the share of the meta-steps that each candidate is trained for.
        validation: tasks to compare candidates on; None holds some of the tasks out, or takes later ones.
        progress: show progress bars, and print the choice.
    """
    choice = choose(learner, tasks, settings, share=share, validation=validation, pooled=options.get("pooled"))
    if progress and current_team().first:
        tqdm.write(str(choice))
    chosen = learner_with(learner, choice.adaptation)
    try:
        chosen.fit(tasks, settings, validation=validation, progress=progress, **options)
    finally:
        if "theta_" in vars(chosen):
            learner.adopt(chosen, choice)


def choose(
    learner: "MetaLearner",
    tasks: Tasks,
    settings: MetaTraining,
    *,
    share: float,
    validation: Tasks | Mapping[str, Task] | None = None,
    pooled: Tasks | None = None,
    candidates: Sequence[Adaptation] = CANDIDATES,
) -> AdaptationChoice:
    """Return the adaptation that scores best after a short training; arguments are those of ``fit_chosen``.

    Raises:
        ValueError: if there are no tasks to compare on. If no candidate works, the error of the first one is raised.
    """
    check_share("auto_share", share)
    training, judges = _separated(tasks, settings, validation)
    shots = _shots(judges)
    short = replace(
        settings,
        epochs=1,
        tasks_per_epoch=max(1, round(share * settings.meta_steps)) * settings.meta_batch,
        warm_start=round(share * settings.warm_start),
    )
    trials, errors = list[Trial](), list[Exception]()
    for candidate in candidates:
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trained = learner_with(learner, candidate).fit(training, short, pooled=pooled, progress=False)
            found, reason = validation_scores(trained, judges, shots), ""
            score = found.score
            if not math.isfinite(score):
                reason = _failures(found)
        except (ValueError, TypeError, RuntimeError, FloatingPointError) as error:
            errors.append(error)
            score, reason = math.inf, str(error)
        trials.append(Trial(candidate, score, time.perf_counter() - began, reason))
    best, *others = sorted(trials, key=lambda trial: trial.score)
    if not math.isfinite(best.score):
        if errors:
            raise errors[0]
        raise FloatingPointError(f"no way of adapting has a finite score. {in_words(best.adaptation)}: {best.reason}")
    return AdaptationChoice(trials, best.adaptation, _sentence(best, others, len(judges), shots, short, settings))


def in_words(adaptation: Any) -> str:
    """Return an adaptation as it would be written, without the settings that are defaults."""
    if isinstance(adaptation, Combined):
        return " + ".join(map(in_words, adaptation.parts))
    changed = [entry for entry in fields(adaptation) if getattr(adaptation, entry.name) != entry.default]
    given = ", ".join(f"{entry.name}={getattr(adaptation, entry.name)!r}" for entry in changed)
    return f"{type(adaptation).__name__}({given})"


def learner_with(learner: "MetaLearner", adaptation: Adaptation) -> "MetaLearner":
    """Return a learner with the same arguments and another adaptation, not fitted.

    Which weights are random, and how to differentiate through steps, are settings for adaptations that have either.
    """
    random = WAYS[kind_of(adaptation)].random_weights
    return type(learner)(
        learner.module,
        learner.likelihood,
        adaptation=adaptation,
        objective=learner.objective,
        outer_samples=learner.outer_samples,
        hyperprior=learner.hyperprior,
        stochastic=learner.stochastic if random else None,
        relative_sigma=learner.relative_sigma,
        standardize=learner.standardize,
        memory=learner.memory,
        engine=learner.engine if random else None,
        seed=learner.seed,
    )


def _separated(
    tasks: Tasks, settings: MetaTraining, validation: Tasks | Mapping[str, Task] | None
) -> tuple[Tasks, _Part]:
    """Return the tasks that candidates are trained on, and others to compare them on."""
    if validation is not None:
        judges = as_tasks(validation)
        return tasks, _Part(judges, range(min(MOST_TASKS, length_of(judges) or MOST_TASKS)))
    count = length_of(tasks)
    if count is None:  # every position is another task, and the full training ends before these
        first = settings.steps * settings.meta_batch
        return tasks, _Part(tasks, range(first, first + MOST_TASKS))
    if count < 2:
        raise ValueError(
            f"adaptation='auto' compares adaptations on tasks that are not learned from, and there is {count} task "
            "in all. Try fit(tasks, validation=other_tasks)"
        )
    held_out = range(0, count, HELD_OUT)
    rest = [index for index in range(count) if index % HELD_OUT]
    return _Part(tasks, rest), _Part(tasks, held_out[:MOST_TASKS])


def _shots(tasks: _Part) -> list[int | None]:
    """Return 0, 1, half of the shots that all tasks have, and None for all."""
    least = min(len(as_task(tasks[index]).support.x) for index in range(len(tasks)))
    return [0, *sorted({count for count in (1, least // 2) if 0 < count <= least}), None]


def _failures(found: ValidationScores) -> str:
    failures = found.evaluation.failures
    return f"{len(failures)} forecasts were not finite; the first: {failures[0].message}" if failures else "NLL is NaN"


def _sentence(
    best: Trial,
    others: Sequence[Trial],
    tasks: int,
    shots: Sequence[int | None],
    short: MetaTraining,
    settings: MetaTraining,
) -> str:
    counts = ", ".join("all" if count is None else str(count) for count in shots)
    second = next((trial for trial in others if math.isfinite(trial.score)), None)
    than = "the only one that works"
    if second is not None:
        than = f"{second.score - best.score:.2g} below that of {in_words(second.adaptation)}, the next"
    return (
        f"{in_words(best.adaptation)} was taken: its mean NLL over {counts} shots of {tasks} validation tasks is "
        f"{best.score:.4g}, {than}, after {short.meta_steps} of {settings.meta_steps} meta-steps each"
    )
