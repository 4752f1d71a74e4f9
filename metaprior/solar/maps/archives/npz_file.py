"""One ``.npz`` file: a 1-D ``time`` (datetime64, UTC) and one 3-D array (time, y, x) of any name.

A compressed array cannot be read in parts, so it is kept in memory, in its own type (bytes stay bytes).
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.solar.maps.archives.archive import NUMBERS, Archive
from metaprior.solar.maps.archives.notes import Notes


def read_npz(path: Path, variable: str | None, notes: Notes) -> Archive:
    """Return the archive of the one 3-D array, or of the one that ``variable`` names."""
    arrays = _arrays(path, variable)
    times = arrays.pop("time")
    names = [name for name, array in arrays.items() if array.ndim == 3]
    if len(names) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        advice = ". Name one with variable=" if names and not variable else ""
        problem = f"{path}: there must be one 3-D array (time, y, x) beside time, got {shapes}{advice}"
        if not names:
            notes.stop(str(path), problem)
        notes.problem(problem)
    name, values = names[0], arrays[names[0]]
    if times.dtype.kind != "M" or times.ndim != 1 or len(times) != len(values):
        notes.stop(
            str(path),
            f"{path}: time must be a 1-D datetime64 array with one entry for each of the {len(values)} frames of "
            f"{name}, got {times.dtype} of shape {times.shape}",
        )
    if values.dtype.kind not in NUMBERS or not values.size:
        notes.stop(str(path), f"{path}: {name} must hold numbers, got {values.dtype} of shape {values.shape}")
    stamps = times.astype("datetime64[ns]")
    return Archive(path, stamps, xr.Variable(("time", "y", "x"), values), name)


def _arrays(path: Path, variable: str | None) -> dict[str, NDArray[Any]]:
    """Return all arrays, or ``time`` and the one that ``variable`` names."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = file.files if variable is None else [name for name in ("time", variable) if name in file.files]
            arrays = {name: file[name] for name in names}
            stored = ", ".join(file.files)
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise OSError(
            f"{path}: cannot be read as an .npz file ({error}); it is truncated, damaged or of another format"
        ) from error
    for name in ("time", variable):
        if name is not None and name not in arrays:
            raise ValueError(f"{path}: there is no array {name!r}, only {stored}")
    return arrays
