"""``metaprior explore``: write the page and show it."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

PAGE = Path("explore.html")


def explore(
    out: Annotated[Path, typer.Option(help="The file to write.")] = PAGE,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Show the page in the browser, if there is one on a desktop.")
    ] = True,
) -> None:
    """Write a page to play with: add points, and watch a prior become a posterior.

    Three ways to adapt side by side on curves, and the forecast of a solar plant after 0 to 14 days of its power. One
    HTML file, which computes everything itself and needs no network.

    Example: metaprior explore --out explore.html
    """
    from metaprior.explore.page import TITLE, write_page

    if out.is_dir():
        raise IsADirectoryError(f"--out must be a file, got the folder {out}. Try --out {out / PAGE}")
    if out.exists() and TITLE.encode() not in out.read_bytes():
        raise FileExistsError(f"{out} is there already, and is no page of this command. Try another --out")
    write_page(out)
    opened = open_page and has_desktop() and shown(out)
    typer.echo(f"written: {out}" + (", opened in the browser" if opened else "\nnext: open it in a browser"))


def has_desktop() -> bool:
    """Return whether somebody sits in front of a screen: never in CI, in a pipe, or on a machine without a display."""
    if os.environ.get("CI") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def shown(path: Path) -> bool:
    """Return whether a browser could be started with the page."""
    try:
        return webbrowser.open(path.resolve().as_uri())
    except (webbrowser.Error, OSError):
        return False
