"""Saving and loading: tensors in safetensors, everything else in readable JSON, no pickle.

A checkpoint is a folder with ``checkpoint.json`` and the tensor file that it names. The tensor file's name contains the
SHA-256 of its content. It is written and synced first; ``checkpoint.json``, which has a SHA-256 of its own content, is
then replaced in one atomic step. A crash at any moment therefore leaves the old checkpoint or the new one, and loading
raises for a damaged or altered file.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor

from metaprior.errors import CheckpointError

FORMAT = "metaprior-checkpoint"
FORMAT_VERSION, WITHOUT_OWN_DIGEST = 2, 1
"""The version that is written, and an earlier one that is still read."""
DESCRIPTION = "checkpoint.json"
OWN_DIGEST = "description_sha256"
IMPORT = "import"
"""Key of the import path of a class that is not one of this package's."""
LEFTOVER = re.compile(r"tensors-[0-9a-f]{16}\.safetensors(\.\d+\.tmp)?|checkpoint\.json\.\d+\.tmp")


def write(
    folder: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    *,
    beside: Iterable[str] = (),
) -> None:
    """Write a checkpoint; an earlier one in the same folder is replaced only when the new one is complete.

    Args:
        folder: a new or empty folder, or one with a checkpoint of this kind; any other raises.
        kind: the kind of thing that is saved.
        tensors: tensors by name.
        description: everything else, as JSON.
        beside: names of other files that the folder may hold.
    """
    folder = Path(folder)
    _refuse_other_kind(folder, kind)
    content = bytes_from_tensors({name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    header = {"format": FORMAT, "version": FORMAT_VERSION, "kind": kind, "tensors": name, "sha256": digest}
    whole = {**header, **description}
    text = json.dumps({**whole, OWN_DIGEST: _digest(whole)}, indent=2, allow_nan=False) + "\n"
    with _replacing(folder, beside):
        write_file(folder / name, content)
        write_file(folder / DESCRIPTION, text.encode())


def _refuse_other_kind(folder: Path, kind: str) -> None:
    """Raise if the folder holds a checkpoint of another kind, which would be lost; a damaged one may be replaced."""
    try:
        found = read_description(folder)["kind"]
    except CheckpointError:
        return
    if found != kind:
        raise CheckpointError(f"{folder} holds a {found}, which a {kind} must not replace. Choose another folder")


def duplicate(source: str | os.PathLike[str], target: str | os.PathLike[str], *, beside: Iterable[str] = ()) -> None:
    """Make ``target`` the same checkpoint as ``source``, as safely as ``write`` does.

    The tensor file is linked, not copied. Files of a checkpoint are replaced and never changed, so the two folders are
    independent afterwards.
    """
    source, target = Path(source), Path(target)
    text, name = (source / DESCRIPTION).read_bytes(), str(read_description(source)["tensors"])
    with _replacing(target, beside):
        if not (target / name).exists():
            try:
                os.link(source / name, target / name)
            except OSError:  # a file system without links
                write_file(target / name, (source / name).read_bytes())
        write_file(target / DESCRIPTION, text)


@contextmanager
def _replacing(folder: Path, beside: Iterable[str]) -> Iterator[None]:
    """Make the folder for a checkpoint; on exit remove the tensors of an earlier one, and of an interrupted write."""
    refuse_foreign(folder, beside)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        path = folder / DESCRIPTION
        needed = json.loads(path.read_text(encoding="utf-8"))["tensors"] if path.exists() else None
        for entry in folder.iterdir():
            if LEFTOVER.fullmatch(entry.name) and entry.name != needed:
                entry.unlink()


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old content or the new one."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        if os.name == "posix":  # a new name survives a power failure only when its folder is on the disk, too
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def refuse_foreign(folder: Path, beside: Iterable[str] = ()) -> None:
    """Raise if the folder holds files that are neither a checkpoint of this package nor named in ``beside``."""
    if not folder.exists():
        return
    if (folder / DESCRIPTION).exists():
        read_description(folder)
        return
    names = {entry.name for entry in folder.iterdir() if not LEFTOVER.fullmatch(entry.name)}
    if others := sorted(names - set(beside)):
        raise CheckpointError(
            f"{folder} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}) and no "
            "checkpoint; give an empty or new folder"
        )


def read(folder: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and description of a checkpoint of this kind, both verified by their SHA-256."""
    folder = Path(folder)
    description = read_description(folder, kind)
    path = folder / str(description["tensors"])
    try:
        content = path.read_bytes()
    except OSError as error:
        if read_description(folder)["tensors"] != path.name:  # replaced between the two reads
            return read(folder, kind)
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); the checkpoint is incomplete") from None
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise CheckpointError(
            f"{path} is damaged: its content ({len(content)} bytes) is not what was saved; restore it from a copy"
        )
    try:
        return tensors_from_bytes(content), description
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from None


def read_description(folder: str | os.PathLike[str], kind: str | None = None) -> dict[str, Any]:
    """Return the verified description of a checkpoint (of this kind), without reading its tensors."""
    path = Path(folder) / DESCRIPTION
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
    version = description.get("version")
    if version not in (WITHOUT_OWN_DIGEST, FORMAT_VERSION):
        raise CheckpointError(f"{path} is of format version {version}, this release reads up to {FORMAT_VERSION}")
    own = () if version == WITHOUT_OWN_DIGEST else (OWN_DIGEST,)
    if missing := [key for key in ("kind", "tensors", "sha256", *own) if not isinstance(description.get(key), str)]:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(missing)}")
    if Path(description["tensors"]).name != description["tensors"]:
        raise CheckpointError(f"{path} is damaged: its tensor file {description['tensors']!r} is not a plain name")
    if own and _digest(description) != description[OWN_DIGEST]:
        raise CheckpointError(f"{path} is damaged: its content is not what was saved; restore it from a copy")
    if kind is not None and description["kind"] != kind:
        raise CheckpointError(f"{folder} holds a {description['kind']}, not a {kind}")
    return description


@contextmanager
def readable(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors while a description is interpreted into a ``CheckpointError`` that names the folder."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(
            f"{folder} lacks {error}: it was made by an older version of metaprior, or altered. Try the version it was "
            "made by"
        ) from error
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{folder} cannot be loaded: {error}") from error


def describe(thing: object, known: Iterable[type], base: type | None = None) -> dict[str, Any]:
    """Return a frozen dataclass (a likelihood, a prior) as JSON: its name and its fields.

    One that is not ``known`` is described with its import path if it is a subclass of ``base``.
    """
    cls, known = type(thing), tuple(known)
    if (
        not is_dataclass(thing)
        or isinstance(thing, type)
        or (cls not in known and not (base and isinstance(thing, base)))
    ):
        names = ", ".join(one.__name__ for one in known)
        also = f", and dataclasses that subclass {base.__name__}" if base else ""
        raise CheckpointError(
            f"a {cls.__name__} cannot be saved, because nothing could rebuild it without pickle; what can be rebuilt "
            f"is {names}{also}."
        )
    if cls in known and [one.__name__ for one in known].count(cls.__name__) > 1:
        raise CheckpointError(f"{cls.__name__} must be the name of one registered class, got two. Try to rename yours.")
    described = {"name": cls.__name__} if cls in known else {"name": cls.__name__, IMPORT: _import_path(cls)}
    fields = asdict(thing)
    if reserved := described.keys() & fields.keys():
        raise CheckpointError(f"a field of {cls.__name__} must not be called {reserved.pop()!r}. Try another name.")
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the fields of {cls.__name__} must be numbers, texts or tuples of them: {error}"
        ) from None
    return described | fields


def restore(description: Mapping[str, Any], known: Iterable[type], base: type | None = None) -> Any:
    """Return the object that ``describe`` described; no module is imported for it."""
    classes = {cls.__name__: cls for cls in known}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in description.items()}
    name, path = fields.pop("name", None), fields.pop(IMPORT, None)
    cls = classes.get(str(name)) if path is None or base is None else _imported(str(path), base)
    if cls is None:
        raise CheckpointError(f"cannot rebuild {name!r}: known are {', '.join(classes)}. Try to register it first.")
    try:
        return cls(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"cannot rebuild {name!r} from {fields}: {error!r}") from None


def _import_path(cls: type) -> str:
    """Return ``package.module:Class``; raise for a class that another program could not import."""
    module, name = cls.__module__, cls.__qualname__
    if module == "__main__" or vars(sys.modules.get(module, object)).get(name) is not cls:
        where = "a script or notebook" if module == "__main__" else "a function or a class"
        raise CheckpointError(
            f"{name} cannot be saved, because it is defined in {where} and another program could not import "
            f"it. Try to move it into a module of its own, such as mine.py, and `from mine import {cls.__name__}`; "
            "or register it before saving and before loading, "
            f"`metaprior.likelihoods.LIKELIHOODS.add('my_kind', {cls.__name__})`."
        )
    return f"{module}:{name}"


def _imported(path: str, base: type) -> type:
    """Return the class of an import path, out of a module that the caller has imported already.

    Nothing is imported here: a checkpoint from a stranger must not decide which code runs.
    """
    module, _, name = path.partition(":")
    if module not in sys.modules:
        raise CheckpointError(
            f"it was saved with {name} of {module}, which is not imported. If you trust that module, "
            f"`import {module}` first, then load again."
        )
    found = vars(sys.modules[module]).get(name)
    if not (isinstance(found, type) and issubclass(found, base) and is_dataclass(found)):
        raise CheckpointError(f"{path} must be a dataclass that subclasses {base.__name__}, got {found!r}")
    return found


def _digest(description: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all entries but the digest itself, independent of the layout of the JSON."""
    content = {key: value for key, value in description.items() if key != OWN_DIGEST}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
