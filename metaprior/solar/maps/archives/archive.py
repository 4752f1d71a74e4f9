"""An archive of frames before it is checked: times, values that are read lazily, and what the file states about them.

Each format has one function that returns an ``Archive`` (``npy_folder.py``, ``npz_file.py``, ``cf_file.py``,
``cf_files.py``); ``open_frames`` checks it and returns a DataArray. What is found on the way is collected in
``Notes`` (``notes.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

Times = NDArray[np.datetime64]
Positions = NDArray[np.intp]
Values = NDArray[np.float32]
Index = slice | Positions
ReadBlock = Callable[[Positions, Index, Index], NDArray[Any]]
NUMBERS = "iuf"
"""Kinds of types whose values can be frames: signed or unsigned integers, or floating point."""

LARGEST_BLOCK_BYTES = 2**27
"""Most bytes, as float32, that are read from a file at once. Programs that write large archives usually make chunks of
128 MiB, so those are still read whole; decoding takes four to six times as much memory."""


@dataclass(frozen=True)
class Archive:
    """The frames of a file or folder: ``variable`` (time, y, x) has the file's type and is read when it is indexed.

    ``frames_per_chunk`` frames are stored together: reading one costs as much as reading all of them. ``attrs`` and
    ``coords`` (of the dimensions y and x; latitude and longitude both or neither, each along its axis or both for
    every pixel) are those that the file states. ``files`` has the path of the file for each frame, if there are
    several, and ``one_each`` is whether each frame is a file of its own.
    """

    path: Path
    times: Times
    variable: xr.Variable
    name: str = "frames"
    attrs: Mapping[str, str] = field(default_factory=dict)
    coords: Mapping[str, xr.Variable] = field(default_factory=dict)
    frames_per_chunk: int = 1
    files: Sequence[Path] | None = None
    one_each: bool = True
    close: Callable[[], None] | None = None

    def frame_name(self, position: int) -> str:
        """Return the name of a frame for messages: its file, or its number and time."""
        if self.files is None:
            return f"{self.path}, frame {position} ({time_text(self.times[position])})"
        return f"{self.files[position]}" + ("" if self.one_each else f" ({time_text(self.times[position])})")

    @property
    def located(self) -> bool:
        """Whether latitudes and longitudes are known."""
        return "latitude" in self.coords

    def read(self, positions: Positions) -> Values:
        """Return whole frames as float32, with missing values as NaN."""
        return to_float32(self.variable[_as_range(positions)].values)


class LazyArray(BackendArray):
    """An array (frames, rows, columns) that xarray indexes without reading.

    ``read`` returns a block, each axis indexed independently, and reads no more of the file than its format requires.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], read: ReadBlock) -> None:
        self.shape, self.dtype, self.read = shape, dtype, read

    def __getitem__(self, key: ExplicitIndexer) -> NDArray[Any]:
        """Read the values that the key selects."""
        values: NDArray[Any] = explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._read)
        return values

    def _read(self, key: tuple[int | Index, int | Index, int | Index]) -> NDArray[Any]:
        frames, rows, columns = key
        block = self.read(np.atleast_1d(np.arange(self.shape[0])[frames]), _as_axis(rows), _as_axis(columns))
        return block.squeeze(tuple(axis for axis, entry in enumerate(key) if isinstance(entry, int | np.integer)))


def lazy_variable(shape: tuple[int, ...], dtype: np.dtype[Any], read: ReadBlock) -> xr.Variable:
    """Return a variable (time, y, x) that is read when it is indexed."""
    return xr.Variable(("time", "y", "x"), LazilyIndexedArray(LazyArray(shape, dtype, read)))


def read_frames(variable: xr.Variable, positions: Positions, frames: Positions, rows: Index, columns: Index) -> Values:
    """Return a block, as float32, of the frames of a variable at the given positions."""
    return to_float32(variable[_as_range(positions[frames]), rows, columns].values)


def _as_axis(entry: int | Index) -> Index:
    """Return a single row or column as a range of one, so that the axis is kept."""
    return slice(int(entry), int(entry) + 1) if isinstance(entry, int | np.integer) else entry


def _as_range(positions: Positions) -> Index:
    """Return consecutive positions as a slice, which files read at once and arrays without a copy."""
    first, last = int(positions[0]), int(positions[-1])
    consecutive = len(positions) == last - first + 1 and bool((np.diff(positions) == 1).all())
    return slice(first, last + 1) if consecutive else positions


def multiplied(variable: xr.Variable, factor: float) -> xr.Variable:
    """Return a variable (time, y, x) of float32 whose values, when they are read, are multiplied by a factor."""
    return lazy_variable(variable.shape, np.dtype(np.float32), partial(_multiplied, variable, factor))


def _multiplied(variable: xr.Variable, factor: float, frames: Positions, rows: Index, columns: Index) -> Values:
    return read_frames(variable, frames, np.arange(len(frames)), rows, columns) * np.float32(factor)


def frames_per_block(rows: int, columns: int) -> int:
    """Return how many frames of this size fit in ``LARGEST_BLOCK_BYTES``, at least one."""
    return max(1, LARGEST_BLOCK_BYTES // (4 * rows * columns))


def to_float32(values: NDArray[Any]) -> Values:
    """Return the values as float32; those that are too large become infinite, which the check of values reports."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def time_text(time: np.datetime64) -> str:
    """Return a time to the minute, or to the second where it is not a whole minute."""
    return str(time.astype("datetime64[s]")).removesuffix(":00")


class BadFramesSkipped(UserWarning):
    """Bad frames were left out; the DataArray's attribute ``skipped`` lists all of them."""


class GapsInTime(UserWarning):
    """Frames are missing, beside those of nights; the DataArray's attribute ``gaps`` lists all gaps."""


def first_lines(lines: list[str], count: int = 5) -> str:
    """Return the first lines of a list, indented, and the number of the others."""
    more = f"\n  ... and {len(lines) - count} more" if len(lines) > count else ""
    return "".join(f"\n  {line}" for line in lines[:count]) + more
