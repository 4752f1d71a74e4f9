"""``metaprior plan``, ``train`` and ``evaluate``: runs of any kind of tasks."""

import shlex
import sys
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.application import numbers
from metaprior.team import OtherRankFailed, Team
from metaprior.team.launch import HANG_AFTER

OVER = "over"


class Checkpoint(StrEnum):
    """Names of a run's checkpoints."""

    LAST = "last"
    PREVIOUS = "previous"
    BEST = "best"


def train(
    config: Annotated[Path, typer.Argument(help="TOML file; configs/ has one for every kind of tasks.")],
    run: Annotated[
        Path,
        typer.Option(
            "--run",
            "--run-dir",
            help="Folder of the run, new or empty; it will tell everything. Behind torchrun write --run-dir: it takes "
            "--run for the beginning of its own --run-path.",
        ),
    ],
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
    shard: Annotated[
        bool, typer.Option("--shard", help="Of several processes each holds a part of the optimiser's state.")
    ] = False,
    hang_after: Annotated[
        float, typer.Option(help="Seconds after which a process that does not answer is named, and all stop.")
    ] = HANG_AFTER,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Learn a prior over a network's weights from many tasks.

    The folder gets all there is: configuration, metrics.jsonl, tensorboard/, checkpoints, prior, evaluation.

    Stopped (Ctrl-C), killed, or out of disk? The same command with --resume goes on, to the last bit.

    Example: metaprior train configs/sinusoid.toml --run runs/sinusoid --set meta.epochs=5

    Several processes, on one machine or many: torchrun --nproc-per-node 2 --max-restarts 3 -m metaprior train CONFIG
    --run-dir DIR. They divide the tasks of each step; the folder is needed by the first one alone.
    """
    from metaprior.errors import TrainingDiverged
    from metaprior.runs.program import Request
    from metaprior.runs.program import train as run_training
    from metaprior.runs.reading import read_config
    from metaprior.team.launch import team_of_torchrun

    more = [] if memory is None else [f"run.memory={memory}"]
    with team_of_torchrun(hang_after) as team:

        def request() -> Request:
            return Request(
                read_config(config, [*(changes or []), *more]),
                config.read_text(encoding="utf-8"),
                run,
                shlex.join(["metaprior", *sys.argv[1:]]),
                resume=resume or resume_from is not None,
                resume_from="last" if resume_from is None else resume_from.value,
                progress=not quiet and team.first,
                shard=shard,
            )

        try:
            _refuse_again(team)
            asked, _ = team.attempt(request, lambda _: None)
            run_training(asked, typer.echo if team.first else lambda _: None)
        except TrainingDiverged as error:
            team.keep(OVER)
            if not team.first:
                raise OtherRankFailed from None  # which says the same
            typer.echo(f"metaprior: {error}", err=True)
            raise typer.Exit(1) from None
        except ValueError:
            team.keep(OVER)
            raise
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _refuse_again(team: Team) -> None:
    """What no restart by torchrun can mend is not tried, and told, again."""
    if team.kept() == OVER:
        raise OtherRankFailed("an earlier start has told why")


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(help="Folder of a run of `metaprior train`; one that has not finished: its best prior so far."),
    ],
    shots: Annotated[str | None, typer.Option(help="Shots, as in 0,1,5,10; for classes, examples of each.")] = None,
    steps: Annotated[str | None, typer.Option(help="Adaptation steps, as in 1,5,10.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many unseen tasks.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write rows, and every task's own scores, here.")] = None,
) -> None:
    """How good a learned prior is, on tasks that neither training nor validation has seen: by shots and by steps.

    What is not given is as the run's configuration has it.

    Example: metaprior evaluate runs/sinusoid --shots 0,1,5 --steps 1,5,10 --tasks 200 --json evaluation.json

    Several processes divide the tasks: torchrun --nproc-per-node 2 -m metaprior evaluate RUN. All have to see the
    folder; the numbers are the same, to the last bit.
    """
    from metaprior import checkpoint
    from metaprior.runs.finish import evaluate_run
    from metaprior.team import team_of_torchrun

    wanted = {"shots": numbers("--shots", shots), "steps": numbers("--steps", steps)}
    with team_of_torchrun() as team:
        team.on_first(lambda: say_unfinished(run))
        found = evaluate_run(run, **wanted, tasks=tasks, say=typer.echo)

        def write(json: Path) -> None:
            checkpoint.write_file(json, (dumps(found.as_json(), indent=2) + "\n").encode())
            typer.echo(f"written: {json}")

        if json is not None:
            team.on_first(lambda: write(json))


def say_unfinished(run: Path, name: str = "prior", file: str = "prior") -> None:
    """Say, beside the output, which state is used of a run that is still trained, or was stopped."""
    from metaprior.runs.learned import unfinished_note

    note = unfinished_note(run, name, file)
    if note is not None:
        typer.echo(note, err=True)


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
    from metaprior.metagrad.planner import DoesNotFit, bytes_of, choose, describe, rows, text
    from metaprior.runs.build import choices_of
    from metaprior.runs.reading import read_config
    from metaprior.text_table import text_table
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
