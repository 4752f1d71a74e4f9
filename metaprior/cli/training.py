"""``metaprior init``, ``train``, ``evaluate`` and ``plan``: runs on any kind of tasks."""

import glob
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from metaprior.cli.application import announce, integers
from metaprior.cli.options import messages_name_options
from metaprior.files import named_after
from metaprior.team import OtherRankFailed
from metaprior.team.launch import HANG_AFTER, team_of_torchrun

OVER = "over"
"""Note for processes that torchrun starts again: no restart can mend what has stopped the run."""
CONFIG_HELP = "A TOML file, or the name of a configuration of the package: see `metaprior init`."
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key: --set meta.lr=3e-4 (a value as in TOML; may be repeated)."),
]
MEMORY_HELP = "Budget for the whole process (4GiB, 500MB), or a fraction of what is free (0.5); instead of run.memory."
Memory = Annotated[str | None, typer.Option(help=MEMORY_HELP)]
SCRATCH_HELP = "Folder for files with what does not fit in memory (default: the temporary one); instead of run.scratch."
Scratch = Annotated[Path | None, typer.Option(help=SCRATCH_HELP)]
TrainingDevice = Annotated[
    Literal["cpu", "cuda"] | None, typer.Option("--device", help="Where to compute, in place of run.device.")
]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to compute, wherever the run was trained.")]


def _resources(memory: str | None, scratch: Path | None, device: str | None = None) -> list[str]:
    """Return the changes of a configuration that these options are short for."""
    folder = None if scratch is None else json.dumps(str(scratch))
    given = {"memory": memory, "scratch": folder, "device": device}
    return [f"run.{key}={value}" for key, value in given.items() if value is not None]


def init(
    name: Annotated[str | None, typer.Argument(help="Which one; without a name they are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write (default: NAME.toml).")] = None,
    data: Annotated[
        Path | None, typer.Option(help="An archive of frames or a table of power that the configuration is to fit.")
    ] = None,
) -> None:
    """Write a configuration of the package to a file.

    Change it to your needs, then train with it. With --data the settings are chosen so that tasks can be drawn from
    your data, which is tried before the file is written; NAME may then be left out.

    Example: metaprior init sinusoid

    Example: metaprior init frames --data archive.nc
    """
    from metaprior.runs.reading import changed_text, config_text, packaged_configs

    changes: Sequence[str] = ()
    if data is not None:
        name, changes = _fitting(data, name)
    if name is None:
        for known, path in packaged_configs().items():
            typer.echo(f"{known:15} {path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")
        return
    out = out or Path(f"{name}.toml")
    if out.exists():
        raise FileExistsError(f"{out} exists. Give another name with --out, or remove it yourself")
    if name not in packaged_configs():
        raise ValueError(f"NAME must be one of {', '.join(packaged_configs())}, got {name!r}")
    out.write_text(changed_text(config_text(name), changes), encoding="utf-8")
    typer.echo(f"written: {out}" + "".join(f"\n  {change}" for change in changes))
    typer.echo(f"next: {shlex.join(['metaprior', 'train', str(out), '--run', f'runs/{out.stem}'])}")


def _fitting(data: Path, name: str | None) -> tuple[str, Sequence[str]]:
    """Return the packaged configuration that fits some data, and the changes that it needs."""
    from metaprior.cli.inspection import find_inspector
    from metaprior.cli.inspectors import all_inspectors

    inspector = find_inspector(data, all_inspectors())
    if inspector.fit is None:
        raise ValueError(f"--data must be an archive of frames or a table of power, got {inspector.what}")
    found = inspector.fit(data)
    if found.config is None:
        problems = "".join(f"\n- {problem}" for problem in found.problems)
        raise ValueError(f"{data} is {found.kind}, from which no tasks can be drawn{':' if problems else ''}{problems}")
    if name not in (None, found.config):
        raise ValueError(f"NAME must be {found.config} for {data}, which is {found.kind}, got {name!r}")
    return found.config, found.changes


def train(
    config: Annotated[str, typer.Argument(help=CONFIG_HELP)],
    run: Annotated[
        Path,
        typer.Option(
            "--run",
            "--run-dir",
            help="Folder of the run, new or empty. Behind torchrun write --run-dir: torchrun takes --run for the "
            "beginning of its own --run-path.",
        ),
    ],
    changes: Changes = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder; the result is bitwise identical.")
    ] = False,
    resume_from: Annotated[
        Literal["last", "previous", "best"] | None,
        typer.Option(help="Go on from another checkpoint than the last, if that is damaged."),
    ] = None,
    memory: Memory = None,
    scratch: Scratch = None,
    device: TrainingDevice = None,
    shard: Annotated[
        bool, typer.Option("--shard", help="Of several processes each holds a part of the optimiser's state.")
    ] = False,
    hang_after: Annotated[
        float, typer.Option(help="Seconds after which a process that does not answer is named, and all stop.")
    ] = HANG_AFTER,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bars.")] = False,
) -> None:
    """Learn a prior over a network's weights from many tasks.

    The folder gets the configuration, metrics.jsonl, checkpoints, the prior, an evaluation on unseen tasks and, where
    they are installed, pictures (extra report) and event files for TensorBoard (extra tensorboard).

    Stopped (Ctrl-C), killed, or out of disk? The same command with --resume goes on as if nothing had happened.

    Example: metaprior train sinusoid --run runs/sinusoid --set meta.epochs=5

    Several processes, on one machine or many: torchrun --nproc-per-node 2 --max-restarts 3 -m metaprior train CONFIG
    --run-dir DIR. They divide the tasks of each step; only the first one needs the folder.
    """
    from metaprior.errors import TrainingDiverged
    from metaprior.runs.program import Request
    from metaprior.runs.program import train as run_training
    from metaprior.runs.reading import config_text, read_config

    more = _resources(memory, scratch, device)
    with team_of_torchrun(hang_after) as team:

        def request() -> Request:
            return Request(
                read_config(config, [*(changes or []), *more]),
                config_text(config),
                run,
                shlex.join(["metaprior", *sys.argv[1:]]),
                resume=resume or resume_from is not None,
                resume_from=resume_from or "last",
                progress=not quiet and team.first,
                shard=shard,
            )

        try:
            if team.kept() == OVER:
                raise OtherRankFailed("an earlier start reported why")
            asked, _ = team.attempt(request, lambda _: None)
            tasks = asked.config.tasks.arguments
            with messages_name_options(task_changes(tasks)), pointing_to_inspect(tasks.get("path"), run):
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


