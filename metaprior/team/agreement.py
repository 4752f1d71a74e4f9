"""Processes that share a job have to have the same configuration, code and data."""

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metaprior.tasks.task import Task

Facts = Mapping[str, Any]
SHOWN = 12


class Disagreement(ValueError):
    """Raised where processes were given different things."""


def refuse_disagreement(facts: Sequence[Facts]) -> None:
    """Raise if the ranks' facts (by rank) are not all the same; the message has both values."""
    lines = [
        f"  {key}: rank 0 has {facts[0].get(key, 'nothing')!r}, rank {rank} has {own.get(key, 'nothing')!r}"
        for rank, own in enumerate(facts)
        for key in dict.fromkeys([*facts[0], *own])
        if facts[0].get(key, "nothing") != own.get(key, "nothing")
    ]
    if lines:
        more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        raise Disagreement("\n".join(["the processes do not agree:", *lines[:SHOWN], *more]))


def code_facts() -> dict[str, str]:
    """Return versions, and a digest of the package's files, because an edited checkout keeps its version."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return {
        "version of metaprior": version("metaprior"),
        "code of metaprior": digest.hexdigest()[:16],
        "version of torch": version("torch"),
        "version of python": platform.python_version(),
    }


def task_digest(task: Task) -> str:
    """Return a digest of the numbers of a task."""
    return tensors_digest(values for part in (task.support, task.query) for values in part.tensors)


def tensors_digest(tensors: Iterable[Tensor]) -> str:
    """Return a digest of tensors, equal where they are bitwise identical."""
    digest = hashlib.sha256()
    for values in tensors:
        values = values.detach().cpu().contiguous()
        digest.update(f"{values.dtype}{tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
