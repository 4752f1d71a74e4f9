"""An archive of frames as its format's file hands it over: times, values that are read when asked for, what is known.

Every format has one function that makes an ``Archive`` (``npy_folder.py``, ``npz_file.py``, ``cf_file.py``); the
rest of the package sees the DataArray that ``frames.py`` makes of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

Times = NDArray[np.datetime64]
Positions = NDArray[np.intp]
Values = NDArray[np.float32]
Index = slice | Positions

NUMERIC = "iuf"
"""Kinds of numpy types that can be frames: integers, without sign too, and floating point."""

LARGEST_BLOCK_BYTES = 2**27
"""Most that is asked of a file at once, as float32, however much it stores together. 128 MiB is what programs that
write large archives usually make of a chunk, so theirs are still read whole; decoding takes four to six times this."""


class Reader(Protocol):
    """Values of an archive, read when asked for."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, rows and columns in the file."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The file's own type."""

    @property
    def together(self) -> int:
        """Frames that the file stores together, so that reading one costs reading all of them."""

    def called(self, position: int) -> str:
        """The frame's name in messages."""

    def read(self, frames: Positions, rows: Index, columns: Index) -> Values:
        """A block, every axis indexed for itself; no more is read than the format allows."""


@dataclass(frozen=True)
class Archive:
    """One archive: ``times`` (T,), ``attrs`` and ``coords`` (of the dimensions y and x) as far as they are known."""

    times: Times
    reader: Reader
    name: str = "frames"
    attrs: Mapping[str, str] = field(default_factory=dict)
    coords: Mapping[str, xr.Variable] = field(default_factory=dict)
    close: Callable[[], None] | None = None

    @property
    def has_places(self) -> bool:
        """Whether latitude and longitude are known."""
        return "latitude" in self.coords and "longitude" in self.coords


class LazyFrames(BackendArray):
    """The kept frames of a reader as an array that xarray indexes without reading."""

    def __init__(self, reader: Reader, kept: Positions) -> None:
        self.reader = reader
        self.kept = kept
        self.shape = (len(kept), *reader.shape[1:])
        self.dtype = np.dtype(np.float32)

    def __getitem__(self, key: ExplicitIndexer) -> Values:
        """Read what the key asks for."""
        values: Values = explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._read)
        return values

    def _read(self, key: tuple[int | Index, int | Index, int | Index]) -> Values:
        frames, rows, columns = key
        block = self.reader.read(np.atleast_1d(self.kept[frames]), _as_axis(rows), _as_axis(columns))
        dropped = tuple(axis for axis, entry in enumerate(key) if isinstance(entry, int | np.integer))
        return block.squeeze(dropped)


def lazy_variable(reader: Reader, kept: Positions) -> xr.Variable:
    """The kept frames, (time, y, x), float32 when they are read."""
    return xr.Variable(("time", "y", "x"), LazilyIndexedArray(LazyFrames(reader, kept)))


def _as_axis(entry: int | Index) -> Index:
    """A single row or column as a range of one, which keeps the axis."""
    return slice(int(entry), int(entry) + 1) if isinstance(entry, int | np.integer) else entry


def as_range(positions: Positions) -> Index:
    """Positions that follow one another as a slice, which files read in one go and arrays without a copy."""
    first, last = int(positions[0]), int(positions[-1])
    follow = len(positions) == last - first + 1 and bool((np.diff(positions) == 1).all())
    return slice(first, last + 1) if follow else positions


def most_frames_at_once(rows: int, columns: int) -> int:
    """Frames of this size that ``LARGEST_BLOCK_BYTES`` hold; at least one, since nothing less is looked at."""
    return max(1, LARGEST_BLOCK_BYTES // (4 * rows * columns))


def to_float32(values: NDArray[Any]) -> Values:
    """Values in the type of frames; what is too large for it becomes infinite, which the door notices."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def at_time(time: np.datetime64) -> str:
    """A time to the minute, or to the second where that says more."""
    text = str(time.astype("datetime64[s]"))
    return text.removesuffix(":00")
