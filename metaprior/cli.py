"""The command line. ``metaprior --help`` lists the commands."""

import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class Bench(StrEnum):
    """Names of the benchmarks."""

    UCI = "uci"
    MNIST = "mnist"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version("metaprior"))
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """Bayesian neural networks and Bayesian meta-learning: fit, adapt, forecast with honest uncertainty."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the fitted network.")] = Path("demo"),
) -> None:
    """Fit the 1-D regression of the Bayes by Backprop paper; draw its predictive band; print a small table.

    Needs no data and less than a minute. Example: metaprior demo --out demo
    """
    from metaprior.demo import run

    run(out, say=typer.echo)


@app.command()
def bench(
    name: Annotated[Bench, typer.Argument(help="uci: seven regression tables, 20 splits each. mnist: digits.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, about a minute: does it run?")] = False,
    json: Annotated[Path | None, typer.Option(help="Write headline, rows, settings and versions here.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder (default: $METAPRIOR_DATA, else ../shared/data).")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once (default: one a core).")] = None,
) -> None:
    """Measure quality beside published figures.

    Prints a table and, with --json, writes it. Example: metaprior bench uci --quick --json uci.json
    """
    from metaprior.bench import mnist, uci
    from metaprior.bench.data import data_folder

    benches = {Bench.UCI: uci.run, Bench.MNIST: mnist.run}
    result = benches[name](data_folder(data), quick=quick, workers=workers)
    typer.echo(result.table())
    if json is not None:
        result.write(json)
        typer.echo(f"written: {json}")


def main() -> None:
    """Run the command line; an error that a user can mend is one message, not a traceback."""
    try:
        app()
    except ModuleNotFoundError as error:
        typer.echo(f"metaprior: {error}; the pictures need: pip install 'metaprior[report]'", err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"metaprior: {error}", err=True)
        sys.exit(1)
