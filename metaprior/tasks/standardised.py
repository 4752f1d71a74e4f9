"""Tasks with targets in the network's units."""

from dataclasses import dataclass

from metaprior.checks import as_plain_tensor, at_least_single
from metaprior.scaling import TargetScale
from metaprior.tasks.task import Examples, Task, Tasks, as_task


def standardised(examples: Examples, scale: TargetScale) -> Examples:
    """Return examples with their real-valued targets in the network's units."""
    targets, channels = at_least_single(as_plain_tensor(examples.y, "y")).to(scale.loc.device), scale.loc.numel()
    matches = channels == 1 or (targets.ndim > 1 and targets.shape[1] == channels)  # if not, the shape check raises
    return Examples(examples.x, scale.to_internal(targets) if matches else targets)


def standardised_task(task: Task, scale: TargetScale) -> Task:
    """Return a task with the real-valued targets of both sets in the network's units."""
    return Task(standardised(task.support, scale), standardised(task.query, scale), task.name)


@dataclass(frozen=True)
class StandardisedTasks:
    """The tasks of another source with targets in the network's units."""

    tasks: Tasks
    scale: TargetScale

    def __len__(self) -> int:
        return len(self.tasks)  # type: ignore[arg-type]  # TypeError for an endless source, as it should be

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        return standardised_task(as_task(self.tasks[index]), self.scale)

    @property
    def thread_safe(self) -> bool:
        """Return whether the source may be asked by a second thread."""
        return bool(getattr(self.tasks, "thread_safe", False))
