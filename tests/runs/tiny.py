"""A run of a second, what may happen to it, and what two runs have to have in common."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from metaprior import checkpoint
from metaprior.runs.checkpoints import KIND, CheckpointName
from metaprior.runs.program import Request, train
from metaprior.runs.reading import read_config
from metaprior.training.trainer import StepReport, Trainer

TEXT = """
[model]
kind = "mlp"
inputs = 1
hidden = [4]
outputs = 1

[likelihood]
kind = "gaussian"

[tasks]
kind = "sinusoids"
k_shot = 3
k_query = 2

[adaptation]
kind = "descent"
steps = 2

[meta]
epochs = 4
tasks_per_epoch = 6
meta_batch = 2
warm_start = 3
scales_first = 0.4
search_step_size = false

[evaluate]
tasks = 2
samples = 2
shots = [0, 1]
adaptation_steps = [1]

[run]
checkpoint_every = 2
"""
STEPS = 15  # 3 of the warm start, then 4 epochs of 3 steps: 5 for the scales alone, 7 for everything


WAYS = ("descent", "closed_form", "context", "context+closed_form", "context+descent")


def adapted_by(kind: str) -> tuple[str, ...]:
    """The changes for another way of adapting."""
    return (f"adaptation.kind={kind}", *(["adaptation.size=4"] if "context" in kind else []))


def text_for(changes: Sequence[str]) -> str:
    """The configuration without the keys that another way of adapting does not have."""
    kind = next((change.partition("=")[2] for change in changes if change.startswith("adaptation.kind=")), "descent")
    return TEXT if "descent" in kind else TEXT.replace("steps = 2\n", "", 1)


def request(folder: Path, *changes: str, resume: bool = False, resume_from: CheckpointName = "last") -> Request:
    source = folder.parent / f"{folder.name}.toml"
    text = text_for(changes)
    source.write_text(text)
    config = read_config(source, changes)
    return Request(config, text, folder, "metaprior train", resume=resume, resume_from=resume_from, progress=False)


def run(folder: Path, *changes: str, resume: bool = False, resume_from: CheckpointName = "last") -> list[str]:
    """Train; what was said."""
    said: list[str] = []
    train(request(folder, *changes, resume=resume, resume_from=resume_from), said.append)
    return said


class PowerFailure(BaseException):
    pass


def fail() -> None:
    raise PowerFailure


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, what: Callable[[], None]) -> None:
    """Let something happen before the step with this number (from 0), once."""
    real, happened = Trainer.step, list[bool]()

    def step(self: Trainer) -> StepReport:
        if self.progress.step == number and not happened:
            happened.append(True)
            what()
        return real(self)

    monkeypatch.setattr(Trainer, "step", step)


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if key != "seconds"}
    return value


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Bitwise identical, in everything but the time it took."""
    for name, kind in (("checkpoints/last", KIND), ("checkpoints/best", KIND), ("prior", "MetaLearner")):
        tensors, description = checkpoint.read(one / name, kind)
        others, other_description = checkpoint.read(other / name, kind)
        assert tensors.keys() == others.keys()
        for key, value in tensors.items():
            assert torch.equal(value, others[key]), f"{name}: {key}"
        assert without_seconds(description) == without_seconds(other_description)
    assert [without_seconds(line) for line in metrics(one)] == [without_seconds(line) for line in metrics(other)]
    assert (one / "evaluation.json").read_text() == (other / "evaluation.json").read_text()


def assert_readable(folder: Path) -> None:
    """Every file that is there can be read as what it is."""
    if not folder.exists():
        return
    for path in folder.glob("*.json"):
        json.loads(path.read_text())
    if (folder / "metrics.jsonl").exists():
        metrics(folder)
    for path in folder.glob("*.png"):
        assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
    for path in folder.glob("checkpoints/*"):
        if (path / checkpoint.DESCRIPTION).exists():
            checkpoint.read(path, KIND)
    if (folder / "prior" / checkpoint.DESCRIPTION).exists():
        checkpoint.read(folder / "prior", "MetaLearner")
