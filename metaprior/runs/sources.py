"""What a run asks of its tasks, wherever they come from; an application answers by deriving from these two classes.

    [tasks] kind = NAME -> TASKS[NAME](**keys), the settings -> open -> source -> tasks to train, to validate, to test

Generators of tasks, which have nothing to open, are settings and source in one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from metaprior.applications import applications
from metaprior.methods.meta_learner import MetaLearner
from metaprior.noise import Noise
from metaprior.registry import Registry
from metaprior.runs.folder import RunFolder, changes, refuse_changes
from metaprior.tasks import DriftingBlobs, SineOrLine, Sinusoids, Task, Tasks

if TYPE_CHECKING:
    from metaprior.runs.config import Choice, Config

Purpose = Literal["train", "val", "test"]
RESTORE = "Restore the data as they were, or begin a new run with another --run folder."


@dataclass(frozen=True)
class LearnedRun:
    """A run whose training is over, for what a source adds to its end."""

    config: "Config"
    learner: MetaLearner
    run: RunFolder
    step: int
    """Steps before the best validation, which the learner's theta is of."""
    poll: Callable[[], None]
    """To be called now and then: raises KeyboardInterrupt after Ctrl-C."""
    say: Callable[[str], None]
    notes: Sequence[str] = ()
    """What the user should know about the training, beside its scores."""


class TaskSource:
    """Tasks for every purpose. Every rank of the current team has its own; all have to give the same tasks."""

    examples_per_shot = 1
    """Examples that count as one shot; for classes one of each."""
    file = "tasks.json"
    """File of the run's folder that ``describe`` is written to."""
    heading: str | None = None
    """Line above the table of an evaluation."""
    summary: str | None = None
    """Line for the user when a run begins."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """Return the tasks for a purpose, at least ``count`` of them (None: for training)."""
        raise NotImplementedError

    def pooled(self, meta_batch: int) -> Tasks | None:
        """Return tasks whose examples the warm start pools; None if the training tasks do."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return facts (JSON) that all ranks and all resumptions of a run have to agree on."""
        return {}

    def check_description(self, run: RunFolder) -> None:
        """Raise ``RunFolderError`` if the facts are not those that the run was begun with."""
        if not (run.path / self.file).exists():
            return
        changed = changes(run.read_json(self.file), self.describe())
        refuse_changes(f"{run.path} was begun with other data:", changed, RESTORE)

    def finish(self, end: LearnedRun) -> list[Path]:
        """Write what this kind of tasks adds to the end of a run; return its pictures.

        All ranks call it; ``current_team()`` shares the work, and only its first rank has the folder.
        """
        return []

    def next_commands(self, run: Path) -> list[str]:
        """Return commands to go on with that only opened data tell; beside those of ``TaskSettings``."""
        return []

    def seed_of(self, purpose: Purpose) -> int:
        """Return the seed of the tasks for a purpose: tasks of other seeds are never the same."""
        return self.seed if purpose == "train" else Noise(self.seed).fork(f"{purpose} tasks").seed


class TaskSettings:
    """Base of a frozen dataclass whose fields are the keys of ``[tasks]``. Making one opens nothing."""

    seed: int
    commands_of_several: ClassVar[bool] = False
    """Whether ``next_commands`` are also for runs on several ``[[tasks]]``."""

    def open(self, *, progress: bool) -> TaskSource:
        """Open or make the data and return their tasks."""
        raise NotImplementedError

    def misfits(self, model: "Choice", likelihood: "Choice") -> list[str]:
        """Return what does not fit the configured network and likelihood, one line each."""
        return []

    def next_commands(self, run: Path) -> list[str]:
        """Return commands of the application to go on with after a run on these tasks, the most useful one first.

        Opens nothing.
        """
        return []

    def task_of_the_size(self, model: "Choice") -> Task | None:
        """Return a task with the shapes of the real ones, without opening anything; None if they are not known."""
        return None


class GeneratedTasks(TaskSource):
    """Tasks of a generator, which is a dataclass with a ``seed``; unseen ones are those of another seed."""

    def __init__(self, generator: Any) -> None:
        super().__init__(generator.seed)
        self.generator = generator

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """See ``TaskSource``. A finite generator makes as many as are asked for."""
        finite = count is not None and "num_tasks" in {field.name for field in fields(self.generator)}
        changes = {"seed": self.seed_of(purpose)} | ({"num_tasks": count} if finite else {})
        tasks: Tasks = replace(self.generator, **changes)
        return tasks


TASKS = Registry(
    "tasks.kind",
    {"sinusoids": Sinusoids, "sine_or_line": SineOrLine, "drifting_blobs": DriftingBlobs},
    load=applications,
)

WEIGHTS: dict[str, Callable[[], Mapping[str, Tensor]]] = {}
"""Functions that return the trained weights of an application's network, by the name that ``warm_start.weights`` has
for them."""


def open_tasks(settings: Any, *, progress: bool) -> TaskSource:
    """Return the source of tasks that the settings of ``[tasks]`` describe."""
    return settings.open(progress=progress) if isinstance(settings, TaskSettings) else GeneratedTasks(settings)
