"""What ``metaprior inspect`` says about a saved prior or posterior, or about a checkpoint of a training."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaprior import checkpoint
from metaprior.calibration import CalibrationByShots
from metaprior.cli.inspection import Inspection
from metaprior.cli.inspectors import CHECKPOINT_OF_A_RUN, command
from metaprior.errors import CheckpointError
from metaprior.methods import METHODS, load


def inspect_checkpoint(path: Path) -> Inspection:
    """Return what a folder with a checkpoint holds, and whether it can be loaded."""
    try:
        description = checkpoint.read_description(path)
    except CheckpointError as error:
        return Inspection("a damaged checkpoint", {}, [str(error)])
    kind = str(description["kind"])
    if kind == CHECKPOINT_OF_A_RUN:
        return _of_a_run(path, description)
    if kind not in METHODS:
        return Inspection(f"a checkpoint of a {kind}", {}, [f"this release loads {', '.join(METHODS)}"])
    loadable, problems = _loads(path, description)
    python = f'python -c "import metaprior as mp; print(mp.load({str(path)!r}))"'
    return Inspection(f"a saved {kind}", prior_facts(path, description), problems, [python] if loadable else [])


def _of_a_run(path: Path, description: Mapping[str, Any]) -> Inspection:
    run, progress = path.parent.parent, description.get("progress", {})
    facts = {"step": f"{progress.get('step')}", "epochs": f"{description.get('epochs')}"}
    following = [command("inspect", run)] if (run / "run.json").exists() else []
    return Inspection(f"the checkpoint {path.name!r} of a training", facts, [], following)


def _loads(path: Path, description: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Return whether ``metaprior.load`` needs nothing but the folder, and what is wrong."""
    if description.get("model", True) is None:  # a network of the user's own
        try:
            checkpoint.read(path, str(description["kind"]))
        except CheckpointError as error:
            return False, [str(error)]
        return False, [
            f"its network is not one of this package: in Python, mp.load({str(path)!r}, module) with a module of the "
            "same structure"
        ]
    try:
        load(path)
    except (CheckpointError, ValueError, OSError) as error:
        return False, [f"it cannot be loaded: {error}"]
    return True, []


def prior_facts(path: Path, description: Mapping[str, Any]) -> dict[str, str]:
    """Return what a saved prior is: network, likelihood, adaptation, sizes, and how it was trained."""
    model, likelihood = description.get("model"), dict(description.get("likelihood") or {})
    random = sum(math.prod(shape) for shape in (description.get("parameters") or {}).values())
    facts = {
        "network": _of(model, "kind") if model else "one of your own (given to mp.load)",
        "random weights": f"{random:,} (parameters that match {description.get('stochastic')})" if random else "none",
        "likelihood": _of(likelihood, "name"),
    }
    adaptation = description.get("adaptation") or ({"kind": "descent", **description.get("inner", {})})
    if description["kind"] == "MetaLearner":
        facts["adaptation"] = _of(adaptation, "kind")
        saved = description.get("calibration")
        facts["calibration"] = str(CalibrationByShots.from_json(saved)) if saved else "none"
    if history := description.get("history"):
        last = history[-1] if isinstance(history, list) else {}
        tasks = sum(int(line.get("tasks", 0)) for line in history)
        facts["trained"] = f"{len(history)} epochs" + (f", {tasks:,} tasks" if tasks else "")
        facts["last loss"] = f"{last['loss']:.4g}" if isinstance(last.get("loss"), float) else "unknown"
    size = (path / str(description["tensors"])).stat().st_size if (path / str(description["tensors"])).exists() else 0
    return {**facts, "size": f"{size / 2**20:.2f} MiB", "format": f"version {description['version']}"}


def _of(described: Mapping[str, Any], name: str) -> str:
    """Return a description in words: its name, then its settings."""
    settings = [f"{key} {value}" for key, value in described.items() if key != name and value is not None]
    return f"{described.get(name)}" + (f" ({', '.join(settings)})" if settings else "")
