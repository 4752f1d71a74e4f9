"""A folder of frames, one npy file each: a 2-D array, whose time (UTC) is in its name, ``2026-01-28_1030.npy``."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from metaprior.progress import track
from metaprior.solar.maps.archives.archive import (
    NUMBERS,
    Archive,
    Index,
    Positions,
    Times,
    lazy_variable,
    time_text,
)
from metaprior.solar.maps.archives.cf_files import names_to_times
from metaprior.solar.maps.archives.file_list import Files, in_order
from metaprior.solar.maps.archives.notes import Notes

Format = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of the array in a file."""


def read_npy_folder(
    source: Path, files: Files, variable: str | None, time_pattern: str | None, notes: Notes, progress: bool
) -> Archive:
    """Return the archive of the complete files whose names are times and that share one shape and type."""
    if variable is not None:
        notes.problem(f"variable={variable!r} was given, but {source} is a folder of .npy files, which have no names")
    files, times = _timed(source, files, time_pattern, notes)
    formats: dict[Path, Format] = {}
    for path in track(files, "opening frames", unit="frames", show=progress):
        if form := _format(path, notes):
            formats[path] = form
    if not formats:
        notes.stop(str(source), f"{source}: none of the {len(files)} frames can be read")
    ((shape, dtype), count), *_ = Counter(formats.values()).most_common(1)
    for path, found in formats.items():
        if found != (shape, dtype):
            others = f"{count} of {len(formats)} frames have {shape} and {dtype}"
            notes.bad_frame(str(path), f"shape {found[0]} and type {found[1]}, but {others}")
    kept = [number for number, path in enumerate(files) if formats.get(path) == (shape, dtype)]
    paths = [files[number] for number in kept]
    values = lazy_variable((len(paths), *shape), dtype, partial(_read, paths))
    return Archive(source, times[kept], values, files=paths)


def _timed(source: Path, files: Files, time_pattern: str | None, notes: Notes) -> tuple[Files, Times]:
    """Return the files with a time of their own, and the times, in order."""
    found = names_to_times(source, files, time_pattern, notes)
    if found is None:
        form = f"of the form {time_pattern!r}" if time_pattern else "that was recognised"
        notes.stop(
            str(source),
            f"{source}: none of the {len(files)} files has a time {form} in its name; one is {files[0].name}. Names "
            'are such as 2026-01-28_1030.npy; give other forms as strptime takes them: time_pattern="%Y%m%d_%H%M"',
        )
    for path, time in zip(files, found.times, strict=True):
        if np.isnat(time):
            notes.bad_frame(str(path), "a file whose name is not a time; frames are files such as 2026-01-28_1030.npy")
    known = ~np.isnat(found.times)
    files, times = in_order([path for path, there in zip(files, known, strict=True) if there], found.times[known])
    distinct = np.append(True, np.diff(times) > np.timedelta64(0))
    for number in np.flatnonzero(~distinct).tolist():
        first = files[int(np.searchsorted(times, times[number]))]
        notes.bad_frame(str(files[number]), f"a second frame of {time_text(times[number])}, beside {first.name}")
    return [path for path, there in zip(files, distinct, strict=True) if there], times[distinct]


def _format(path: Path, notes: Notes) -> Format | None:
    """Return shape and type from a file's header; None, with a report, if it does not hold a frame."""
    try:
        frame = _mapped(path)  # raises if the file is shorter than its header says
    except (OSError, ValueError) as error:
        notes.bad_frame(
            str(path), f"cannot be read as a .npy file ({error}); it is truncated, damaged or of another format"
        )
        return None
    if frame.ndim != 2 or not frame.size:
        notes.bad_frame(str(path), f"a file must hold one frame, a 2-D array; got shape {frame.shape}")
    elif frame.dtype.kind not in NUMBERS:
        notes.bad_frame(str(path), f"values must be integers or floating-point numbers, got {frame.dtype}")
    else:
        return frame.shape, frame.dtype
    return None


def _read(paths: Sequence[Path], frames: Positions, rows: Index, columns: Index) -> NDArray[Any]:
    """Return a block; a file is mapped only while it is read, and only pages that hold the selected rows are read."""
    return np.stack([_mapped(paths[position])[rows][:, columns] for position in frames.tolist()])


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = open_memmap(path, mode="r")
    return mapped
