"""Registration of forecast maps as an application of ``metaprior.runs``: kinds of tasks, and commands."""

from typing import TYPE_CHECKING

from metaprior.runs.sources import TASKS
from metaprior.solar.maps.task_settings import KINDS

if TYPE_CHECKING:
    import typer

    from metaprior.cli.inspection import Inspector

for kind, settings in KINDS.items():
    TASKS.add(kind, settings)


def add_commands(app: "typer.Typer") -> None:
    """Add ``simulate``, ``nowcast``, ``predict`` and ``report``."""
    from metaprior.solar.commands import report, simulate
    from metaprior.solar.maps.commands import nowcast, predict

    for command in (simulate, nowcast, predict, report):
        app.command()(command)


def inspectors() -> "tuple[Inspector, ...]":
    """Return how ``metaprior inspect`` recognises archives of frames and forecast maps."""
    from metaprior.solar.maps.inspection import INSPECTORS

    return INSPECTORS
