"""``metaprior train``: the whole loop on one screen. What it stands on is in the other files of this room."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from metaprior.errors import TrainingDiverged
from metaprior.runs.config import Config
from metaprior.runs.finish import finish, save_prior
from metaprior.runs.folder import Line, RunFolder
from metaprior.runs.interrupt import Interrupt
from metaprior.runs.opening import begin, is_to_do, opened, restored
from metaprior.runs.sources import TaskSource
from metaprior.runs.state import Keeper, Position, Which, way_before
from metaprior.runs.tensorboard import TensorBoard
from metaprior.runs.validation import Validation, Validator
from metaprior.team import current_team
from metaprior.text_table import known
from metaprior.training.epoch import Summary, peak_memory, step_bar
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

Say = Callable[[str], None]
STARTED, SAVED = "started", "saved"
"""For processes that are started again: whether the folder is theirs, and whether ``last`` is where they were."""


@dataclass(frozen=True)
class Request:
    """What is asked for on the command line."""

    config: Config
    text: str
    """The configuration file as it was given."""
    folder: Path
    command: str
    resume: bool = False
    resume_from: Which = "last"
    progress: bool = True
    shard: bool = False
    """Of several processes each holds a part of the optimiser's state."""

    @property
    def options(self) -> dict[str, object]:
        """What all processes have to be told alike, besides the configuration."""
        return {"--resume": self.resume, "--resume-from": self.resume_from, "--shard": self.shard}


def train(request: Request, say: Say) -> None:
    """Learn a prior as configured, in a folder that tells everything; or go on where a stopped run was.

    Every process of the current team calls this. The first one has the folder and the user (``say`` and ``progress``
    of the others are silent); what is computed is divided.
    """
    team = current_team()
    config, run, interrupt = request.config, RunFolder(request.folder), Interrupt()
    torch.set_num_threads(config.run.threads)
    before = team.kept()  # by processes that ended, and that torchrun started again as these
    if not team.on_first(lambda: is_to_do(run, config, resume=request.resume or bool(before), say=say)):
        return
    # All that can be refused is, before anything is written: a folder with half a beginning would ask for --resume.
    sources = opened(config, request.options, progress=request.progress)
    team.on_first(lambda: sources.source.check_description(run))
    learner, which = sources.learner, "last" if before == SAVED else request.resume_from
    trainer = learner.trainer(
        sources.training,
        config.meta,
        sources.pooled,
        shard=request.shard,
        before=team.on_first(lambda: way_before(run.checkpoints, which)),
    )
    validate = Validator(learner, sources.validation, config.evaluate, interrupt.poll)
    keeper = Keeper(run.checkpoints, trainer, config.digest)
    with ExitStack() as open_things, interrupt:
        team.on_first(lambda: open_things.enter_context(run.locked()))
        position = restored(run, keeper, which, say)
        team.keep(STARTED)
        team.on_first(lambda: note_beginning(request, run, trainer, sources.source, say))
        begin(run, keeper, which, position)
        team.keep(SAVED)
        board = open_things.enter_context(TensorBoard(run.tensorboard, trainer.progress.step)) if team.first else None
        loop = Loop(config, run, trainer, keeper, position, validate, interrupt, request.progress, say)
        try:
            while not loop.over:
                loop.take_steps()
                line = loop.end_epoch()
                if board is not None:
                    board.add_epoch(line)
            learner.theta_ = keeper.best_theta()
            finish(config, learner, sources.source, run, board, trainer.progress.step, poll=interrupt.poll, say=say)
        except (KeyboardInterrupt, TrainingDiverged) as reason:
            between_steps = isinstance(reason, TrainingDiverged) or team.any(interrupt.between_steps)
            if between_steps:  # else in the middle of one
                keeper.save(position)
            say(f"stopped at step {trainer.progress.step}; to go on, give the same command with --resume")
            raise
        except OSError as error:
            error.add_note(
                f"This was at step {trainer.progress.step}. What was written before is whole: mend it (a full disk: "
                "make room), then give the same command with --resume"
            )
            raise
    say(f"done: {run.path}")


def note_beginning(request: Request, run: RunFolder, trainer: Trainer, source: TaskSource, say: Say) -> None:
    """Write down what is begun, or gone on with."""
    config, size, tasks = request.config, trainer.team.size, trainer.settings.meta_batch
    run.write_config(request.text, config.resolved())
    if described := source.describe():
        run.write_json(source.file, described)
    if source.summary:
        say(source.summary)
    run.note_start(
        request.command, trainer.progress.step, seed=config.run.seed, threads=config.run.threads, processes=size
    )
    if request.shard and size == 1:
        say("note: there is one process, so --shard divides nothing")
    if size > 1:
        say(f"{size} processes, {tasks} tasks a step{f': {size - tasks} have nothing to do' if size > tasks else ''}")


