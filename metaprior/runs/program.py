"""``metaprior train``: ``train`` and the loop over epochs; what they stand on is in the other files of this folder."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

from metaprior.errors import TrainingDiverged
from metaprior.evaluation import NLL_PER_VALUE
from metaprior.metagrad.memory import peak_memory
from metaprior.methods.fitting import JUDGED_FROM
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.checkpoints import CheckpointName, CheckpointWriter, Position, way_of_checkpoint
from metaprior.runs.config import Config
from metaprior.runs.finish import finish, save_prior
from metaprior.runs.folder import EpochLine, RunFolder
from metaprior.runs.opening import Say, bring_folder_to, has_work, open_run, restored_position
from metaprior.runs.outlook import StepTimes, intention, next_commands, time_left
from metaprior.runs.sources import LearnedRun, TaskSource
from metaprior.runs.tensorboard import EventFiles, event_files
from metaprior.runs.validation import Validation, Validator
from metaprior.team import current_team
from metaprior.text_table import finite_or_none
from metaprior.training.epoch import Summary, step_bar
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

STARTED, SAVED = "started", "saved"
"""Notes for processes that torchrun starts again: whether the folder is theirs, and whether ``last`` is up to date."""
WHAT_TO_TRY = (
    "If tasks are alike, a plain network does as well. Otherwise try --set adaptation.kind=closed_form or context; "
    "with descent a larger adaptation.lr, more adaptation.steps, meta.search_step_size=false, or an adaptation.adapt "
    "that matches more layers; inputs of order 1; more meta.epochs"
)


@dataclass(frozen=True)
class Request:
    """What is asked for on the command line.

    Args:
        config: the configuration.
        text: its file as it was given.
        folder: the folder of the run.
        command: the command line, for the run's records.
        resume: go on with the run in the folder.
        resume_from: the checkpoint to go on from.
        progress: show progress bars.
        shard: of several processes each holds a part of the optimiser's state.
    """

    config: Config
    text: str
    folder: Path
    command: str
    resume: bool = False
    resume_from: CheckpointName = "last"
    progress: bool = True
    shard: bool = False


def train(request: Request, say: Say) -> None:
    """Learn a prior as configured, in a folder that records everything; or go on where a stopped run was.

    Every process of the current team calls this. The first one has the folder and the user (``say`` and ``progress``
    of the others are silent); what is computed is divided.
    """
    team, config, run, interrupt = current_team(), request.config, RunFolder(request.folder), Interrupt()
    torch.set_num_threads(config.run.threads)
    before = team.kept()  # by processes that ended, and that torchrun started again as these
    if not team.on_first(lambda: has_work(run, config, resume=request.resume or bool(before), say=say)):
        return
    # All that can be refused is, before anything is written: a folder with half a beginning would ask for --resume.
    alike = {"--resume": request.resume, "--resume-from": request.resume_from, "--shard": request.shard}
    opened = open_run(config, alike, progress=request.progress)
    team.on_first(lambda: opened.source.check_description(run))
    learner, name = opened.learner, "last" if before == SAVED else request.resume_from
    way = team.on_first(lambda: way_of_checkpoint(run.checkpoints, name))
    trainer = learner.trainer(opened.training, config.meta, opened.pooled, shard=request.shard, before=way)
    validate = Validator(learner, opened.validation, config.evaluate, interrupt.poll)
    checkpoints = CheckpointWriter(run.checkpoints, trainer, config.digest)
    with ExitStack() as open_things, interrupt.listening():
        team.on_first(lambda: open_things.enter_context(run.locked()))
        position = restored_position(run, checkpoints, name, say)
        team.keep(STARTED)
        team.on_first(lambda: record_start(request, run, trainer, opened.source, say))
        bring_folder_to(position, run, checkpoints, name)
        team.keep(SAVED)
        events = open_things.enter_context(event_files(run.tensorboard, trainer.progress.step, say))
        loop = Loop(request, say, learner, run, trainer, checkpoints, position, validate, interrupt, events)
        try:
            while not loop.over:
                loop.take_steps()
                loop.end_epoch()
            best = learner.with_theta(checkpoints.best_theta())
            notes = judge(best, validate, config, opened.source, say)
            step = team.on_first(lambda: run.best_step(trainer.progress.step))
            end = LearnedRun(config, best, run, step, interrupt.poll, say, notes)
            finish(end, opened.source, events, trainer.progress.step)
        except (KeyboardInterrupt, TrainingDiverged) as reason:
            if isinstance(reason, TrainingDiverged) or team.any(interrupt.between_steps):  # else in the middle of one
                checkpoints.save(position)
            say(f"stopped at step {trainer.progress.step}; to go on, give the same command with --resume")
            raise
        except OSError as error:
            error.add_note(
                f"This was at step {trainer.progress.step}. What was written before is whole: mend it (a full disk: "
                "make room), then give the same command with --resume"
            )
            raise
    say(f"done: {run.path}")
    for command in team.on_first(lambda: [*opened.source.next_commands(run.path), *next_commands(config, run.path)]):
        say(f"next: {command}")


def judge(best: MetaLearner, validate: Validator, config: Config, source: TaskSource, say: Say) -> list[str]:
    """Calibrate the learned prior where that is asked for; return notes, one if its adaptation changes nothing."""
    notes, model = [], best.task_model()
    if config.meta.meta_steps >= JUDGED_FROM and model.steps != 0:
        idle = model.idle(best.theta_) or validate(best.theta_).idle
        notes += [f"{idle}. {WHAT_TO_TRY}."] if idle else []
    if config.evaluate.calibrate:
        samples, each = config.evaluate.samples, source.examples_per_shot
        try:
            best.calibrate(validate.tasks, samples=samples, examples_per_shot=each, progress=False)
        except FloatingPointError as error:
            notes.append(f"forecasts are not calibrated: {error}")
        else:
            say(f"calibrated: {best.calibration_}")
    return notes


def record_start(request: Request, run: RunFolder, trainer: Trainer, source: TaskSource, say: Say) -> None:
    """Write down what is begun or resumed, and tell the user what is unusual about it."""
    config, size, tasks = request.config.run, trainer.team.size, trainer.settings.meta_batch
    run.write_config(request.text, request.config.resolved())
    if described := source.describe():
        run.write_json(source.file, described)
    if source.summary:
        say(source.summary)
    say(intention(request.config, run.path, trainer.progress.step))
    run.note_start(request.command, trainer.progress.step, config.seed, config.threads, size)
    if request.shard and size == 1:
        say("note: there is one process, so --shard divides nothing")
    if size > 1:
        say(f"{size} processes, {tasks} tasks a step{f': {size - tasks} have nothing to do' if size > tasks else ''}")


class Interrupt:
    """Within ``listening``, Ctrl-C makes the next ``check`` raise KeyboardInterrupt; a second Ctrl-C raises at once.

    Of several processes all stop at the same ``check``, whichever of them was interrupted.
    """

    def __init__(self) -> None:
        self.asked = False
        self.between_steps = False
        """Whether the KeyboardInterrupt came from ``check``, so that the state is that between two steps."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Replace what Ctrl-C does, until the ``with`` block ends."""
        main = threading.current_thread() is threading.main_thread()  # Python delivers signals there alone
        before = signal.signal(signal.SIGINT, self._note) if main else None
        try:
            yield
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if any process was interrupted. All processes call it together."""
        self.asked = current_team().any(self.asked)
        self.poll()

    def poll(self) -> None:
        """Raise KeyboardInterrupt if this process was interrupted; within ``Team.attempt``, which tells the others."""
        if self.asked:
            self.between_steps = True
            raise KeyboardInterrupt


@dataclass
class Loop:
    """Epochs, one after the other. ``position`` and the trainer are at every moment what a checkpoint has to hold."""

    request: Request
    say: Say
    learner: MetaLearner
    run: RunFolder
    trainer: Trainer
    checkpoints: CheckpointWriter
    position: Position
    validate: Validator
    interrupt: Interrupt
    events: EventFiles
    times: StepTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = StepTimes(self.request.config.meta)

    @property
    def over(self) -> bool:
        """Whether all steps are taken, or validations have not become better for long enough."""
        patience = self.request.config.evaluate.patience
        stale = patience > 0 and self.trainer.progress.since_best >= patience
        return stale or self.position.epochs >= len(epochs_of(self.request.config.meta))

    @property
    def epoch(self) -> tuple[int, range]:
        """Number and steps of the present epoch; the warm start is number 0."""
        return epochs_of(self.request.config.meta)[self.position.epochs]

    def take_steps(self) -> None:
        """Take the steps up to the end of the epoch, with a checkpoint every ``run.checkpoint_every`` of them."""
        trainer, position, (number, steps) = self.trainer, self.position, self.epoch
        every = self.request.config.run.checkpoint_every
        label = f"Meta-Training {number}/{self.request.config.meta.epochs}" if number else "Warm start"
        lines = self.run.metrics() if self.request.progress else []
        skills = [line["validation"]["skill"] for line in lines if line["validation"]]
        shown = {"skill": _number(skills[-1])} if skills else {}
        with step_bar(trainer, steps, label, progress=self.request.progress, shown=shown) as show:
            while trainer.progress.step < steps.stop:
                self.interrupt.check()
                began = time.perf_counter()
                position.summary.add(trainer.step())
                took = time.perf_counter() - began
                position.seconds += took
                show(position.summary)
                if told := self.times.after_step(trainer.progress.step, took):
                    self.say(told)
                if trainer.progress.step % every == 0 and trainer.progress.step < steps.stop:
                    self.checkpoints.save(position)

    def end_epoch(self) -> None:
        """Validate; write the metrics, the best theta so far (also as the prior, for use at once), and a checkpoint.

        A run that is killed in between goes on from the checkpoint before, and does the same again.
        """
        team, position, theta, (number, _) = current_team(), self.position, self.trainer.theta.detached(), self.epoch
        began = time.perf_counter()
        validated = number > 0 and (
            number % self.request.config.evaluate.every == 0 or number == self.request.config.meta.epochs
        )
        found = self.validate(theta) if validated else None
        is_best = found is not None and self.trainer.note_score(found.score, found.failed)
        position.seconds += time.perf_counter() - began
        line = self._line(found, is_best)
        left = team.on_first(lambda: self._note(line))
        position.epochs, position.summary, position.seconds = position.epochs + 1, Summary(), 0.0
        if is_best:
            self.checkpoints.save(position, "best")
            team.on_first(lambda: save_prior(self.learner.with_theta(theta), self.run, line["step"]))
        self.checkpoints.save(position)
        peak = peak_memory(theta.mu.device)
        self.say("  ".join([epoch_text(line, self.request.config.meta.epochs, peak), *([left] if left else [])]))
        self.events.add_epoch(line, peak)

    def _note(self, line: EpochLine) -> str | None:
        """Write the metrics of an epoch; return about how long the others will take."""
        lines = [*self.run.metrics(), line]
        self.run.write_metrics(lines)
        return time_left(lines, self.request.config.meta.epochs)

    def _line(self, found: Validation | None, is_best: bool) -> EpochLine:
        progress, summary = self.trainer.progress, self.position.summary
        line: EpochLine = finite_or_none(
            {
                "epoch": self.epoch[0],
                "step": progress.step,
                "phase": summary.phase,
                "tasks": summary.tasks,
                "bad_tasks": summary.bad_tasks,
                "bad": summary.failures,
                "halvings": progress.halvings,
                **({"missing": summary.missing, "targets": summary.targets} if summary.missing else {}),
                **summary.means,
                "validation": found and {"score": found.score, "skill": found.skill, "best": is_best, **found.measures},
                "seconds": round(self.position.seconds, 3),
            }
        )
        return line


def epochs_of(settings: MetaTraining) -> list[tuple[int, range]]:
    """Return number and steps of every epoch; the warm start, if there is one, is number 0."""
    size, warm = settings.steps_per_epoch, settings.warm_start
    epochs = [(n + 1, range(warm + n * size, warm + (n + 1) * size)) for n in range(settings.epochs)]
    return [(0, range(warm)), *epochs] if warm else epochs


def epoch_text(line: EpochLine, epochs: int, peak: float) -> str:
    """Return a line of ``metrics.jsonl`` for the user, with the peak memory."""
    parts = [f"epoch {line['epoch']}/{epochs}" if line["epoch"] else "warm start", f"step {line['step']}"]
    parts.append(f"loss {_number(line.get('loss'))}")
    if found := line["validation"]:
        scores = [found[when] or {} for when in ("before", "after")]
        name, unit = (NLL_PER_VALUE, " per value") if any(NLL_PER_VALUE in one for one in scores) else ("nll", "")
        before, after = (_number(one.get(name)) for one in scores)
        parts.append(f"validation nll {before} -> {after}{unit}")
        parts.append(f"skill {_number(found['skill'])}{' (best)' if found['best'] else ''}")
    if line["bad_tasks"]:
        parts.append(f"bad tasks {line['bad_tasks']} (the first: {line['bad'][0]})")
    if line.get("missing"):
        parts.append(f"missing targets {line['missing']} of {line['targets']}")
    return "  ".join([*parts, f"{line['seconds']:.1f} s", f"peak {peak / 2**30:.2f} GiB"])


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
