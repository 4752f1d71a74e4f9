"""The command line. ``metaprior --help`` lists the commands."""

import sys
from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from metaprior.bench.result import BenchResult

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class Bench(StrEnum):
    """Names of the benchmarks."""

    UCI = "uci"
    MNIST = "mnist"
    GRADIENTS = "gradients"
    MEMORY = "memory"
    SPEED = "speed"


BENCH_HELP = (
    "uci: seven regression tables, 20 splits each. mnist: digits. gradients: do all meta-gradient engines agree with "
    "full unrolling and with higher? memory: peak memory of a U-Net's meta-step, by inner steps, beside higher and "
    "torchopt. speed: seconds a task, beside higher. The last three need no data, but the package's extra `bench`."
)


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
    name: Annotated[Bench, typer.Argument(help=BENCH_HELP)],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, about a minute: does it run?")] = False,
    json: Annotated[Path | None, typer.Option(help="Write headline, rows, settings and versions here.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="memory only: also frames of 256 x 256 in 4 GiB; much longer.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="uci, mnist: data folder (default: $METAPRIOR_DATA, else ../shared/data).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="uci, mnist: processes at once (default: one a core).")
    ] = None,
) -> None:
    """Measure beside published figures (uci, mnist) or beside other libraries at work (gradients, memory, speed).

    Prints a table and, with --json, writes it. Example: metaprior bench uci --quick --json uci.json
    """
    from metaprior.bench import gradients, memory, mnist, speed, uci
    from metaprior.bench.data import data_folder

    if full and name is not Bench.MEMORY:
        raise typer.BadParameter(f"--full is for memory; {name} is full unless --quick is given")
    benches: dict[Bench, Callable[[], BenchResult]] = {
        Bench.UCI: lambda: uci.run(data_folder(data), quick=quick, workers=workers),
        Bench.MNIST: lambda: mnist.run(data_folder(data), quick=quick, workers=workers),
        Bench.GRADIENTS: lambda: gradients.run(quick=quick),
        Bench.MEMORY: lambda: memory.run(quick=quick, full=full),
        Bench.SPEED: lambda: speed.run(quick=quick),
    }
    result = benches[name]()
    typer.echo(result.table())
    if json is not None:
        result.write(json)
        typer.echo(f"written: {json}")


@app.command()
def plan(
    memory: Annotated[
        str, typer.Option(help="Budget for the whole process (4GiB, 500MB), or a fraction of what is free (0.5).")
    ] = "4GiB",
    width: Annotated[int, typer.Option(min=1, help="Channels of the U-Net at full resolution.")] = 64,
    frame: Annotated[int, typer.Option(min=16, help="Pixels along each side of a frame.")] = 64,
    frames: Annotated[int, typer.Option(min=1, help="Input frames; as many are forecast.")] = 4,
    k_shot: Annotated[int, typer.Option(min=1, help="Support examples of a task.")] = 5,
    k_query: Annotated[int, typer.Option(min=1, help="Query examples of a task.")] = 10,
    steps: Annotated[int, typer.Option(min=0, help="Inner steps.")] = 5,
    samples: Annotated[int, typer.Option(min=1, help="Weight samples in each inner step.")] = 1,
    stochastic: Annotated[
        str, typer.Option(help="Pattern of the random parameters; the others do not move in the inner loop.")
    ] = ".*",
) -> None:
    """What will fit, before it runs: predicted peak memory of a meta-step of a Bayesian U-Net, for every exact way.

    Takes a few seconds: the network runs on tensors that have shapes and no numbers, so nothing large is computed.
    Example: metaprior plan --memory 4GiB --frame 256
    """
    from metaprior.bench.result import text_table
    from metaprior.metagrad.planner import DoesNotFit, bytes_of, choose, describe, rows, text
    from metaprior.unet_plan import UNetJob

    budget = bytes_of(memory)
    choices = UNetJob(width, frame, frames, k_shot, k_query, steps, samples, stochastic).choices()
    try:
        chosen = choose(choices, budget)
    except DoesNotFit:
        typer.echo(text_table(rows(choices, budget, None)))
        raise
    typer.echo(text_table(rows(choices, budget, chosen)))
    typer.echo(f"budget {text(budget)}: {describe(chosen)}, predicted peak {text(chosen.peak)}")


def main() -> None:
    """Run the command line; an error that a user can mend is one message, not a traceback."""
    try:
        app()
    except ModuleNotFoundError as error:
        hint = "" if "pip install" in str(error) else "; the pictures need: pip install 'metaprior[report]'"
        typer.echo(f"metaprior: {error}{hint}", err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"metaprior: {error}", err=True)
        sys.exit(1)