@dataclass
class Loop:
    """Epochs, one after the other. ``position`` and the trainer are at every moment what a checkpoint has to hold."""

    config: Config
    run: RunFolder
    trainer: Trainer
    keeper: Keeper
    position: Position
    validate: Validator
    interrupt: Interrupt
    progress: bool
    say: Say

    @property
    def over(self) -> bool:
        """Whether all steps are taken, or validations have not become better for long enough."""
        patience = self.config.evaluate.patience
        tired = patience > 0 and self.trainer.progress.since_best >= patience
        return tired or self.position.epochs >= epochs_of(self.config.meta)

    def take_steps(self) -> None:
        """Up to the end of the epoch, with a checkpoint now and then."""
        trainer, position = self.trainer, self.position
        start, stop = epoch_range(self.config.meta, position.epochs)
        skill = self._last_skill() if self.progress else {}
        with step_bar(trainer, range(start, stop), self._label(), progress=self.progress, shown=skill) as tell:
            while trainer.progress.step < stop:
                self.interrupt.check()
                began = time.perf_counter()
                position.summary.add(trainer.step())
                position.seconds += time.perf_counter() - began
                tell(position.summary)
                if trainer.progress.step % self.config.run.checkpoint_every == 0 and trainer.progress.step < stop:
                    self.keeper.save(position)

    def end_epoch(self) -> Line:
        """Validate, write the line, the best theta so far (also as the prior, for use at once), and a checkpoint; in
        this order.

        A run that is killed in between goes on from the checkpoint before, and does the same again.
        """
        began = time.perf_counter()
        found = self.validate(self.trainer.theta.detached()) if self._is_validated() else None
        is_best = found is not None and self.trainer.note_score(found.score, found.failed)
        self.position.seconds += time.perf_counter() - began
        line = self._line(found, is_best)
        self.trainer.team.on_first(lambda: self.run.write_metrics([*self.run.metrics(), line]))
        self.position.epochs, self.position.summary, self.position.seconds = self.position.epochs + 1, Summary(), 0.0
        if is_best:
            self.keeper.save_best(self.position)
            self.trainer.team.on_first(lambda: save_prior(self.validate.learner, self.run, line["step"]))
        self.keeper.save(self.position)
        self.say(self._text(line))
        return line

    def _is_validated(self) -> bool:
        number, meta = epoch_number(self.config.meta, self.position.epochs), self.config.meta
        return number > 0 and (number % self.config.evaluate.every == 0 or number == meta.epochs)

    def _line(self, found: Validation | None, is_best: bool) -> Line:
        progress, summary = self.trainer.progress, self.position.summary
        line = {
            "epoch": epoch_number(self.config.meta, self.position.epochs),
            "step": progress.step,
            "phase": summary.phase,
            "tasks": summary.tasks,
            "bad_tasks": summary.bad_tasks,
            "bad": summary.failures,
            "halvings": progress.halvings,
            **summary.means,
            "validation": found and {"score": found.score, "skill": found.skill, "best": is_best, **found.measures},
            "seconds": round(self.position.seconds, 3),
        }
        plain: Line = known(line)
        return plain

    def _label(self) -> str:
        number = epoch_number(self.config.meta, self.position.epochs)
        return f"Meta-Training {number}/{self.config.meta.epochs}" if number else "Warm start"

    def _last_skill(self) -> dict[str, str]:
        """For the bar: how much better than a constant the last validation was."""
        skills = [line["validation"]["skill"] for line in self.run.metrics() if line["validation"]]
        return {"skill": _number(skills[-1])} if skills else {}

    def _text(self, line: Line) -> str:
        """A line of ``metrics.jsonl``, for reading."""
        parts = [f"{self._epoch_text(line)}  step {line['step']}", f"loss {_number(line.get('loss'))}"]
        if line["validation"]:
            before, after = (line["validation"][when] or {} for when in ("before", "after"))
            parts.append(f"validation nll {_number(before.get('nll'))} -> {_number(after.get('nll'))}")
            parts.append(
                f"skill {_number(line['validation']['skill'])}{' (best)' if line['validation']['best'] else ''}"
            )
        if line["bad_tasks"]:
            parts.append(f"bad tasks {line['bad_tasks']} (the first: {line['bad'][0]})")
        return "  ".join([*parts, f"{line['seconds']:.1f} s", f"peak {peak_memory() / 2**30:.2f} GiB"])

    def _epoch_text(self, line: Line) -> str:
        return f"epoch {line['epoch']}/{self.config.meta.epochs}" if line["epoch"] else "warm start"


def epochs_of(settings: MetaTraining) -> int:
    """Epochs in all, the warm start counted as one."""
    return settings.epochs + bool(settings.warm_start)


def epoch_number(settings: MetaTraining, before: int) -> int:
    """What an epoch is called when so many are over: 0 for the warm start, then 1, 2, ..."""
    return before + (not settings.warm_start)


def epoch_range(settings: MetaTraining, before: int) -> tuple[int, int]:
    """First step of the epoch after so many, and the first one behind it."""
    number = epoch_number(settings, before)
    if number == 0:
        return 0, settings.warm_start
    start = settings.warm_start + (number - 1) * settings.steps_per_epoch
    return start, start + settings.steps_per_epoch


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
