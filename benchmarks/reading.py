"""The share of a pooled step of maps that is reading: drawing tasks, checking them, looking for what is not finite.

Trainings are those of ``metaprior init solar`` and, on Himawari-9, of ``metaprior init frames``, in one thread. Nothing
is read ahead here, so that the CPU seconds of a step are the sum of its parts.
"""

import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import one_thread
from benchmarks.common.data import HIMAWARI
from benchmarks.common.result import BenchmarkResult, Row
from metaprior.metagrad import meta_batch
from metaprior.metagrad.task_checker import TaskChecker
from metaprior.runs.config import Config
from metaprior.runs.opening import open_run
from metaprior.runs.reading import read_config
from metaprior.solar.maps.archives.archive import GapsInTime
from metaprior.tasks.task import Task, Tasks
from metaprior.training.trainer import Trainer

SIMULATED, REAL = "simulated", "himawari"
DRAW, CHECK, FINITE, STEP = "draw", "check", "finite", "step"
MISSING = "without the data of Himawari-9, which are not in the data folder"


@dataclass(frozen=True)
class Settings:
    """Sizes as in the configurations of the package, and repeats."""

    steps: int = 60
    rounds: int = 5
    width: int = 8
    patch: int = 32
    days: int = 45
    size: int = 80


class Drawn:
    """Tasks of a source, with the time that drawing them takes. They are not read ahead: a thread would share cores."""

    def __init__(self, tasks: Tasks, spent: Counter[str]) -> None:
        self._tasks, self._spent = tasks, spent

    def __getitem__(self, index: int) -> Task:
        """Return a task of the source."""
        task: Task = timed(self._tasks.__getitem__, DRAW, self._spent)(index)
        return task


def timed(function: Callable[..., Any], part: str, spent: Counter[str]) -> Callable[..., Any]:
    """Return the function, which adds its CPU seconds to ``spent[part]``."""

    @wraps(function)
    def measured(*args: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[part] += time.process_time() - began  # type: ignore[assignment]

    return measured


@contextmanager
def parts_timed(spent: Counter[str]) -> Iterator[None]:
    """Add the CPU seconds of the checks of tasks, and of the look for numbers that are not finite, to ``spent``."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(TaskChecker, "several", timed(TaskChecker.several, CHECK, spent)))
        for name in ("damages", "first_non_finite"):
            looking = timed(getattr(meta_batch, name), FINITE, spent)
            patches.enter_context(patch.object(meta_batch, name, looking))
        yield


def config_of(archive: str, settings: Settings, data: Path) -> Config:
    """Return the package's configuration for an archive, in the sizes of the settings."""
    steps = settings.rounds * settings.steps + 1
    changes = [f"model.width={settings.width}", f"tasks.patch={settings.patch}", f"meta.warm_start={steps}"]
    if archive == SIMULATED:
        return read_config("solar", [*changes, f"tasks.days={settings.days}", f"tasks.size={settings.size}"])
    own = [f"tasks.path={data / HIMAWARI.files[0]}", "tasks.units=scaled", "model.known=0"]
    return read_config("frames", [*changes, *own])


def trainer_of(config: Config, spent: Counter[str]) -> Trainer:
    """Return a trainer at the beginning of its warm start, whose tasks are timed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GapsInTime)  # windows do not cross gaps
        opened = open_run(config, {}, progress=False)
    if opened.pooled is None:
        raise ValueError("the configuration must have a warm start, got meta.warm_start = 0")
    return opened.learner.trainer(Drawn(opened.training, spent), config.meta, Drawn(opened.pooled, spent))


def measured_rounds(archive: str, settings: Settings, data: Path) -> list[Counter[str]]:
    """Return the CPU seconds of each part, and of all, in every round of pooled steps after a first step."""
    spent, found = Counter[str](), list[Counter[str]]()
    config = config_of(archive, settings, data)
    with one_thread(), parts_timed(spent):
        trainer = trainer_of(config, spent)
        trainer.step()
        for _ in range(settings.rounds):
            spent.clear()
            for _ in range(settings.steps):
                timed(trainer.step, STEP, spent)()
            found.append(spent.copy())
    return found


def row_of(archive: str, rounds: list[Counter[str]], settings: Settings, tasks_a_step: int) -> Row:
    """Return milliseconds and shares of a step, medians over rounds."""

    def milliseconds(*parts: str) -> float:
        return 1000 * statistics.median(sum(one[part] for part in parts) for one in rounds) / settings.steps

    def share(*parts: str) -> float:
        return statistics.median(sum(one[part] for part in parts) / one[STEP] for one in rounds)

    return {
        "archive": archive,
        "ms_a_step": milliseconds(STEP),
        "draw_ms_a_task": milliseconds(DRAW) / tasks_a_step,
        "check_ms_a_task": milliseconds(CHECK) / tasks_a_step,
        "finite_ms_a_step": milliseconds(FINITE),
        "reading_share": share(DRAW, CHECK),
        "finite_share": share(FINITE),
    }


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure pooled steps on the simulator and, if its data are there, on Himawari-9."""
    settings, data = context.settings, context.data
    archives = [SIMULATED, *([REAL] if all((data / file).is_file() for file in HIMAWARI.files) else [])]
    rows = []
    for archive in archives:
        tasks = config_of(archive, settings, data).meta.meta_batch
        rows.append(row_of(archive, measured_rounds(archive, settings, data), settings, tasks))
    headline = {f"{name}_{row['archive']}": row[name] for row in rows for name in ("reading_share", "finite_share")}
    headline["reading_share"] = max(row["reading_share"] for row in rows)
    notes = [
        f"U-Net of width {settings.width}, patches of {settings.patch} x {settings.patch} pixels, meta-batches of 4 "
        "tasks of 8 windows, one thread, CPU time",
        "reading: drawing tasks (frames, sun, units) and checking their shapes and types; finite: the look for numbers "
        "that are not finite, in tasks and gradients; all as shares of a step, medians over rounds",
        "reading_share: the larger one of the archives",
    ]
    return BenchmarkResult(headline, rows, [*notes, *([] if REAL in archives else [MISSING])])


BENCHMARK = Benchmark(
    "reading",
    "share of reading in a pooled step of maps, simulator and Himawari-9",
    measure,
    full=Settings(),
    quick=Settings(steps=10, rounds=3),
    quick_note="few steps, in which the sun's position is still computed for the first time",
    extras=("solar",),
    conditions=("data for Himawari-9",),
)
