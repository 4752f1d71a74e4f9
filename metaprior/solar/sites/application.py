"""Registration of plants as an application: their network, their tasks, and commands."""

from typing import TYPE_CHECKING

from metaprior.models import MODELS
from metaprior.runs.sources import TASKS
from metaprior.solar.sites.network import SiteNetwork
from metaprior.solar.sites.task_settings import SitesTasks

if TYPE_CHECKING:
    import typer

    from metaprior.cli.inspection import Inspector

MODELS.add("sites", SiteNetwork)
TASKS.add("sites", SitesTasks)


def add_commands(app: "typer.Typer") -> None:
    """Add the group ``sites``."""
    from metaprior.solar.sites.commands import sites

    app.add_typer(sites, name="sites")


def inspectors() -> "tuple[Inspector, ...]":
    """Return how ``metaprior inspect`` recognises tables of power, forecasts of plants and priors over plants."""
    from metaprior.solar.sites.inspection import INSPECTORS

    return INSPECTORS
