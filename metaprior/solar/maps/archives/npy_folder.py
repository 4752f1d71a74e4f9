"""A folder of frames, one file each: ``YYYY-MM-DD_hhmm.npy`` (UTC), a 2-D array."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from tqdm import tqdm

from metaprior.solar.maps.archives.archive import NUMERIC, Archive, Index, Positions, Values, to_float32
from metaprior.solar.maps.archives.door import Door

NAME = re.compile(r"(\d{4}-\d{2}-\d{2}_\d{4})(.*)\.npy", re.IGNORECASE)
Kind = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class NpyReader:
    """Files of one shape and type, in order of time; a file is mapped only while it is read."""

    paths: Sequence[Path]
    frame: tuple[int, int]
    dtype: np.dtype[Any]
    together: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, rows and columns."""
        return (len(self.paths), *self.frame)

    def called(self, position: int) -> str:
        """The file."""
        return str(self.paths[position])

    def read(self, frames: Positions, rows: Index, columns: Index) -> Values:
        """Only the pages of the files that hold the rows asked for."""
        height, width = (len(np.arange(size)[index]) for size, index in zip(self.frame, (rows, columns), strict=True))
        block = np.empty((len(frames), height, width), dtype=np.float32)
        for number, position in enumerate(frames.tolist()):
            block[number] = to_float32(_mapped(self.paths[position])[rows][:, columns])
        return block


def read_npy_folder(folder: Path, variable: str | None, door: Door, progress: bool) -> Archive:
    """The frames whose names are times and whose files are whole, of one shape and one type."""
    if variable is not None:
        raise ValueError(
            f"variable={variable!r} was given, but {folder} is a folder of .npy files, which have no names"
        )
    stamped = _stamped(folder, door)
    kinds: dict[Path, Kind] = {}
    for path in tqdm(stamped, desc="opening frames", unit="frame", disable=not progress, delay=1):
        kind = _kind(path, door)
        if kind is not None:
            kinds[path] = kind
    if not kinds:
        raise ValueError(f"{folder}: none of the {len(stamped)} frames can be read")
    (shape, dtype), paths = _most_common(kinds, door)
    times = np.array([stamped[path] for path in paths], dtype="datetime64[ns]")
    return Archive(times, NpyReader(paths, (shape[0], shape[1]), dtype))


def _stamped(folder: Path, door: Door) -> dict[Path, datetime]:
    """Files by their times, in order; what is hidden does not count."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    if not entries:
        raise ValueError(f"{folder}: the folder is empty; frames are files named YYYY-MM-DD_hhmm.npy")
    times = {entry: _time(entry.name, exact=True) for entry in entries}
    known = {time for time in times.values() if time is not None}
    for entry, time in times.items():
        if time is None:
            door.bad(str(entry), _why_no_frame(entry, known))
    stamped = {entry: time for entry, time in times.items() if time is not None}
    if not stamped:
        raise ValueError(
            f"{folder}: none of the {len(entries)} files is named YYYY-MM-DD_hhmm.npy, as {entries[0].name}"
        )
    return _without_twins(stamped, door)


def _without_twins(stamped: dict[Path, datetime], door: Door) -> dict[Path, datetime]:
    """The first file of every time; ``.npy`` and ``.NPY`` can name the same one."""
    first: dict[datetime, Path] = {}
    for path, time in stamped.items():
        if first.setdefault(time, path) != path:
            door.bad(str(path), f"a second frame of {time:%Y-%m-%dT%H:%M}, beside {first[time].name}")
    return {path: time for time, path in sorted(first.items())}


def _time(name: str, *, exact: bool) -> datetime | None:
    """The time that a file's name starts with, or, if ``exact``, is."""
    match = NAME.fullmatch(name)
    if match is None or (exact and match[2]):
        return None
    try:
        return datetime.strptime(match[1], "%Y-%m-%d_%H%M")
    except ValueError:
        return None


def _why_no_frame(entry: Path, known: set[datetime]) -> str:
    """A copy is told apart from any other foreign file: "2026-01-28_1000 (1).npy" beside "2026-01-28_1000.npy"."""
    time = _time(entry.name, exact=False)
    if time in known:
        return f"a second frame of {time:%Y-%m-%dT%H:%M}, beside {time:%Y-%m-%d_%H%M}.npy"
    kind = "a folder" if entry.is_dir() else "a file"
    return f"{kind} whose name is not a time; frames are files named YYYY-MM-DD_hhmm.npy, such as 2026-01-28_1030.npy"


def _kind(path: Path, door: Door) -> Kind | None:
    """Shape and type from a file's header; the file has to be as long as they say."""
    try:
        frame = _mapped(path)
    except (OSError, ValueError) as error:
        door.bad(str(path), f"cannot be read as a .npy file ({error}); it is truncated, damaged or something else")
        return None
    if frame.ndim != 2 or not frame.size:
        door.bad(str(path), f"expected a 2-D array, got shape {frame.shape}; one file holds one frame")
    elif frame.dtype.kind not in NUMERIC:
        door.bad(str(path), f"values are of type {frame.dtype}; frames are integers or floating-point numbers")
    else:
        return frame.shape, frame.dtype
    return None


def _most_common(kinds: dict[Path, Kind], door: Door) -> tuple[Kind, list[Path]]:
    """The shape and type of most files, and the files that have it."""
    (usual, count), *_ = Counter(kinds.values()).most_common(1)
    for path, kind in kinds.items():
        if kind != usual:
            usually = f"{count} of {len(kinds)} frames have {usual[0]} and {usual[1]}"
            door.bad(str(path), f"shape {kind[0]} and type {kind[1]}, but {usually}")
    return usual, [path for path, kind in kinds.items() if kind == usual]


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = open_memmap(path, mode="r")
    return mapped
