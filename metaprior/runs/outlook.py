"""What a user is told about a run: what it will do, about how long that takes, and what comes next."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from metaprior.progress import about
from metaprior.runs.config import Config
from metaprior.runs.folder import EpochLine
from metaprior.runs.sources import TaskSettings
from metaprior.text_table import counted
from metaprior.training.settings import MetaTraining

WORTH_TELLING = 20.0
"""Seconds from which it is worth saying how long something takes."""
TIMED_STEPS, TIMED_SECONDS = 3, 2.0
"""Steps, and their time together, that an estimate needs at least; the first step of a phase is not among them."""


def intention(config: Config, folder: Path, step: int) -> str:
    """Return what a training will do, in one line; ``step`` steps are done already."""
    meta = config.meta
    parts = [f"a warm start of {counted(meta.warm_start, 'step')}"] if meta.warm_start else []
    size = f"{counted(meta.steps_per_epoch, 'step')} on {counted(meta.meta_batch, 'task')}"
    parts.append(f"{counted(meta.epochs, 'epoch')} of {size}")
    parts.append(f"scores on {counted(config.evaluate.tasks, 'unseen task')}")
    done = f" ({step:,} of {meta.steps:,} steps are done)" if step else ""
    return f"training {config.model.kind} on {config.tasks.kind}: {', then '.join(parts)}; results go to {folder}{done}"


class StepTimes:
    """Estimates, once for the warm start and once for the epochs, how long the steps that are left take."""

    def __init__(self, settings: MetaTraining) -> None:
        self.settings = settings
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self._told: set[bool] = set()

    def after_step(self, step: int, seconds: float) -> str | None:
        """Note the time of a step, after which ``step`` are done; return the estimate when it can be told."""
        warm, settings = step <= self.settings.warm_start, self.settings
        timed = self._seconds[warm]
        timed.append(seconds)
        used = timed[1:]  # the first one also searches for a step size, and allocates memory
        if warm in self._told or len(used) < TIMED_STEPS or sum(used) < TIMED_SECONDS:
            return None
        self._told.add(warm)
        left = (settings.warm_start if warm else settings.steps) - step
        time = left * sum(used) / len(used)
        what = "the warm start" if warm else "the epochs, without validation and final scores"
        return f"about {about(time)} left for {what}" if time >= WORTH_TELLING else None


def time_left(lines: Sequence[EpochLine], epochs: int) -> str | None:
    """Return about how long the epochs that are left take, judged by those that are over; None if not worth telling."""
    times = [line["seconds"] for line in lines if line["epoch"]]
    left = (epochs - lines[-1]["epoch"]) * sum(times) / len(times) if times else 0.0
    return f"about {about(left)} left" if left >= WORTH_TELLING else None


def next_commands(config: Config, run: Path) -> list[str]:
    """Return commands to go on with after a run has finished, the most useful one first."""
    settings = config.task_settings
    own = settings.next_commands(run) if isinstance(settings, TaskSettings) else []
    return [*own, shlex.join(["metaprior", "evaluate", str(run)])]
