"""What commands after a training read from a run's folder: its configuration, its prior, and which state that is."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config, flat
from metaprior.runs.folder import RunFolder
from metaprior.runs.reading import parse
from metaprior.team import current_team
from metaprior.team.agreement import code_facts, refuse_disagreement, tensors_digest
from metaprior.team.launch import own_device


def learned(
    run: RunFolder, *, device: str = "cpu", options: Mapping[str, object] = MappingProxyType({})
) -> tuple[Config, MetaLearner]:
    """Return the configuration of a run, and the prior that it has saved, on a device (each rank on its own GPU).

    Every rank reads the folder, so all have to see it, and to find the same in it; also ``options``, what is asked for
    beside it, have to be the same on all of them.
    """
    team = current_team()
    if team.size == 1:
        return _read(run, device)
    found, facts = team.attempt(lambda: _read(run, device), lambda found: {**_facts(*found), **options})
    team.on_first(lambda: refuse_disagreement(facts))
    return found


def _read(run: RunFolder, device: str) -> tuple[Config, MetaLearner]:
    config = parse(run.config(), str(run.path / "config.json"))
    torch.set_num_threads(config.run.threads)  # as in training, so that numbers are bitwise identical
    if not run.prior.exists():
        raise ValueError(
            f"{run.prior} is not there: the run has neither finished nor had a validation; go on with metaprior train "
            "--resume"
        )
    return config, MetaLearner.load(run.prior, device=own_device(device))


def _facts(config: Config, learner: MetaLearner) -> dict[str, Any]:
    """Return what has to be the same on all ranks: one may have a copy of the folder, or read while it is written."""
    named = learner.theta_.named()
    prior = tensors_digest([named[name] for name in sorted(named)])  # a file gives them in any order
    return {**flat(config.resolved()), **code_facts(), "prior": prior}


def unfinished_note(folder: Path, name: str, file: str) -> str | None:
    """Return of which step the prior of an unfinished run is, or another thing called ``name`` in ``file``.

    None if the run has finished. The prior is saved whenever a validation is the best so far; what only the end of a
    run writes, such as scores, is of an earlier end.
    """
    run = RunFolder(folder)
    if not (run.path / file).exists() or run.finished:
        return None  # what is not there is an error of its own
    lines, steps = run.metrics(), parse(run.config(), str(run.path / "config.json")).meta.steps
    now, verb = lines[-1]["step"] if lines else 0, "are" if name.endswith("s") else "is"
    return (
        f"note: {run.path} has not finished (step {now} of {steps}): its {name} {verb} of step {run.saved_step(name)}, "
        f"and the best so far is step {run.best_step(now)}; metaprior train --resume goes on"
    )
