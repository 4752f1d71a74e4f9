"""Registration of plants as an application: commands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_commands(app: "typer.Typer") -> None:
    """Add ``inspect`` and the group ``sites``."""
    from metaprior.solar.sites.commands import inspect, sites

    app.command()(inspect)
    app.add_typer(sites, name="sites")
