"""Inspectors of what every application has: runs, saved priors, configurations, and JSON files of results."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaprior.applications import applications
from metaprior.checkpoint import DESCRIPTION
from metaprior.cli.inspection import Inspection, Inspector
from metaprior.text_table import counted, text_table

RUN_FILES = ("run.json", "config.json")
CHECKPOINT_OF_A_RUN = "metaprior train"


def command(*words: object) -> str:
    """Return a command line that a shell reads as these words."""
    return shlex.join(["metaprior", *map(str, words)])


def _inspect_run(path: Path) -> Inspection:
    from metaprior.cli.run_facts import inspect_run

    return inspect_run(path)


def _inspect_checkpoint(path: Path) -> Inspection:
    from metaprior.cli.prior_facts import inspect_checkpoint

    return inspect_checkpoint(path)


def _inspect_config(path: Path) -> Inspection:
    from metaprior.runs.reading import ConfigError, read_config

    run = Path("runs") / path.stem
    try:
        config = read_config(path)
    except ConfigError as error:
        problems = [line.strip() for line in str(error).splitlines()]
        return Inspection(
            "a configuration that cannot be trained with", {}, problems[1:] or problems, [command("init")]
        )
    meta, tasks = config.meta, config.tasks
    warm = f"{counted(meta.warm_start, 'step')} of warm start, then " if meta.warm_start else ""
    facts = {
        "tasks": "; ".join(_described(part.kind, part.arguments) for part in tasks.parts),
        "network": _described(config.model.kind, config.model.arguments),
        "likelihood": config.likelihood.kind,
        "adaptation": _described(config.adaptation.kind, config.adaptation.arguments),
        "training": f"{warm}{counted(meta.epochs, 'epoch')} of {counted(meta.steps_per_epoch, 'step')} on "
        f"{counted(meta.meta_batch, 'task')}",
        "scored on": counted(config.evaluate.tasks, "unseen task"),
    }
    paths = {key: data for key, data in tasks.arguments.items() if key.rpartition(".")[2] == "path"}
    gone = {f"tasks.{key}": data for key, data in paths.items() if isinstance(data, str) and not Path(data).exists()}
    problems = [f"{key} {data} does not exist. Give yours by --set {key}=PATH" for key, data in gone.items()]
    train = command("train", path, "--run", run)
    following = [train, command("plan", path)] if config.adaptation.kind == "descent" else [train]
    if gone:
        following = [" ".join([train, *(f"--set {key}=PATH" for key in gone)])]
    return Inspection("a valid configuration", facts, problems, following)


def _described(kind: str, arguments: Mapping[str, Any]) -> str:
    """Return a kind with its arguments that are neither unset nor nested."""
    shown = [f"{key} {value}" for key, value in arguments.items() if isinstance(value, int | float | str | list)]
    return f"{kind} ({', '.join(shown)})" if shown else kind


def _json(path: Path) -> Any:
    """Return the content of a JSON file; None if it has none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _inspect_json(path: Path) -> Inspection:
    content = _json(path)
    if content is None:
        return Inspection("a JSON file that cannot be read", {}, ["its content is no JSON; restore it from a copy"])
    if path.name in (*RUN_FILES, DESCRIPTION) and path.parent.is_dir():
        return Inspection(f"a file of {path.parent}", {}, [], [command("inspect", path.parent)])
    keys = set(content) if isinstance(content, dict) else set()
    for name, needed in JSON_KINDS.items():
        if needed <= keys:
            return _of_results(path, name, content)
    looked_for = "; ".join(f"{name} ({', '.join(sorted(needed))})" for name, needed in JSON_KINDS.items())
    found = ", ".join(sorted(keys)[:8]) or f"a {type(content).__name__}"
    return Inspection("a JSON file of another program", {"content": found}, [f"looked for {looked_for}"])


JSON_KINDS = {
    "the scores of an evaluation": {"rows", "per_task", "reliability"},
    "the result of a benchmark": {"headline", "rows", "settings", "versions"},
    "the scores of a backtest of plants": {"answer", "notes", "rows"},
}
"""Files of results by the keys that they have."""


def _of_results(path: Path, name: str, content: Mapping[str, Any]) -> Inspection:
    rows = [row for row in content["rows"] if isinstance(row, dict)]
    facts = {"rows": f"{len(rows):,}"}
    if rows:
        facts["columns"] = ", ".join(rows[0])
    problems, following, body = [], [], ""
    if "headline" in content:
        facts |= {"benchmark": str(content["settings"].get("bench")), "quick": str(content["settings"].get("quick"))}
        facts["versions"] = ", ".join(f"{key} {value}" for key, value in content["versions"].items())
        body = text_table([{"headline": key, "value": value} for key, value in content["headline"].items()])
    elif "per_task" in content:
        nll = "nll_per_value" if "nll_per_value" in (rows or [{}])[-1] else "nll"
        shown = ("shots", "steps", "tasks", "failed", "rmse", "error", nll, "crps", "coverage_90")
        body = text_table([{key: row[key] for key in shown if key in row} | all_shots(row) for row in rows])
        if failures := content.get("failures"):
            problems.append(f"{len(failures)} forecasts were not finite, and are not in the means")
        following = [command("inspect", path.parent)] if (path.parent / "run.json").exists() else []
    else:
        facts["answer"] = str(content["answer"])
    return Inspection(name, facts, problems, following, body)


def all_shots(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the shots of a row of scores if they are all that there are, which JSON has as null."""
    return {"shots": "all"} if "shots" in row and row["shots"] is None else {}


RUN = Inspector(
    "the folder of a run of metaprior train",
    lambda path: path.is_dir() and any((path / name).is_file() for name in RUN_FILES),
    _inspect_run,
)
CORE = (
    Inspector(
        "a saved prior or posterior, or a checkpoint (a folder with checkpoint.json)",
        lambda path: path.is_dir() and (path / DESCRIPTION).is_file(),
        _inspect_checkpoint,
    ),
    Inspector("a configuration (.toml)", lambda path: path.is_file() and path.suffix == ".toml", _inspect_config),
    Inspector(
        "JSON of an evaluation, a backtest or a benchmark (.json)",
        lambda path: path.is_file() and path.suffix == ".json",
        _inspect_json,
    ),
)
"""Inspectors of the package itself, in the order in which they are asked."""


def all_inspectors() -> list[Inspector]:
    """Return all inspectors: of runs, which hold other things, of applications, and the others of the package.

    Of applications, those of data that any program may have written come after those of files of this package.
    """
    own = [one for module in applications() for one in getattr(module, "inspectors", tuple)()]
    return [RUN, *sorted(own, key=lambda one: one.fit is not None), *CORE]
