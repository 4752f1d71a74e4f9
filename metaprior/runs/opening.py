"""The beginning of a run: a new folder, or an earlier run to go on with, and never a mixture of two."""

from collections.abc import Callable

from metaprior.checkpoint import DESCRIPTION
from metaprior.evaluation import check_task
from metaprior.runs.build import unseen_tasks
from metaprior.runs.config import Config, differences
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.state import WHICH, Keeper, Position, Which, gradients
from metaprior.tasks.source import Tasks, task_at

Say = Callable[[str], None]
MAY_GROW = "meta.epochs"
SOLAR = "solar.json"
RESTORE = "Restore the archive as it was, or begin a new run with another --run folder."


def is_to_do(run: RunFolder, config: Config, *, resume: bool, say: Say) -> bool:
    """Look at the folder, and refuse it if need be, before anything is computed or written; false if all is done."""
    if run.is_new():
        if resume:
            say(f"nothing to resume in {run.path}: starting")
        return True
    if not resume:
        raise RunFolderError(
            f"{run.path} is not empty; to go on with the run in it, give --resume; for a new run, give another --run "
            "folder (or remove this one yourself)"
        )
    longer = _refuse_differences(run, config, say)
    if run.finished and not longer:
        say(f"finished already: {run.path}; see evaluation.json, or metaprior evaluate {run.path}")
        return False
    return True


def _refuse_differences(run: RunFolder, config: Config, say: Say) -> bool:
    """Raise if the run would become another one; true if it only becomes longer."""
    found = differences(run.config(), config.resolved())
    refused = [entry for entry in found if not _is_longer(entry, config)]
    if refused:
        lines = [f"  {key}: the run has {old!r}, now {new!r}" for key, old, new in refused]
        hint = f"Only {MAY_GROW} may become larger, and not with meta.schedule 'cosine', which depends on it."
        raise RunFolderError("\n".join([f"{run.path} is a run with another configuration:", *lines, hint]))
    if found:
        (_, old, new) = found[0]
        say(f"note: {new} epochs in place of {old}; what is a share of all steps (scales_first, kl_warmup) grows, too")
    return bool(found)


def _is_longer(entry: tuple[str, object, object], config: Config) -> bool:
    key, old, new = entry
    grown = isinstance(old, int) and isinstance(new, int) and new > old
    return key == MAY_GROW and grown and config.meta.schedule != "cosine"


def look_at_later_tasks(config: Config, pooled: Tasks | None) -> None:
    """Raise now, and not in the warm start or after hours of training, if tasks that are needed then cannot be had."""
    if pooled is not None:
        task_at(pooled, 0, config.run.seed)
    check_task(unseen_tasks(config, "test", 1)[0])


def note_frames(run: RunFolder, config: Config, say: Say) -> None:
    """Write down what frames the run is about."""
    found: dict[str, object] = config.solar.description()
    run.write_json(SOLAR, found)
    days = ", ".join(f"{purpose} {part}" for purpose, part in config.solar.days.items())
    say(f"{found['frames']} frames of {' x '.join(map(str, config.solar.frames.shape[1:]))} pixels; days: {days}")


def check_frames(run: RunFolder, config: Config) -> None:
    """Raise if the frames, their days or their scaling are not those that the run was begun with."""
    if not (run.path / SOLAR).exists():
        return
    before, found = run.read_json(SOLAR), config.solar.description()
    changed = [key for key in {**before, **found} if before.get(key) != found.get(key)]
    if changed:
        lines = [f"  {key}: the run has {before.get(key)!r}, now {found.get(key)!r}" for key in changed]
        raise RunFolderError("\n".join([f"{run.path} was begun with other frames:", *lines, RESTORE]))


def restored(run: RunFolder, keeper: Keeper, which: Which, say: Say) -> Position:
    """Where the run stands: at its beginning, or where a checkpoint was made. Nothing is written yet."""
    if not any((run.checkpoints / name / DESCRIPTION).exists() for name in WHICH):
        return Position()
    position, computed = keeper.restore(which)
    say(f"resuming from checkpoints/{which}, step {keeper.trainer.progress.step}")
    if computed != gradients(keeper.trainer):
        say(
            f"note: gradients are now computed another way ({gradients(keeper.trainer)}; before: {computed}): the "
            "same up to rounding, but not to the last bit"
        )
    return position


def begin(run: RunFolder, keeper: Keeper, which: Which, position: Position) -> None:
    """Bring the folder to where the run stands: later metrics are cut off, and there is a ``last`` checkpoint of it."""
    if which != "last":
        keeper.put_aside_damaged_last()
    run.write_metrics(run.metrics()[: position.epochs])
    if which != "last" or not (run.checkpoints / "last" / DESCRIPTION).exists():
        keeper.save(position)
