"""Data sets of the benchmarks as tasks that ``metaprior train`` knows: kinds ``wheel`` and ``omniglot``.

METAPRIOR_APPLICATIONS=benchmarks.common.application metaprior train benchmarks/common/configs/wheel.toml --run DIR
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common.data_folder import data_folder
from benchmarks.common.omniglot import omniglot
from benchmarks.wheel.tasks import WheelTasks
from metaprior.checks import check_counts
from metaprior.runs.sources import TASKS, Purpose, TaskSettings, TaskSource
from metaprior.tasks import FewShotClasses, Tasks

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True)
class OmniglotTasks(TaskSettings):
    """Omniglot's classes; ``path`` is the data folder (default: METAPRIOR_DATA, else ../shared/data)."""

    path: str | None = None
    ways: int = 5
    k_shot: int = 1
    k_query: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(ways=self.ways, k_shot=self.k_shot, k_query=self.k_query)

    def open(self, *, progress: bool) -> "OmniglotSource":
        """See ``TaskSettings``."""
        return OmniglotSource(self)


class OmniglotSource(TaskSource):
    """Characters of other alphabets for every purpose."""

    def __init__(self, settings: OmniglotTasks) -> None:
        super().__init__(settings.seed)
        self.settings, self.examples_per_shot = settings, settings.ways

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """See ``TaskSource``."""
        given = self.settings
        images, labels = omniglot(data_folder(given.path and Path(given.path)), purpose)  # type: ignore[arg-type]
        return FewShotClasses(images, labels, given.ways, given.k_shot, given.k_query, self.seed_of(purpose))


TASKS.add("wheel", WheelTasks)
TASKS.add("omniglot", OmniglotTasks)


def add_commands(app: "typer.Typer") -> None:
    """Add nothing: these tasks have no commands of their own."""
