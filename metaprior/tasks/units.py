"""Real-valued targets of examples, tasks and sources in the network's units."""

from dataclasses import dataclass

from metaprior.checks import as_plain_tensor, at_least_single
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task, Tasks, as_task


@dataclass(frozen=True)
class TargetUnits:
    """The way from the user's units to the network's; with ``standardised=False`` nothing is changed."""

    scale: TargetScale
    standardised: bool

    def examples(self, examples: Examples) -> Examples:
        """Return examples with targets in the network's units."""
        if not self.standardised:
            return examples
        targets, channels = at_least_single(as_plain_tensor(examples.y, "y")), self.scale.loc.numel()
        if channels != 1 and (targets.ndim < 2 or targets.shape[1] != channels):
            return examples  # the check of shapes, which comes later, raises
        return Examples(examples.x, self.scale.to_internal(targets.to(self.scale.loc.device)))

    def task(self, task: Task) -> Task:
        """Return a task with the targets of both sets in the network's units."""
        support, query, name = as_task(task)
        return Task(self.examples(support), self.examples(query), name)

    def tasks(self, tasks: Tasks) -> Tasks:
        """Return a source of the same tasks with targets in the network's units."""
        return _TasksInUnits(tasks, self) if self.standardised else tasks


@dataclass(frozen=True)
class _TasksInUnits:
    source: Tasks
    units: TargetUnits

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]  # TypeError for an endless source, as it should be

    def __getitem__(self, index: int) -> Task:
        return self.units.task(self.source[index])

    @property
    def thread_safe(self) -> bool:
        return bool(getattr(self.source, "thread_safe", False))
