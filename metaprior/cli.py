"""The command line. ``metaprior --help`` lists the commands."""

import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import version
from json import dumps
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
    SINUSOID = "sinusoid"
    ROBUSTNESS = "robustness"
    WARMSTART = "warmstart"
    OMNIGLOT = "omniglot"
    WHEEL = "wheel"


class Checkpoint(StrEnum):
    """Names of a run's checkpoints."""

    LAST = "last"
    PREVIOUS = "previous"
    BEST = "best"


BENCH_HELP = (
    "uci: seven regression tables, 20 splits each. mnist: digits. gradients: do all meta-gradient engines agree with "
    "full unrolling and with higher? memory: peak memory of a U-Net's meta-step, by inner steps, beside higher and "
    "torchopt. speed: seconds a task, beside higher. These three need no data, but the package's extra `bench`. "
    "sinusoid: five-shot waves, beside MAML and Bayes by Backprop. robustness: the same training from step sizes 1e-4 "
    "to 1. warmstart: beside a plain network trained on everything and fine-tuned. These three need nothing. "
    "omniglot: five classes of handwritten characters from one and five examples, beside MAML and Bayes by Backprop. "
    "wheel: a bandit that is explored with the adapted posterior, beside MAML and published figures."
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
        Path | None,
        typer.Option(help="uci, mnist, omniglot: data folder (default: $METAPRIOR_DATA, else ../shared/data)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="uci, mnist, omniglot, wheel: processes at once (default: one a core).")
    ] = None,
) -> None:
    """Measure beside published figures (uci, mnist) or beside other libraries at work (gradients, memory, speed).

    Prints a table and, with --json, writes it. Example: metaprior bench uci --quick --json uci.json
    """
    from metaprior.bench import gradients, memory, mnist, omniglot, robustness, sinusoid, speed, uci, warmstart, wheel
    from metaprior.bench.data import data_folder

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
    }
    result = benches[name]()
    typer.echo(result.table())
    if json is not None:
        result.write(json)
        typer.echo(f"written: {json}")


@app.command()
def plan(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="Configuration of a run, in place of the sizes of a U-Net below.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Budget for the whole process (4GiB, 500MB), or a fraction of what is free (0.5). Default: the "
            "configuration's run.memory, else 4GiB."
        ),
    ] = None,
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
    """What will fit, before it runs: predicted peak memory of a meta-step, for every exact way to compute it.

    Takes a few seconds: a large network runs on tensors that have shapes and no numbers, so nothing is computed.

    Examples: metaprior plan --memory 4GiB --frame 256, metaprior plan configs/drifting_blobs.toml
    """
    from metaprior.bench.result import text_table
    from metaprior.metagrad.planner import DoesNotFit, bytes_of, choose, describe, rows, text
    from metaprior.runs.planning import choices_of
    from metaprior.runs.reading import read_config
    from metaprior.unet_plan import UNetJob

    if config is None:
        budget = bytes_of(memory or "4GiB")
        choices = UNetJob(width, frame, frames, k_shot, k_query, steps, samples, stochastic).choices()
    else:
        _refuse_sizes(context)
        wanted = read_config(config)
        budget = bytes_of(memory or wanted.run.memory)
        choices = choices_of(wanted)
    try:
        chosen = choose(choices, budget)
    except DoesNotFit:
        typer.echo(text_table(rows(choices, budget, None)))
        raise
    typer.echo(text_table(rows(choices, budget, chosen)))
    typer.echo(f"budget {text(budget)}: {describe(chosen)}, predicted peak {text(chosen.peak)}")


def _refuse_sizes(context: typer.Context) -> None:
    """With a configuration, sizes on the command line would be ignored, so they are an error."""
    given = [name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"]  # type: ignore[union-attr]
    if sizes := [name for name in given if name not in ("config", "memory")]:
        raise typer.BadParameter(f"the configuration says the sizes; leave out --{sizes[0].replace('_', '-')}")


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="TOML file; configs/ has one for every kind of tasks.")],
    run: Annotated[Path, typer.Option(help="Folder of the run, new or empty; it will tell everything.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set meta.lr=3e-4 (as in TOML; may be repeated)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, to the last bit.")
    ] = False,
    resume_from: Annotated[
        Checkpoint | None, typer.Option(help="Go on from another checkpoint than the last, if that is damaged.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Budget for the whole process (4GiB), or a fraction of what is free (0.5).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Learn a prior over a network's weights from many tasks.

    The folder gets all there is: configuration, metrics.jsonl, tensorboard/, checkpoints, prior, evaluation.

    Stopped (Ctrl-C), killed, or out of disk? The same command with --resume goes on, to the last bit.

    Example: metaprior train configs/sinusoid.toml --run runs/sinusoid --set meta.epochs=5
    """
    from metaprior.runs.program import Request
    from metaprior.runs.program import train as run_training
    from metaprior.runs.reading import read_config
    from metaprior.training.trainer import MetaTrainingStopped

    more = [] if memory is None else [f"run.memory={memory}"]
    request = Request(
        read_config(config, [*(changes or []), *more]),
        config.read_text(encoding="utf-8"),
        run,
        shlex.join(["metaprior", *sys.argv[1:]]),
        resume=resume or resume_from is not None,
        resume_from="last" if resume_from is None else resume_from.value,
        progress=not quiet,
    )
    try:
        run_training(request, typer.echo)
    except MetaTrainingStopped as error:
        typer.echo(f"metaprior: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `metaprior train` that has finished.")],
    shots: Annotated[str | None, typer.Option(help="Shots, as in 0,1,5,10; for classes, examples of each.")] = None,
    steps: Annotated[str | None, typer.Option(help="Adaptation steps, as in 1,5,10.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many unseen tasks.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write rows, and every task's own scores, here.")] = None,
) -> None:
    """How good a learned prior is, on tasks that neither training nor validation has seen: by shots and by steps.

    What is not given is as the run's configuration has it.

    Example: metaprior evaluate runs/sinusoid --shots 0,1,5 --steps 1,5,10 --tasks 200 --json evaluation.json
    """
    from metaprior import checkpoint
    from metaprior.runs.finish import evaluate_run

    found = evaluate_run(run, shots=_numbers("--shots", shots), steps=_numbers("--steps", steps), tasks=tasks)
    typer.echo(found.table())
    if json is not None:
        checkpoint.write_file(json, (dumps(found.as_json(), indent=2) + "\n").encode())
        typer.echo(f"written: {json}")


def _numbers(option: str, text: str | None) -> list[int] | None:
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
        hint = "" if "pip install" in str(error) else "; the pictures need: pip install 'metaprior[report]'"
        typer.echo(f"metaprior: {error}{hint}", err=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"metaprior: {error}", err=True)
        sys.exit(1)
