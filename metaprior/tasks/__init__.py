"""Few-shot tasks, and where they come from."""

from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.few_shot import FewShotClasses
from metaprior.tasks.grouped import GroupedTasks
from metaprior.tasks.task import Examples, Task, Tasks, VariedSupport
from metaprior.tasks.waves import SineOrLine, Sinusoids

__all__ = [
    "DriftingBlobs",
    "Examples",
    "FewShotClasses",
    "GroupedTasks",
    "SineOrLine",
    "Sinusoids",
    "Task",
    "Tasks",
    "VariedSupport",
]
