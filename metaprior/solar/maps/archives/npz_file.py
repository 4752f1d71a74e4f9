"""One ``.npz`` file: a 1-D ``time`` (datetime64, UTC) and one 3-D array (time, y, x) of any name.

A compressed array cannot be read in parts, so it lives in memory, in its own type (bytes stay bytes).
"""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import (
    NUMERIC,
    Archive,
    Index,
    Positions,
    Times,
    Values,
    as_range,
    at_time,
    to_float32,
)


@dataclass(frozen=True)
class NpzReader:
    """An array in memory; blocks become float32 when they are read."""

    path: Path
    times: Times
    values: NDArray[Any]
    together: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, rows and columns."""
        frames, rows, columns = self.values.shape
        return frames, rows, columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """The file's own type."""
        return self.values.dtype

    def called(self, position: int) -> str:
        """The file, the number and the time."""
        return f"{self.path}, frame {position} ({at_time(self.times[position])})"

    def read(self, frames: Positions, rows: Index, columns: Index) -> Values:
        """A block as float32."""
        return to_float32(self.values[as_range(frames)][:, rows][:, :, columns])


def read_npz(path: Path, variable: str | None) -> Archive:
    """Times and the one 3-D array, or the one that ``variable`` names."""
    arrays = _arrays(path, variable)
    times = arrays.pop("time")
    name, values = _one(path, arrays, variable)
    if times.dtype.kind != "M" or times.ndim != 1 or len(times) != len(values):
        raise ValueError(
            f"{path}: time has to be a 1-D datetime64 array with one entry for each of the {len(values)} frames of "
            f"{name}, got {times.dtype} of shape {times.shape}"
        )
    if values.dtype.kind not in NUMERIC or not values.size:
        raise ValueError(f"{path}: {name} has to hold numbers, got {values.dtype} of shape {values.shape}")
    stamps = times.astype("datetime64[ns]")
    return Archive(stamps, NpzReader(path, stamps, values), name)


def _arrays(path: Path, variable: str | None) -> dict[str, NDArray[Any]]:
    """All arrays, or those that are needed."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            wanted = file.files if variable is None else [name for name in ("time", variable) if name in file.files]
            arrays = {name: file[name] for name in wanted}
            found = ", ".join(file.files)
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(f"{path}: cannot be read as an .npz file ({error}); it is truncated, damaged or other") from error
    for name in ("time", variable):
        if name is not None and name not in arrays:
            raise ValueError(f"{path}: there is no array {name!r}, only {found}")
    return arrays


def _one(path: Path, arrays: dict[str, NDArray[Any]], variable: str | None) -> tuple[str, NDArray[Any]]:
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    found = [name for name, array in arrays.items() if array.ndim == 3]
    if len(found) != 1:
        advice = "" if variable else "; name one with variable="
        raise ValueError(f"{path}: expected one 3-D array (time, y, x) beside time, found {shapes}{advice}")
    return found[0], arrays[found[0]]
