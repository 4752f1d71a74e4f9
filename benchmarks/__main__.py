"""``python -m benchmarks NAME``: measure the package beside published figures and other libraries."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaprior.cli.application import run_guarded

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

if TYPE_CHECKING:
    from benchmarks.result import BenchResult


class Bench(StrEnum):
    """Names of the benchmarks."""

    UCI = "uci"
    MNIST = "mnist"
    GRADIENTS = "gradients"
    MEMORY = "memory"
    SPEED = "speed"
    SINUSOID = "sinusoid"
    ROBUSTNESS = "robustness"
    WARMSTART = "warmstart"
    OMNIGLOT = "omniglot"
    WHEEL = "wheel"
    SOLAR = "solar"
    HIERARCHY = "hierarchy"
    PERMUTED = "permuted"
    SCALING = "scaling"


BENCH_HELP = (
    "uci: seven regression tables, 20 splits each. mnist: digits. gradients: do all meta-gradient engines agree with "
    "full unrolling and with higher? memory: peak memory of a U-Net's meta-step, by inner steps, beside higher and "
    "torchopt. speed: seconds a task, beside higher. These three need no data, but the package's extra `bench`. "
    "sinusoid: five-shot waves, beside MAML and Bayes by Backprop. robustness: the same training from step sizes 1e-4 "
    "to 1. warmstart: beside a plain network trained on everything and fine-tuned. These three need nothing. "
    "omniglot: five classes of handwritten characters from one and five examples, beside MAML and Bayes by Backprop. "
    "wheel: a bandit that is explored with the adapted posterior, beside MAML and published figures. solar: forecast "
    "maps of Himawari-9 and of the simulator, beside fine-tuned networks, an ensemble, MAML and persistence. "
    "hierarchy: what tasks learn from each other, with few and many data and tasks: plain, hierarchical and amortised "
    "inference (with --json also a picture), and the memory of 2,000 tasks; it needs nothing. permuted: digits with "
    "permuted labels or pixels, new tasks of 2,000 images, beside a network from scratch and a warm start. scaling: "
    "a training shared by two processes beside one, and a model of more; it needs nothing but a machine at rest."
)


@app.command()
def bench(
    name: Annotated[Bench, typer.Argument(help=BENCH_HELP)],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, about a minute: does it run?")] = False,
    json: Annotated[Path | None, typer.Option(help="Write headline, rows, settings and versions here.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="memory only: also frames of 256 x 256 in 4 GiB; much longer.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="uci, mnist, omniglot, permuted, solar: data folder (default: $METAPRIOR_DATA, else ../shared/data)."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="uci, mnist, omniglot, permuted, wheel, solar, hierarchy: processes at once (default: one a core).",
        ),
    ] = None,
) -> None:
    """Measure quality, memory and speed, beside other libraries at work, other methods and published figures.

    Prints a table and, with --json, writes it. Example: python -m benchmarks uci --quick --json uci.json
    """
    from benchmarks import (
        gradients,
        hierarchy,
        memory,
        mnist,
        omniglot,
        permuted,
        robustness,
        scaling,
        sinusoid,
        speed,
        uci,
        warmstart,
        wheel,
    )
    from benchmarks.data import data_folder

    if full and name is not Bench.MEMORY:
        raise typer.BadParameter(f"--full is for memory; {name} is full unless --quick is given")
    benches: dict[Bench, Callable[[], BenchResult]] = {
        Bench.UCI: lambda: uci.run(data_folder(data), quick=quick, workers=workers),
        Bench.MNIST: lambda: mnist.run(data_folder(data), quick=quick, workers=workers),
        Bench.GRADIENTS: lambda: gradients.run(quick=quick),
        Bench.MEMORY: lambda: memory.run(quick=quick, full=full),
        Bench.SPEED: lambda: speed.run(quick=quick),
        Bench.SINUSOID: lambda: sinusoid.run(quick=quick),
        Bench.ROBUSTNESS: lambda: robustness.run(quick=quick),
        Bench.WARMSTART: lambda: warmstart.run(quick=quick),
        Bench.OMNIGLOT: lambda: omniglot.run(data_folder(data), quick=quick, workers=workers),
        Bench.WHEEL: lambda: wheel.run(quick=quick, workers=workers),
        Bench.SOLAR: lambda: _solar(data_folder(data), quick, workers),
        Bench.PERMUTED: lambda: permuted.run(data_folder(data), quick=quick, workers=workers),
        Bench.HIERARCHY: lambda: hierarchy.run(quick=quick, workers=workers),
        Bench.SCALING: lambda: scaling.run(quick=quick),
    }
    result = benches[name]()
    typer.echo(result.table())
    if json is not None:
        result.write(json)
        typer.echo(f"written: {json}")
        if name is Bench.HIERARCHY:
            picture = json.with_suffix(".png")
            hierarchy.draw(result, picture)
            typer.echo(f"written: {picture}")


def _solar(folder: Path, quick: bool, workers: int | None) -> "BenchResult":
    """Only this bench needs the extra `solar`."""
    from benchmarks import solar

    return solar.run(folder, quick=quick, workers=workers)


if __name__ == "__main__":
    run_guarded(app)
