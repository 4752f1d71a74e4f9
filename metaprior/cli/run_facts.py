"""What ``metaprior inspect`` says about the folder of a run."""

from pathlib import Path
from typing import Any

from metaprior.cli.inspection import Inspection
from metaprior.cli.inspectors import command
from metaprior.errors import CheckpointError
from metaprior.evaluation import NLL_PER_VALUE
from metaprior.methods import load
from metaprior.runs.checkpoints import KIND, NAMES
from metaprior.runs.config import Config, differences
from metaprior.runs.folder import RunFolder
from metaprior.runs.outlook import next_commands
from metaprior.runs.reading import ConfigError, as_change, parse, read_config

WRITTEN_AT_THE_END = ("evaluation.json",)


def inspect_run(path: Path) -> Inspection:
    """Return how far a run is, what it has learned, what is missing or damaged, and how to go on."""
    run, problems = RunFolder(path), list[str]()
    config = _try(problems, lambda: parse(run.config(), str(path / "config.json")))
    record = _try(problems, lambda: run.read_json("run.json")) or {}
    lines = _try(problems, run.metrics) or []
    finished = bool(_try(problems, lambda: run.finished)) if record else False
    facts = {"finished": "yes" if finished else "no"}
    step = lines[-1]["step"] if lines else 0
    if config is not None:
        facts |= {
            "tasks": config.tasks.kind,
            "network": config.model.kind,
            "likelihood": config.likelihood.kind,
            "adaptation": config.adaptation.kind,
            "steps": f"{step:,} of {config.meta.steps:,}",
        }
    facts |= _starts(record)
    facts |= _scores(run, problems)
    problems += _missing(run, finished, bool(lines))
    return Inspection("the folder of a run", facts, problems, _next(run, config, finished))


def _try(problems: list[str], read: Any) -> Any:
    """Return what is read, or None with its error among the problems."""
    try:
        return read()
    except (ValueError, OSError, KeyError, TypeError) as error:
        problems.append(str(error))
        return None


def _starts(record: Any) -> dict[str, str]:
    starts = record.get("starts") or []
    if not starts:
        return {}
    versions = starts[-1].get("versions", {})
    times = f"{starts[0].get('time')}" + (f", resumed {len(starts) - 1} times" if len(starts) > 1 else "")
    return {"started": times, "version": f"metaprior {versions.get('metaprior')}, torch {versions.get('torch')}"}


def _scores(run: RunFolder, problems: list[str]) -> dict[str, str]:
    """Return the last validation, and the last row of the evaluation on unseen tasks."""
    lines = _try([], run.metrics) or []
    validations = [line["validation"] for line in lines if line.get("validation")]
    facts = {"validation skill": f"{validations[-1]['skill']}"[:6]} if validations else {}
    if (run.path / "evaluation.json").exists():
        found = _try(problems, lambda: run.read_json("evaluation.json"))
        rows = found.get("rows") if isinstance(found, dict) else None
        if rows:
            nll = NLL_PER_VALUE if NLL_PER_VALUE in rows[-1] else "nll"
            names = ("shots", "steps", "rmse", "error", nll, "coverage_90")
            shown = {name: rows[-1][name] for name in names if rows[-1].get(name) is not None}
            parts = [f"{name} {value:.4g}" for name, value in shown.items()]
            facts["unseen tasks"] = ", ".join(parts)
    return facts


def _missing(run: RunFolder, finished: bool, begun: bool) -> list[str]:
    """Return what is not there or damaged, of what should be."""
    problems = []
    if run.prior.exists():
        try:
            load(run.prior)
        except (CheckpointError, ValueError, OSError) as error:
            if "module" not in str(error):  # a network of an application, which its commands rebuild
                problems.append(f"the prior cannot be loaded: {error}")
    elif finished:
        problems.append(f"{run.prior} is missing although the run has finished: {run.how_to_go_on}")
    if finished:
        gone = [name for name in WRITTEN_AT_THE_END if not (run.path / name).exists()]
        problems += [f"{name} is missing: {run.how_to_go_on}" for name in gone]
        return problems
    whole = [name for name in NAMES if _is_whole(run.checkpoints / name)]
    if begun and not whole:
        problems.append(f"{run.checkpoints} holds no whole checkpoint, so the run cannot go on. Restore it from a copy")
    elif whole and "last" not in whole and (run.checkpoints / "last").exists():
        problems.append(f"the last checkpoint is damaged: go on with --resume-from {whole[0]}")
    return problems


def _is_whole(folder: Path) -> bool:
    from metaprior import checkpoint

    try:
        checkpoint.read(folder, KIND)
    except CheckpointError:
        return False
    return True


def _next(run: RunFolder, config: Config | None, finished: bool) -> list[str]:
    """Return the commands that go on with an unfinished run, or that use a finished one."""
    if config is None:
        return []
    if finished and run.prior.exists():
        return next_commands(config, run.path)
    usable = [command("evaluate", run.path)] if run.prior.exists() else []
    return [*_resume(run, config), *usable]


def _resume(run: RunFolder, config: Config) -> list[str]:
    """Return the command that goes on with a run; nothing if the file of its configuration was changed."""
    toml = run.path / "config.toml"
    try:
        given = differences(read_config(toml).resolved(), config.resolved())
        changes = [as_change(key, now) for key, _, now in given]
        if read_config(toml, changes).resolved() != config.resolved():
            return []
    except ConfigError:
        return []
    words = [word for change in changes for word in ("--set", change)]
    return [command("train", toml, "--run", run.path, *words, "--resume")]
