"""``python -m benchmarks NAME``: measure the package beside published figures and other libraries."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import registry
from benchmarks.common.data_folder import data_folder
from metaprior.cli.application import announce, run_guarded
from metaprior.progress import duration
from metaprior.text_table import text_table

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
ALL = "all"
RESULTS = Path("bench-results")


@app.command()
def main(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(registry.names())}, or all, one after the other; none: --list.")
    ] = "",
    show: Annotated[bool, typer.Option("--list", help="Print what each benchmark measures and needs.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Use small settings: does it run? About a minute.")] = False,
    json: Annotated[
        Path | None, typer.Option(help=f"Write the result to this file (all: to this folder, default {RESULTS}).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of public data (default: $METAPRIOR_DATA, else ../shared/data).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes at once (default: one for each core; 0: only this one).")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="adaptation, table: measure this part only, such as sinusoid or uci; may be repeated."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="memory: also frames of 256 x 256 within 4 GiB, which takes much longer.")
    ] = False,
) -> None:
    """Measure quality, memory and speed beside other methods, other libraries and published figures.

    Prints tables and, with --json, writes headline, rows, settings and versions.

    Example: python -m benchmarks uci --quick --json uci.json
    """
    if show or not name:
        typer.echo(text_table(registry.rows()))
    elif name == ALL:
        options = ["--quick"] * quick + ["--full"] * full
        options += ["--data", str(data)] if data is not None else []
        options += ["--workers", str(workers)] if workers is not None else []
        _run_all(json or RESULTS, options)
    else:
        chosen = registry.find(name)
        chosen.check_needs(data_folder(data))
        how_long = "about a minute" if quick else "minutes to hours (--quick: about a minute)"
        announce(f"{name}: {chosen.description}; takes {how_long}")
        began = time.monotonic()
        result = chosen.run(quick=quick, larger=full, parts=part or (), data=data, workers=workers)
        kept = "" if json is not None else "; --json FILE writes the result to a file"
        announce(f"{name} took {duration(time.monotonic() - began)}{kept}")
        typer.echo(result.table())
        for path in result.write(json) if json is not None else []:
            typer.echo(f"written: {path}")


def _run_all(folder: Path, options: list[str]) -> None:
    """Run every benchmark in a process of its own; a failed one does not stop the others."""
    failed = []
    for name in registry.names():
        typer.echo(f"\n=== {name}")
        own = [option for option in options if option != "--full" or registry.find(name).larger is not None]
        command = [sys.executable, "-m", "benchmarks", name, *own, "--json", str(folder / f"{name}.json")]
        failed += [name] * bool(subprocess.run(command, check=False).returncode)
    if failed:
        typer.echo(f"\nfailed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    run_guarded(app)
