"""Saving and loading: tensors in safetensors, everything else in readable JSON, no pickle.

A checkpoint is a folder with ``checkpoint.json`` and the tensor file that it names. The tensor file's name carries the
SHA-256 of its content; it is written and synced first, and ``checkpoint.json`` is then replaced in one atomic step.
So a crash at any moment leaves the old checkpoint or the new one, whole, and a damaged file is noticed on loading.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor

FORMAT = "metaprior-checkpoint"
FORMAT_VERSION = 1
DESCRIPTION = "checkpoint.json"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read: missing, damaged, foreign or of another kind."""


def write(
    folder: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> None:
    """Write a checkpoint, replacing an earlier one in the same folder only when the new one is complete."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    foreign = sorted(entry.name for entry in folder.iterdir() if not _is_ours(entry.name))
    if foreign and not (folder / DESCRIPTION).exists():
        raise CheckpointError(
            f"{folder} holds other files ({', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}) and no "
            "checkpoint; give an empty or new folder"
        )
    content = bytes_from_tensors({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    header = {"format": FORMAT, "version": FORMAT_VERSION, "kind": kind, "tensors": name, "sha256": digest}
    text = json.dumps({**header, **description}, indent=2, allow_nan=False) + "\n"
    _replace(folder / name, content)
    _replace(folder / DESCRIPTION, text.encode())
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != name:
            old.unlink()


def read(folder: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a checkpoint of this kind, both checked to be whole."""
    folder = Path(folder)
    description = _read_description(folder / DESCRIPTION)
    if description["kind"] != kind:
        raise CheckpointError(f"{folder} holds a {description['kind']}, not a {kind}")
    path = folder / str(description["tensors"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); the checkpoint is incomplete") from None
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise CheckpointError(
            f"{path} is damaged: its content ({len(content)} bytes) is not what was saved; restore it from a copy"
        )
    try:
        return tensors_from_bytes(content), description
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from None


def describe(thing: object, known: Iterable[type]) -> dict[str, Any]:
    """A frozen dataclass (a likelihood, a prior) as JSON: its name and its fields."""
    if type(thing) not in known or not is_dataclass(thing) or isinstance(thing, type):
        names = ", ".join(cls.__name__ for cls in known)
        raise CheckpointError(
            f"a {type(thing).__name__} cannot be saved, because nothing could rebuild it without pickle; "
            f"what can be rebuilt is {names}. Save the tensors of `posterior_.weights` yourself instead"
        )
    return {"name": type(thing).__name__, **asdict(thing)}


def restore(description: Mapping[str, Any], known: Iterable[type]) -> Any:
    """The object that ``describe`` described."""
    classes = {cls.__name__: cls for cls in known}
    fields = dict(description)
    name = fields.pop("name", None)
    try:
        return classes[name](**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"cannot rebuild {name!r} from {fields}: {error!r}") from None


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); a checkpoint is a folder that holds it"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a metaprior checkpoint")
    if description.get("version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} is of format version {description.get('version')}, this release reads {FORMAT_VERSION}"
        )
    missing = [key for key in ("kind", "tensors", "sha256") if not isinstance(description.get(key), str)]
    if missing:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(missing)}")
    if Path(description["tensors"]).name != description["tensors"]:
        raise CheckpointError(f"{path} is damaged: its tensor file {description['tensors']!r} is not a plain name")
    return description


def _is_ours(name: str) -> bool:
    return (
        name == DESCRIPTION or (name.startswith("tensors-") and name.endswith(".safetensors")) or name.endswith(".tmp")
    )


def _replace(path: Path, content: bytes) -> None:
    """Write and sync a temporary file beside ``path``, then move it there in one step."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
