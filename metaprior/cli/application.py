"""The application that commands are added to, and what happens to their errors."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

SOLAR_PACKAGES = {"xarray", "pandas", "netCDF4", "zarr", "pvlib"}


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

    Start with: metaprior demo
    """


def numbers(option: str, text: str | None) -> list[int] | None:
    """What an option such as ``--shots 0,1,5`` says."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{option} takes whole numbers with commas between, as in 1,5,10; got {text!r}"
        ) from None


def main() -> None:
    """Run the command line; an error that a user can mend is one message, not a traceback."""
    try:
        app()
    except ModuleNotFoundError as error:
        typer.echo(f"metaprior: {error}{_remedy(error)}", err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError, FloatingPointError) as error:
        typer.echo(f"metaprior: {error}", err=True)
        sys.exit(1)


def _remedy(error: ModuleNotFoundError) -> str:
    """Which of the package's extras has what is missing."""
    if "pip install" in str(error):
        return ""
    if (error.name or "").split(".")[0] in SOLAR_PACKAGES:
        return "; frames need: pip install 'metaprior[solar]'"
    return "; the pictures need: pip install 'metaprior[report]'"
