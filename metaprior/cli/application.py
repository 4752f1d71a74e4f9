"""The application that commands are added to, and what it prints about their errors and warnings."""

import os
import time
import warnings
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from metaprior.team.launch import leave
from metaprior.team.team import LATER, OtherRankFailed, RankLost

# Plain help, because rich keeps the line breaks of docstrings and takes time to import.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

EXTRAS = {
    "report": ("matplotlib",),
    "solar": ("netCDF4", "pandas", "pvlib", "torchmetrics", "xarray", "zarr"),
    "tensorboard": ("tensorboard",),
}
"""Packages that are installed by the extras of this one."""


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
    """Bayesian neural networks and Bayesian meta-learning: fit, adapt, forecast with honest uncertainty.

    \b
    Start with what you have:
      a plant's power     metaprior sites forecast power.csv --out forecast.csv
      maps over time      metaprior inspect archive.nc
      tasks of your own   metaprior init sinusoid
      no data yet         metaprior simulate sites --out power.csv
      a first training    metaprior train sinusoid --run runs/sinusoid
      any file or folder  metaprior inspect PATH

    Every command has --help with an example, and ends by naming the next one.
    """


def announce(text: str) -> None:
    """Tell the user what a command is about to do, on the error stream: the output stream is for results."""
    typer.echo(text, err=True)


def integers(option: str, text: str | None) -> list[int] | None:
    """Return the numbers of an option such as ``--shots 0,1,5``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be integers with commas between, as in 1,5,10, got {text!r}") from None


def main() -> None:
    """Run the command line."""
    run_guarded(app)


def run_guarded(program: typer.Typer) -> None:
    """Run a command-line program: print errors that a user can fix as one message, and warnings as one note each."""
    warnings.showwarning = _note
    try:
        program()
    except SystemExit as end:
        _leave(end)
    except ModuleNotFoundError as error:
        _stop(f"{error}{_remedy(error)}")
    except OtherRankFailed:
        time.sleep(2 * LATER)  # torchrun ends all when one ends, and the other has something to say
        _leave(SystemExit(1))
    except (ValueError, TypeError, OSError, FloatingPointError, RankLost) as error:
        _stop("\n".join([str(error), *getattr(error, "__notes__", [])]))


def _note(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without file name and line number: command-line users cannot act on those."""
    typer.echo(f"note: {message}", err=True)


def _stop(message: str) -> NoReturn:
    if int(os.environ.get("RANK", "0")):
        time.sleep(LATER)  # torchrun ends this process before it repeats what the first one says, too
    typer.echo(f"metaprior: {message}", err=True)
    _leave(SystemExit(1))


def _leave(end: SystemExit) -> NoReturn:
    """End the process; one of several ends at once."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    raise end


def _remedy(error: ModuleNotFoundError) -> str:
    """Return how to install what is missing."""
    package = (error.name or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    known = extra and "pip install" not in str(error)
    return f". Try: pip install 'metaprior[{extra}]'" if known else ""
