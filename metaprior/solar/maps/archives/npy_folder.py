"""A folder of frames, one file each: ``YYYY-MM-DD_hhmm.npy`` (UTC), a 2-D array."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from metaprior.progress import track
from metaprior.solar.maps.archives.archive import NUMBERS, Archive, BadFrames, Index, Positions, lazy_variable

NAME = re.compile(r"(\d{4}-\d{2}-\d{2}_\d{4})(.*)\.npy", re.IGNORECASE)
Format = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of the array in a file."""


def read_npy_folder(folder: Path, variable: str | None, bad: BadFrames, progress: bool) -> Archive:
    """Return the archive of the complete files whose names are times and that share one shape and type."""
    if variable is not None:
        raise ValueError(
            f"variable={variable!r} was given, but {folder} is a folder of .npy files, which have no names"
        )
    times = _times(folder, bad)
    formats: dict[Path, Format] = {}
    for path in track(times, "opening frames", unit="frames", show=progress):
        if form := _format(path, bad):
            formats[path] = form
    if not formats:
        raise ValueError(f"{folder}: none of the {len(times)} frames can be read")
    ((shape, dtype), count), *_ = Counter(formats.values()).most_common(1)
    for path, found in formats.items():
        if found != (shape, dtype):
            others = f"{count} of {len(formats)} frames have {shape} and {dtype}"
            bad.report(str(path), f"shape {found[0]} and type {found[1]}, but {others}")
    paths = [path for path, found in formats.items() if found == (shape, dtype)]
    stamps = np.array([times[path] for path in paths], dtype="datetime64[ns]")
    return Archive(folder, stamps, lazy_variable((len(paths), *shape), dtype, partial(_read, paths)), files=paths)


def _times(folder: Path, bad: BadFrames) -> dict[Path, datetime]:
    """Return the times of the files, in order; hidden files are ignored."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    if not entries:
        raise ValueError(f"{folder}: the folder is empty; frames are files named YYYY-MM-DD_hhmm.npy")
    parsed = {entry: _parsed(entry.name, exact=True) for entry in entries}
    times = {entry: time for entry, time in parsed.items() if time is not None}
    for entry in entries:
        if entry not in times:
            bad.report(str(entry), _why_not_a_frame(entry, set(times.values())))
    if not times:
        raise ValueError(
            f"{folder}: none of the {len(entries)} files is named YYYY-MM-DD_hhmm.npy; one is {entries[0].name}"
        )
    first: dict[datetime, Path] = {}  # .npy and .NPY may name the same time
    for path, time in times.items():
        if first.setdefault(time, path) != path:
            bad.report(str(path), f"a second frame of {time:%Y-%m-%dT%H:%M}, beside {first[time].name}")
    return {path: time for time, path in sorted(first.items())}


def _parsed(name: str, *, exact: bool) -> datetime | None:
    """Return the time with which a file name starts; with ``exact`` nothing but the suffix may follow."""
    match = NAME.fullmatch(name)
    if match is None or (exact and match[2]):
        return None
    try:
        return datetime.strptime(match[1], "%Y-%m-%d_%H%M")
    except ValueError:
        return None


def _why_not_a_frame(entry: Path, times: set[datetime]) -> str:
    """Distinguish a copy, such as "2026-01-28_1000 (1).npy" beside "2026-01-28_1000.npy", from an unrelated file."""
    time = _parsed(entry.name, exact=False)
    if time in times:
        return f"a second frame of {time:%Y-%m-%dT%H:%M}, beside {time:%Y-%m-%d_%H%M}.npy"
    kind = "a folder" if entry.is_dir() else "a file"
    return f"{kind} whose name is not a time; frames are files named YYYY-MM-DD_hhmm.npy, such as 2026-01-28_1030.npy"


def _format(path: Path, bad: BadFrames) -> Format | None:
    """Return shape and type from a file's header; None, with a report, if it does not hold a frame."""
    try:
        frame = _mapped(path)  # raises if the file is shorter than its header says
    except (OSError, ValueError) as error:
        bad.report(str(path), f"cannot be read as a .npy file ({error}); it is truncated, damaged or of another format")
        return None
    if frame.ndim != 2 or not frame.size:
        bad.report(str(path), f"a file must hold one frame, a 2-D array; got shape {frame.shape}")
    elif frame.dtype.kind not in NUMBERS:
        bad.report(str(path), f"values must be integers or floating-point numbers, got {frame.dtype}")
    else:
        return frame.shape, frame.dtype
    return None


def _read(paths: Sequence[Path], frames: Positions, rows: Index, columns: Index) -> NDArray[Any]:
    """Return a block; a file is mapped only while it is read, and only pages that hold the selected rows are read."""
    return np.stack([_mapped(paths[position])[rows][:, columns] for position in frames.tolist()])


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = open_memmap(path, mode="r")
    return mapped
