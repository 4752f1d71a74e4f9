"""Few-shot tasks, and where they come from."""

from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.tasks.few_shot import FewShotClasses
from metaprior.tasks.grouped import GroupedTasks
from metaprior.tasks.sine_or_line import SineOrLine
from metaprior.tasks.sinusoids import Sinusoids
from metaprior.tasks.source import Tasks
from metaprior.tasks.task import Examples, Task
from metaprior.tasks.varied_support import VariedSupport
from metaprior.tasks.wheel import WheelTasks

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
    "WheelTasks",
]
