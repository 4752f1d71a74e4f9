"""A fitted method as the bytes of its files, so that estimators can be pickled without pickling a network."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from metaprior.methods.method import Method


def files_of(method: Method) -> dict[str, bytes]:
    """Return the files that ``method.save`` writes, by name: safetensors and JSON."""
    with tempfile.TemporaryDirectory() as folder:
        method.save(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


@contextmanager
def folder_of(files: Mapping[str, bytes]) -> Iterator[str]:
    """Write the files to a folder, which is there inside the block, and return its name."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        yield folder
