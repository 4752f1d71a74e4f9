"""A fitted method as the bytes of its files, so that estimators can be pickled without pickling a network."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from torch import nn

from metaprior.methods.method import Method

M = TypeVar("M", bound=Method)


def files_of(method: Method) -> dict[str, bytes]:
    """Return the files that ``method.save`` writes, by name: safetensors and JSON."""
    with tempfile.TemporaryDirectory() as folder:
        method.save(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def from_files(kind: type[M], files: Mapping[str, bytes], module: nn.Module | None, **options: object) -> M:
    """Return the method that was saved; ``module`` is one like the saved, where that is not of this package."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return kind.load(folder, module, **options)  # type: ignore[arg-type]
