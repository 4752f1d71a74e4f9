"""``adaptation="auto"``: every way of adapting is tried on validation tasks, by successive halving.

All candidates are trained for some meta-steps and scored by the mean NLL of their forecasts with 0 shots, 1 shot, half
of the shots and all of them. The better half goes on from where it stopped, and so on (Jamieson & Talwalkar 2016); the
best of the last two is then trained in full. All rounds have the same number of meta-steps in total, so a candidate
that is left is trained twice as long in the next one.

Candidates are compared after equal numbers of meta-steps, because that is what ``fit`` trains for: the choice is a
function of the seed, and several processes agree about it. ``Trial.seconds`` says what each way costs.
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from metaprior.adaptation import WAYS, Adaptation, Combined, describe, kind_of, restore
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.settings import Context
from metaprior.checks import check_share
from metaprior.metagrad.problem import Descent
from metaprior.methods.validation import ERRORS, ValidationScores, validation_scores
from metaprior.progress import progress_bar, write_line
from metaprior.scores import standard_error
from metaprior.tasks.task import Task, Tasks, as_task, as_tasks, length_of
from metaprior.team import current_team
from metaprior.text_table import finite_or_none, text_table
from metaprior.training.epoch import refuse_nothing_learned, run_steps
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

if TYPE_CHECKING:
    from metaprior.methods.meta_learner import MetaLearner

CANDIDATES: tuple[Adaptation, ...] = (
    Descent(learn_lr="per_tensor"),
    ClosedForm(),
    Context() + ClosedForm(),
    Context(),
)
LEAST_STEPS = 40
"""Meta-steps that every candidate is tried for at least. On sinusoids the best two of 160 meta-steps led from 20 on;
after 10, candidates were still ordered by the values that they start with."""
MOST_TASKS = 50
"""Tasks that candidates are compared on."""
HELD_OUT = 5
"""Of a collection without validation tasks every so manieth is held out of the trials; the full training has all."""


@dataclass(frozen=True)
class Trial:
    """The trial of one candidate.

    Args:
        adaptation: the candidate.
        steps: meta-steps after which it was scored last.
        score: mean NLL on validation tasks over all numbers of shots; infinite where it does not work.
        seconds: time of training and scoring.
        reason: why it does not work, if it does not.
    """

    adaptation: Adaptation
    steps: int
    score: float
    seconds: float = field(compare=False)
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
                    "steps": trial.steps,
                    "nll": trial.score if math.isfinite(trial.score) else None,
                    "seconds": trial.seconds,
                    "note": trial.reason,
                }
                for trial in self.trials
            ]
        )

    def __str__(self) -> str:
        return f"{self.table()}\n{self.sentence}"

    def as_json(self) -> dict[str, Any]:
        """Return the choice for a file; infinite scores become None."""
        trials = [{**vars(trial), "adaptation": describe(trial.adaptation)} for trial in self.trials]
        content = {"trials": trials, "adaptation": describe(self.adaptation), "sentence": self.sentence}
        return finite_or_none(content)  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "AdaptationChoice":
        """Return what ``as_json`` described."""

        def trial(own: Mapping[str, Any]) -> Trial:
            score = math.inf if own["score"] is None else own["score"]
            return Trial(**{**own, "adaptation": restore(own["adaptation"]), "score": score})

        return cls([trial(own) for own in content["trials"]], restore(content["adaptation"]), content["sentence"])


class Round(NamedTuple):
    """A round of successive halving: its candidates are compared after so many meta-steps, counted from the first."""

    candidates: int
    steps: int


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


@dataclass(frozen=True)
class _Trials:
    """What all trials have in common: what they learn from, and the tasks and shots that they are compared on."""

    tasks: Tasks
    settings: MetaTraining
    pooled: Tasks | None
    judges: _Part
    shots: Sequence[int | None]


class _Candidate:
    """A candidate's training so far."""

    def __init__(self, learner: "MetaLearner", adaptation: Adaptation) -> None:
        self.trial = Trial(adaptation, 0, math.inf, 0.0)
        self.by_task = dict[int, float]()
        self.error: Exception | None = None
        self._learner = learner_with(learner, adaptation)
        self._trainer: Trainer | None = None

    def go_on(self, steps: int, common: _Trials) -> None:
        """Train from where the trial stopped to so many meta-steps, and score."""
        began, score, reason = time.perf_counter(), math.inf, ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self._scores(steps, common)
            self.by_task, score = found.by_task, found.score
            if not math.isfinite(score):
                reason = _failures(found)
        except (ValueError, TypeError, RuntimeError, FloatingPointError) as error:
            self.error, reason = error, str(error)
        seconds = self.trial.seconds + time.perf_counter() - began
        self.trial = replace(self.trial, steps=steps, score=score, seconds=seconds, reason=reason)

    def _scores(self, steps: int, common: _Trials) -> ValidationScores:
        self._trainer = trainer = self._trainer or self._learner.trainer(common.tasks, common.settings, common.pooled)
        count = common.settings.warm_start + steps - trainer.progress.step
        refuse_nothing_learned(run_steps(trainer, count))
        return validation_scores(self._learner.with_theta(trainer.theta.detached()), common.judges, common.shots)

    def leave(self) -> None:
        """Free theta and its moments."""
        self._trainer = None


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
        share: the share of the meta-steps that all trials take together.
        validation: tasks to compare candidates on; None holds some of the tasks out, or takes later ones.
        progress: show progress bars, and print the choice.
    """
    shown, pooled = progress and current_team().first, options.get("pooled")
    choice = choose(learner, tasks, settings, share=share, validation=validation, pooled=pooled, progress=shown)
    if shown:
        write_line(str(choice))
    chosen = learner_with(learner, choice.adaptation)
    try:
        chosen.fit(tasks, settings, validation=validation, progress=progress, **options)
    finally:
        if "theta_" in vars(chosen):
            learned = {name: value for name, value in vars(chosen).items() if name.endswith("_")}
            vars(learner).update(learned, network=chosen.network, _scalar_targets=chosen._scalar_targets)
            learner.choice_ = choice


def choose(
    learner: "MetaLearner",
    tasks: Tasks,
    settings: MetaTraining,
    *,
    share: float,
    validation: Tasks | Mapping[str, Task] | None = None,
    pooled: Tasks | None = None,
    progress: bool = False,
    candidates: Sequence[Adaptation] = CANDIDATES,
) -> AdaptationChoice:
    """Return the adaptation that successive halving ends with; arguments are those of ``fit_chosen``.

    Raises:
        ValueError: if there is nothing to compare by. If no candidate works, the error of the first one is raised.
    """
    check_share("auto_share", share)
    rounds = rounds_of(len(candidates), share, settings.meta_steps)
    longest = rounds[-1].steps
    training, judges = _separated(tasks, settings, validation)
    short = replace(
        settings,
        epochs=1,
        tasks_per_epoch=longest * settings.meta_batch,
        warm_start=round(settings.warm_start * longest / settings.meta_steps),
    )
    common = _Trials(training, short, pooled, judges, _shots(judges, learner.examples_per_shot))
    tried = [_Candidate(learner, adaptation) for adaptation in candidates]
    left = tried
    with progress_bar("Trials", sum(own.candidates for own in rounds), unit="trials", show=progress) as bar:
        for count, steps in rounds:
            for loser in left[count:]:
                loser.leave()
            for candidate in left[:count]:
                candidate.go_on(steps, common)
                bar.update()
            left = [one for one in left[:count] if math.isfinite(one.trial.score)]
            left.sort(key=lambda one: one.trial.score)
            if len(left) < 2:
                break
    if not left:
        nothing = FloatingPointError(f"no way of adapting has a finite score: {tried[0].trial.reason}")
        raise next((one.error for one in tried if one.error), nothing)
    trials, sentence = [one.trial for one in tried], _sentence(left, rounds, common)
    return AdaptationChoice(trials, left[0].trial.adaptation, sentence)


def rounds_of(candidates: int, share: float, meta_steps: int) -> list[Round]:
    """Return rounds that together take a share of the meta-steps of a training, each of them as many as the others.

    Every candidate is tried for at least ``LEAST_STEPS``, with a warning if that takes more than the share, and none
    for longer than the training.
    """
    if not meta_steps:
        raise ValueError("epochs must be at least 1 with adaptation='auto', which compares by meta-steps, got 0")
    counts = [candidates]
    while counts[-1] > 2:
        counts.append(math.ceil(counts[-1] / 2))
    given, least = round(share * meta_steps), len(counts) * candidates * LEAST_STEPS
    rounds = list[Round]()
    steps = accumulate(max(given, least) // (len(counts) * count) for count in counts)
    for count, after in zip(counts, steps, strict=True):
        if not rounds or rounds[-1].steps < meta_steps:
            rounds.append(Round(count, min(after, meta_steps)))
    if given < least and current_team().first:
        warnings.warn(
            f"auto_share={share} of {meta_steps} meta-steps is {given}, too few to tell {candidates} adaptations "
            f"apart: each is tried for at least {rounds[0].steps} instead. Train longer (epochs, tasks_per_epoch), or "
            "give an adaptation such as ClosedForm()",
            stacklevel=5,
        )
    return rounds


def in_words(adaptation: Any) -> str:
    """Return an adaptation as it would be written, without the settings that are defaults."""
    if isinstance(adaptation, Combined):
        return " + ".join(map(in_words, adaptation.parts))
    if not is_dataclass(adaptation):  # "auto", or what a mistake has put there
        return repr(adaptation)
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
        scratch=learner.scratch,
        engine=learner.engine if random else None,
        examples_per_shot=learner.examples_per_shot,
        seed=learner.seed,
        device=learner.device,
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


def _shots(tasks: _Part, each: int) -> list[int | None]:
    """Return 0, 1, half of the shots that all tasks have, and None for all."""
    least = min(as_task(tasks[index]).support.size for index in range(len(tasks))) // each
    return [0, *sorted({count for count in (1, least // 2) if 0 < count <= least}), None]


def _failures(found: ValidationScores) -> str:
    failures = found.evaluation.failures
    return f"{len(failures)} forecasts were not finite; the first: {failures[0].message}" if failures else "NLL is NaN"


def _sentence(left: Sequence[_Candidate], rounds: Sequence[Round], common: _Trials) -> str:
    """Return which of the candidates that are left, best first, was taken, and why."""
    best = left[0].trial
    counts, tasks = ", ".join("all" if count is None else str(count) for count in common.shots), len(common.judges)
    than = "the only one that works"
    if len(left) > 1:
        gains = [nll - left[0].by_task[index] for index, nll in left[1].by_task.items()]
        error = standard_error(torch.tensor(gains, dtype=torch.float64))
        gain = math.fsum(gains) / len(gains)
        noise = ", which is within noise" if gain <= ERRORS * error else ""
        than = f"{gain:.2g} ± {error:.2g} below that of {in_words(left[1].trial.adaptation)}{noise}"
    tried = ", then ".join(f"{own.candidates} after {own.steps}" for own in rounds if own.steps <= best.steps)
    return (
        f"{in_words(best.adaptation)} was taken: its mean NLL over {counts} shots of {tasks} validation tasks is "
        f"{best.score:.4g}, {than} (adaptations compared: {tried} meta-steps)"
    )
