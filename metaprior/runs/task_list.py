"""Several ``[[tasks]]`` in one run: task i is task i // n of part i % n, of n parts, for every purpose.

A task stays a pure function of its index, so resuming a run and dividing it among processes work as with one part.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaprior.inputs import map_parts
from metaprior.runs.sources import LearnedRun, Purpose, TaskSettings, TaskSource, open_tasks
from metaprior.tasks.task import Task, Tasks, check_index, task_at

if TYPE_CHECKING:
    from metaprior.runs.config import Choice


@dataclass(frozen=True)
class InterleavedTasks:
    """Endless tasks of several collections in turn; a finite one is gone through in shuffled passes.

    Args:
        parts: The collections.
        seed: Seed of the passes.
    """

    parts: Sequence[Tasks]
    seed: int

    @property
    def thread_safe(self) -> bool:
        """Return whether a second thread may read the next tasks of every part."""
        return all(getattr(part, "thread_safe", False) for part in self.parts)

    @property
    def past(self) -> bool:
        """Return whether the examples of a part must stay in their order in time."""
        return any(getattr(part, "past", False) for part in self.parts)

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        check_index(index)
        turn, number = divmod(index, len(self.parts))
        return task_at(self.parts[number], turn, self.seed)


class SeveralSources(TaskSource):
    """The sources of all parts of ``[[tasks]]``."""

    def __init__(self, parts: Sequence[TaskSource]) -> None:
        super().__init__(parts[0].seed)
        self.parts = parts
        each = [part.examples_per_shot for part in parts]
        if len(set(each)) > 1:
            raise ValueError(
                f"[[tasks]] must be parts whose shots have equally many examples, got {', '.join(map(str, each))}. Try "
                "a run for each of them"
            )
        self.examples_per_shot = each[0]
        told = [f"tasks[{number}]: {part.summary}" for number, part in enumerate(parts) if part.summary]
        self.summary = "\n".join(told) or None
        self.heading = f"unseen tasks of {len(parts)} parts, which take turns"

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """Return the tasks of all parts in turn."""
        return InterleavedTasks([part.tasks(purpose, count) for part in self.parts], self.seed)

    def pooled(self, meta_batch: int) -> Tasks | None:
        """Return the pooled tasks of all parts in turn; a part without any gives those for training.

        Raises:
            ValueError: Examples of two parts cannot be pooled, because their shapes differ.
        """
        pooled = [part.pooled(meta_batch) for part in self.parts]
        if not any(pooled):
            return None
        tasks = [own or part.tasks("train") for own, part in zip(pooled, self.parts, strict=True)]
        inputs = [task_at(own, 0, self.seed).support.x for own in tasks]
        shapes = [map_parts(lambda part: tuple(part.shape[1:]), x) for x in inputs]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                "the examples of all [[tasks]] must have the same shape to be pooled by meta.warm_start, got "
                f"{', '.join(map(str, shapes))}. Try the same size (patch) for all, or meta.warm_start=0"
            )
        return InterleavedTasks(tasks, self.seed)

    def describe(self) -> dict[str, Any]:
        """Return the facts of all parts."""
        facts = [(f"tasks[{number}]", part.describe()) for number, part in enumerate(self.parts)]
        return {f"{name} {key}": value for name, own in facts for key, value in own.items()}

    def finish(self, end: LearnedRun) -> list[Path]:
        """Say what is left out: parts would write files of the same names."""
        writing = [f"tasks[{i}]" for i, part in enumerate(self.parts) if type(part).finish is not TaskSource.finish]
        if writing:
            end.say(f"note: what runs on {' or '.join(writing)} alone add at their end is left out in a run on several")
        return []


@dataclass(frozen=True)
class TaskList(TaskSettings):
    """The settings of all parts of ``[[tasks]]``."""

    parts: tuple[Any, ...]

    def open(self, *, progress: bool) -> SeveralSources:
        """Open all parts, one after the other."""
        opened = []
        for number, settings in enumerate(self.parts):
            with _naming(number):
                opened.append(open_tasks(settings, progress=progress))
        return SeveralSources(opened)

    def misfits(self, model: "Choice", likelihood: "Choice") -> list[str]:
        """Return what does not fit network and likelihood, under the number of the part, and unequal support sets."""
        shots = {number: part.k_shot for number, part in enumerate(self.parts) if hasattr(part, "k_shot")}
        first = min(shots, default=0)
        return [
            f"tasks[{number}]: {line}"
            for number, settings in enumerate(self.parts)
            if isinstance(settings, TaskSettings)
            for line in settings.misfits(model, likelihood)
        ] + [
            f"tasks[{number}].k_shot is {count}, tasks[{first}].k_shot is {shots[first]}; they must be equal"
            for number, count in shots.items()
            if count != shots[first]
        ]

    def next_commands(self, run: Path) -> list[str]:
        """Return the commands of the first part that has any and works on runs of several parts."""
        several = (part for part in self.parts if isinstance(part, TaskSettings) and part.commands_of_several)
        return next((found for part in several if (found := part.next_commands(run))), [])

    def task_of_the_size(self, model: "Choice") -> Task | None:
        """Return a task with the shapes of the first part's."""
        first = self.parts[0]
        return first.task_of_the_size(model) if isinstance(first, TaskSettings) else None


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Within the block, add to an error which part it is about."""
    try:
        yield
    except (ValueError, OSError) as error:
        error.add_note(
            f"This is about part {number} of [[tasks]], whose keys are set by --set tasks.{number}.KEY=VALUE"
        )
        raise
