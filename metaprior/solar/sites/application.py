"""Registration of plants as an application: commands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_commands(app: "typer.Typer") -> None:
    """Add ``inspect``."""
    from metaprior.solar.sites.commands import inspect

    app.command()(inspect)
