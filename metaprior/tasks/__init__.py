"""Few-shot tasks."""

from metaprior.tasks.task import Examples, Task

__all__ = ["Examples", "Task"]