@contextmanager
def pointing_to_inspect(data: str | None, run: Path) -> Iterator[None]:
    """Within the block, add to an error about data, before a run has begun, how to see all of their problems."""
    try:
        yield
    except ValueError as error:
        if data is not None and (Path(data).exists() or glob.has_magic(data)) and not run.exists():
            told = shlex.join(["metaprior", "inspect", data])
            error.add_note(f"To see all problems at once, and settings that work: {told}")
        raise


def task_changes(arguments: Iterable[str]) -> dict[str, str]:
    """Return how the keys of ``[tasks]`` are given on the command line, for messages that name arguments."""
    return {name: f"--set tasks.{name}=" for name in arguments}


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run; of an unfinished one the best prior so far is used.")],
    shots: Annotated[str | None, typer.Option(help="Shots, as in 0,1,5,10; for classes, examples of each.")] = None,
    steps: Annotated[str | None, typer.Option(help="Adaptation steps, as in 1,5,10.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Number of unseen tasks.")] = None,
    device: Device = "cpu",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write rows, and every task's own scores, to this file.")
    ] = None,
) -> None:
    """Score a learned prior on unseen tasks.

    By shots and by steps, on tasks that neither training nor validation has seen. What is not given is as the run's
    configuration has it.

    Example: metaprior evaluate runs/sinusoid --shots 0,1,5 --steps 1,5,10 --tasks 200 --json evaluation.json

    Several processes divide the tasks: torchrun --nproc-per-node 2 -m metaprior evaluate RUN. All have to see the
    folder; the numbers are bitwise identical.
    """
    from metaprior import checkpoint
    from metaprior.runs.finish import evaluate_run

    cells = {"shots": integers("--shots", shots), "steps": integers("--steps", steps)}
    with team_of_torchrun() as team:
        team.on_first(lambda: say_unfinished(run))
        found = evaluate_run(run, **cells, tasks=tasks, device=device, say=typer.echo, announce=announce)

        def write(file: Path) -> None:
            checkpoint.write_file(file, (json.dumps(found.as_json(), indent=2) + "\n").encode())
            typer.echo(f"written: {file}, the scores of every task")

        if json_file is not None:
            team.on_first(lambda: write(json_file))
        else:
            again = shlex.join(["metaprior", *sys.argv[1:], "--json", named_after(run, "evaluation.json")])
            team.on_first(lambda: announce(f"to keep the scores of every task: {again}"))


def say_unfinished(run: Path, name: str = "prior", file: str = "prior") -> None:
    """Print, to the error stream, which state is used of a run that has not finished."""
    from metaprior.runs.learned import unfinished_note

    if note := unfinished_note(run, name, file):
        typer.echo(note, err=True)


def plan(
    config: Annotated[str, typer.Argument(help=CONFIG_HELP)],
    memory: Memory = None,
    scratch: Scratch = None,
    changes: Changes = None,
) -> None:
    """Predict the memory of a training before it runs.

    Prints the peak of a meta-step for every exact way to compute it, and the size of the scratch file where the steps'
    path is kept on disk. Takes a few seconds: a large network runs on tensors that have shapes and no numbers.

    Example: metaprior plan drifting_blobs --memory 4GiB --set model.width=64 --set tasks.size=256
    """
    import torch

    from metaprior.metagrad.memory import bytes_of, text
    from metaprior.metagrad.planner import DoesNotFit, choose, describe, rows
    from metaprior.runs.build import choices_of
    from metaprior.runs.reading import read_config
    from metaprior.text_table import text_table

    settings = read_config(config, [*(changes or []), *_resources(memory, scratch)])
    choices = choices_of(settings)
    budget = bytes_of(settings.run.memory, device=torch.device(settings.run.device))
    try:
        chosen = choose(choices, budget)
    except DoesNotFit:
        typer.echo(text_table(rows(choices, budget, None)))
        raise
    typer.echo(text_table(rows(choices, budget, chosen)))
    file = f", {text(chosen.file)} in a scratch file for each task" if chosen.file else ""
    typer.echo(f"budget {text(budget)}: {describe(chosen)}, predicted peak {text(chosen.peak)}{file}")
