"""The beginning of a run: a new folder, or an earlier run to go on with, and never a mixture of two."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metaprior.checkpoint import DESCRIPTION
from metaprior.evaluation import check_task
from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.build import learner_of
from metaprior.runs.checkpoints import NAMES, CheckpointName, CheckpointWriter, Position, gradients
from metaprior.runs.config import Config, differences, flat
from metaprior.runs.folder import RunFolder, RunFolderError, refuse_changes
from metaprior.runs.sources import TaskSource, open_tasks
from metaprior.tasks.task import FirstTasks, Task, Tasks, task_at
from metaprior.team import current_team
from metaprior.team.agreement import code_facts, refuse_disagreement, task_digest

Say = Callable[[str], None]
MAY_GROW = "meta.epochs"


def has_work(run: RunFolder, config: Config, *, resume: bool, say: Say) -> bool:
    """Return False if the run in the folder has finished; raise if the folder cannot be used. Nothing is written."""
    if run.is_new():
        if resume:
            say(f"nothing to resume in {run.path}: starting")
        return True
    if not resume:
        raise RunFolderError(
            f"{run.path} is not empty; to go on with the run in it, give --resume; for a new run, give another --run "
            "folder (or remove this one yourself)"
        )
    found, fixed = differences(run.config(), config.resolved()), config.meta.schedule == "cosine"
    refused = [entry for entry in found if fixed or entry[0] != MAY_GROW or entry[2] <= (entry[1] or math.inf)]
    hint = f"Only {MAY_GROW} may become larger, and not with meta.schedule 'cosine', which depends on it."
    refuse_changes(f"{run.path} is a run with another configuration:", refused, hint)
    for _, old, new in found:
        say(f"note: {new} epochs in place of {old}; what is a share of all steps (scales_first, kl_warmup) grows, too")
    if run.finished and not found:
        say(f"finished already: {run.path}; see evaluation.json, or metaprior evaluate {run.path}")
        return False
    return True


@dataclass(frozen=True)
class OpenedRun:
    """What a training is made of, before it begins."""

    learner: MetaLearner
    source: TaskSource
    training: Tasks
    pooled: Tasks | None
    validation: FirstTasks
    first_tasks: Mapping[str, Task]
    """The first task of every purpose."""


def open_run(config: Config, options: Mapping[str, object], *, progress: bool) -> OpenedRun:
    """Open everything on every rank, and raise if they do not all see the same configuration, code and data."""

    def open_all() -> OpenedRun:
        source = open_tasks(config.task_settings, progress=progress)
        learner, training = learner_of(config, source.examples_per_shot), source.tasks("train")
        pooled = source.pooled(config.meta.meta_batch) if config.meta.warm_start else None
        validation = FirstTasks(source.tasks("val", config.evaluate.tasks), config.evaluate.tasks)
        first = {"training": task_at(training, 0, config.run.seed), "test": check_task(source.tasks("test", 1)[0])}
        if pooled is not None:
            first["warm start"] = task_at(pooled, 0, config.run.seed)
        return OpenedRun(learner, source, training, pooled, validation, first)

    team = current_team()
    opened, facts = team.attempt(open_all, lambda opened: _facts(config, options, opened) if team.size > 1 else {})
    team.on_first(lambda: refuse_disagreement(facts))
    return opened


def _facts(config: Config, options: Mapping[str, object], opened: OpenedRun) -> dict[str, object]:
    """Return what the ranks have to agree on."""
    described = {f"tasks: {key}": value for key, value in opened.source.describe().items()}
    tasks = {f"data of the first {kind} task": task_digest(task) for kind, task in opened.first_tasks.items()}
    return {**flat(config.resolved()), **options, **code_facts(), **described, **tasks}


def restored_position(run: RunFolder, checkpoints: CheckpointWriter, name: CheckpointName, say: Say) -> Position:
    """Restore the trainer from a checkpoint, if the run has any, and return the run's position. Writes nothing."""
    if not current_team().on_first(lambda: _has_checkpoints(run)):
        return Position()
    position, before = checkpoints.restore(name)
    say(f"resuming from checkpoints/{name}, step {checkpoints.trainer.progress.step}")
    now = gradients(checkpoints.trainer)
    if now != before:
        say(
            f"note: gradients are now computed another way ({now}; before: {before}): the same up to rounding, but not "
            "bitwise identical"
        )
    return position


def _has_checkpoints(run: RunFolder) -> bool:
    """Return False at the very beginning of a run; where something was learned, checkpoints have to be there."""
    if any((run.checkpoints / name / DESCRIPTION).exists() for name in NAMES):
        return True
    if lines := run.metrics():
        raise RunFolderError(
            f"{run.checkpoints} holds no checkpoint, but the run has been at step {lines[-1]['step']} "
            "(metrics.jsonl). Restore checkpoints/ from a copy; or begin anew with another --run folder"
        )
    return False


def bring_folder_to(position: Position, run: RunFolder, checkpoints: CheckpointWriter, name: CheckpointName) -> None:
    """Cut off metrics that are later than the position, and make sure that ``last`` is a checkpoint of it."""

    def has_to_be_saved() -> bool:
        if name != "last":
            checkpoints.put_aside_damaged_last()
        run.write_metrics(run.metrics()[: position.epochs])
        return name != "last" or not (run.checkpoints / "last" / DESCRIPTION).exists()

    if current_team().on_first(has_to_be_saved):
        checkpoints.save(position)
