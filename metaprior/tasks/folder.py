"""Tables in the files of a folder, one file a group: CSV, Parquet and NPZ."""

import csv
import importlib
import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaprior.checks import warn_caller
from metaprior.tasks.tables import Array, Choice, Table
from metaprior.tasks.task import Examples

KEPT_NUMBERS = 2**26
"""Numbers that are kept in memory (256 MiB); files beyond them are read again for every task."""
NAMED_AT_MOST = 5
MISSING = ("", "nan", "na", "n/a", "null", "none")


def read_csv(path: Path) -> dict[str, Array]:
    """Return the columns of a CSV file with a header: integers, numbers (empty fields are NaN), or text."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        rows = [row for row in lines if row]
        wrong = next((number for number, row in enumerate(rows, start=2) if len(row) != len(header)), None)
    if not header:
        raise ValueError("the file is empty")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise ValueError(f"columns must be separated by commas, got the header {header[0]!r}")
    if wrong is not None:
        raise ValueError(f"row {wrong} has {len(rows[wrong - 2])} fields and the header has {len(header)}")
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return {name.strip(): _column(fields) for name, fields in zip(header, columns, strict=True)}


def _column(fields: Sequence[str]) -> Array:
    for read, kind in ((int, np.int64), (float, np.float64), (_number, np.float64)):  # the last is slow
        try:
            return np.array(list(map(read, fields)), dtype=kind)
        except (ValueError, OverflowError):
            continue
    return np.array([None if _is_missing(field) else field.strip() for field in fields], dtype=object)


def _number(field: str) -> float:
    return math.nan if _is_missing(field) else float(field)


def _is_missing(field: str) -> bool:
    return field.strip().lower() in MISSING


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of an NPZ file."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def read_parquet(path: Path) -> Any:
    """Return a Parquet file as an Arrow table."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading {path.name} needs pyarrow. Try pip install 'metaprior[parquet]'.", name=error.name
        ) from None
    return parquet.ParquetFile(path).read()


READERS: dict[str, Callable[[Path], Any]] = {".csv": read_csv, ".npz": read_npz, ".parquet": read_parquet}


class FolderData:
    """The rows of all files of a folder in the order of their names, each file a group.

    All files are read once when this is made, so that an invalid one raises then and not in the middle of a training.

    Attributes:
        groups: the name of every file without its ending.
        sizes: rows of every file.
        times: ranks of the rows' times, comparable within a file; None if there is no time column.
    """

    def __init__(self, folder: Path, choice: Choice) -> None:
        self._paths = _files_of(folder)
        self.groups = [path.stem for path in self._paths]
        self._kept: dict[int, Examples] = {}
        self.sizes: list[int] = []
        times: list[Tensor] = []
        budget = KEPT_NUMBERS
        for number, path in enumerate(self._paths):
            table = _opened(path)
            choice = choice if number else _named(path, choice.resolved, table)  # the first file names the features
            examples = _named(path, choice.examples, table)
            if examples.y.is_floating_point() != self._kept.get(0, examples).y.is_floating_point():
                # Integers among the numbers of another file, such as the zeros of a still day, are no class labels.
                choice, examples = replace(choice, real=True), choice.with_real_targets(examples)
                self._kept = {place: choice.with_real_targets(own) for place, own in self._kept.items()}
            _refuse_other_shapes(path, examples, self._kept.get(0, examples))
            self.sizes.append(examples.size)
            if (ranks := _named(path, choice.times, table)) is not None:
                times.append(ranks)
            budget -= examples.x.numel() + examples.y.numel()
            if budget >= 0 or not number:
                self._kept[number] = examples
        self._choice, self.times = choice, torch.cat(times) if times else None
        self._starts = [0, *accumulate(self.sizes)]

    @property
    def size(self) -> int:
        """Number of rows of all files."""
        return self._starts[-1]

    def rows(self, index: Tensor) -> Examples:
        """Return rows of one file."""
        number = bisect_right(self._starts, int(index[0])) - 1
        return self._examples(number).rows(index - self._starts[number])

    def _examples(self, number: int) -> Examples:
        if number in self._kept:
            return self._kept[number]
        path = self._paths[number]
        examples: Examples = _named(path, self._choice.examples, _opened(path))
        if examples.size != self.sizes[number]:
            raise ValueError(
                f"{path.name} had {self.sizes[number]} rows when it was opened and has {examples.size} now"
            )
        return examples


def _files_of(folder: Path) -> Sequence[Path]:
    if not folder.is_dir():
        raise NotADirectoryError(f"folder must be an existing folder, got {folder}")
    visible = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    paths = [path for path in visible if path.is_file() and path.suffix.lower() in READERS]
    if not paths:
        raise ValueError(f"{folder} must hold files that end in {', '.join(READERS)}, got none")
    if odd := [path.name for path in visible if path not in paths]:
        named = ", ".join(odd[:NAMED_AT_MOST]) + ", ..." * (len(odd) > NAMED_AT_MOST)
        warn_caller(f"{len(odd)} entries of {folder} do not end in {', '.join(READERS)} and make no task: {named}")
    stems = [path.stem for path in paths]
    if twice := next((path for path in paths if stems.count(path.stem) > 1), None):
        raise ValueError(f"file names must differ without their endings, got {twice.stem!r} more than once in {folder}")
    return paths


def _opened(path: Path) -> Table:
    def read(path: Path) -> Table:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy warns of files that it takes for empty
            return Table(READERS[path.suffix.lower()](path))

    return _named(path, read, path)  # type: ignore[no-any-return]


def _named(path: Path, function: Callable[[Any], Any], argument: Any) -> Any:
    """Return ``function(argument)``; an error about the data of a file starts with the file's name."""
    try:
        return function(argument)
    except (TypeError, ValueError, OSError, EOFError) as error:
        kind = (
            type(error)
            if isinstance(error, TypeError | ValueError) and not isinstance(error, UnicodeError)
            else ValueError
        )
        raise kind(f"{path.name}: {error}") from error


def _refuse_other_shapes(path: Path, examples: Examples, first: Examples) -> None:
    for name, *pair in zip("xy", examples, first, strict=True):
        own, expected = (f"(N, {', '.join(map(str, values.shape[1:]))})" for values in pair)
        if own != expected:
            raise ValueError(f"{path.name}: {name} must have the shape {expected} as in the first file, got {own}")
