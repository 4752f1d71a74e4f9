"""A build step of the documentation site: the help of every command, as a terminal prints it."""

from collections.abc import Iterator
from typing import Any

import typer

from metaprior.cli import app

MARK = "<!-- the help of every command -->"
"""Where a page wants the text of this file."""
WIDTH = 100
"""Characters in a line of the help."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the page with the mark replaced by the help of every command."""
    return markdown.replace(MARK, "\n\n".join(sections())) if MARK in markdown else markdown


def sections() -> Iterator[str]:
    """Yield the Markdown of ``metaprior`` itself and of each of its commands, groups before their commands."""
    root = typer.main.get_command(app)
    for names, command, context in walk(("metaprior",), root, None):
        yield f"## `{' '.join(names)}`\n\n```text\n{command.get_help(context).strip()}\n```"


def walk(names: tuple[str, ...], command: Any, parent: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the names, the object and the context of a command and of all commands below it."""
    context = command.context_class(
        command, info_name=names[-1], parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield names, command, context
    for name, below in getattr(command, "commands", {}).items():
        yield from walk((*names, name), below, context)
