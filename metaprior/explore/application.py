"""Registration of the page to play with: it has no tasks of its own for runs, and one command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def add_commands(app: "typer.Typer") -> None:
    """Add ``explore``."""
    from metaprior.explore.commands import explore

    app.command()(explore)
