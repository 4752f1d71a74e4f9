"""Many NetCDF or HDF5 files as one archive: one for each time step, day or month, of which few are open at a time.

The first readable file decides what is read: its variable, axes and coordinates. The headers of the others are read
once, and files that differ are bad frames. Times are those of the files or, where these state none, of their names.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.progress import track
from metaprior.solar.maps.archives.archive import Archive, Index, Positions, Times, lazy_variable, to_float32
from metaprior.solar.maps.archives.cf_layout import (
    arranged,
    choose_layout,
    open_dataset,
    stated_attributes,
    stated_time,
    to_seconds,
)
from metaprior.solar.maps.archives.cf_times import told_times
from metaprior.solar.maps.archives.cf_values import note_other_scaling, valid_range
from metaprior.solar.maps.archives.coordinates import Layout, grid_of
from metaprior.solar.maps.archives.file_list import Files, root_of
from metaprior.solar.maps.archives.name_times import NameTimes, times_in_names
from metaprior.solar.maps.archives.notes import Notes
from metaprior.text_table import counted

MOST_OPEN = 8
"""Files that are kept open after they were read from."""
PIXELS_APART = 1e-3
"""Degrees by which coordinates of a pixel may differ between files."""
SAME_PLACE = 1e-2
"""Share of a step by which coordinates along an axis may differ between files."""


class Header(NamedTuple):
    """What is read of every file: times (none if it holds one frame without a time), sizes, units and coordinates."""

    times: Times
    stated_by: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    units: str | None
    places: dict[str, NDArray[Any]]


def read_cf_files(
    source: Path, files: Files, variable: str | None, time_pattern: str | None, notes: Notes, progress: bool
) -> Archive:
    """Return the archive of the frames of all files, in order of time."""
    first, dataset = _first_readable(source, files, notes)
    layout = choose_layout(str(source), dataset, variable, notes)
    unused = tuple(str(name) for name in dataset.variables if not _is_used(name, dataset, layout))
    dataset.close()  # the NetCDF library may crash where a file with text is opened again while it is open
    headers = _headers(source, files, layout, unused, notes, progress)
    _check_corners(source, list(headers), layout, notes)
    times = _times(source, headers, time_pattern, notes)
    frames = [(times[path][number], path, number) for path in headers for number in range(len(times[path]))]
    frames.sort(key=lambda frame: frame[0])
    paths = [path for _, path, _ in frames]
    needed = {layout.name, *(set(dataset.dims) - {layout.y, layout.x})}  # names of times and channels
    others = [str(name) for name in dataset.variables if name not in needed]
    with open_dataset(first, "netcdf4") as dataset:
        grid = grid_of(first, dataset, layout, notes)
        reader = FileReader(layout, grid.turned, others, paths, np.array([number for *_, number in frames], np.intp))
        data = dataset[layout.name]
        notes.findings += told_times(dataset, layout.time)
        note_other_scaling(data, notes)
        stored = next(iter(headers.values()))
        dtype = stored.dtype if valid_range(data) is None else np.dtype(np.float32)
        chunks = (data.encoding.get("preferred_chunks") or {}).get(layout.time, 1)
        return Archive(
            source,
            np.array([time for time, *_ in frames], "datetime64[ns]"),
            lazy_variable((len(frames), *stored.shape), dtype, reader.read),
            layout.name,
            stated_attributes(data),
            grid.coords,
            frames_per_chunk=int(chunks) if layout.time is not None else 1,
            files=paths,
            one_each=len(set(paths)) == len(paths),
            close=reader.close,
        )


def _headers(
    source: Path, files: Files, layout: Layout, unused: Sequence[str], notes: Notes, progress: bool
) -> dict[Path, Header]:
    """Return the headers of the files that hold frames of one kind; there is at least one."""
    headers: dict[Path, Header] = {}
    for path in track(files, "opening files", unit="files", show=progress):
        if (header := _header(path, layout, unused, notes)) is not None:
            headers[path] = header
    headers = _of_one_kind(headers, notes)
    if not headers:
        notes.stop(str(source), f"{source}: none of the {len(files)} files can be read as frames")
    return headers


class FileReader:
    """Reads blocks of frames from files, of which the last few stay open.

    Args:
        layout: Variable and dimensions, the same in all files.
        turned: Axes that are turned round.
        unused: Variables that are left out when a file is opened.
        paths: The file of each frame.
        numbers: The position of each frame in its file.
    """

    def __init__(
        self, layout: Layout, turned: Sequence[Hashable], unused: Sequence[str], paths: Files, numbers: Positions
    ) -> None:
        self.layout, self.turned, self.unused, self.paths, self.numbers = layout, turned, unused, paths, numbers
        self._open: OrderedDict[Path, xr.Dataset] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, frames: Positions, rows: Index, columns: Index) -> NDArray[Any]:
        """Return a block; of each file only what was asked for is read."""
        blocks, start = [], 0
        with self._lock:
            while start < len(frames):
                path, stop = self.paths[frames[start]], start + 1
                while stop < len(frames) and self.paths[frames[stop]] == path:
                    stop += 1
                blocks.append(self._block(path, self.numbers[frames[start:stop]], rows, columns))
                start = stop
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def close(self) -> None:
        """Close all files; they are opened again when they are read from."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _block(self, path: Path, numbers: Positions, rows: Index, columns: Index) -> NDArray[Any]:
        dataset = self._dataset(path)
        variable = arranged(dataset, self.layout, self.turned)
        if self.layout.time is None:
            values = np.asarray(variable[rows, columns].values)[None]
        else:
            whole = len(numbers) == variable.shape[0] and bool((np.diff(numbers) == 1).all())
            values = np.asarray(variable[slice(None) if whole else numbers, rows, columns].values)
        valid = valid_range(dataset[self.layout.name])  # packing may differ from file to file
        return values if valid is None else valid.masked(to_float32(values))

    def _dataset(self, path: Path) -> xr.Dataset:
        if path not in self._open:
            self._open[path] = open_dataset(path, "netcdf4", self.unused)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(path)
        return self._open[path]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_open", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _open=OrderedDict(), _lock=threading.Lock())


def _first_readable(source: Path, files: Files, notes: Notes) -> tuple[Path, xr.Dataset]:
    problem: OSError | None = None
    for path in files:
        try:
            return path, open_dataset(path, "netcdf4")
        except OSError as error:
            problem = problem or error
    if len(files) == 1 and problem is not None:
        raise problem
    return notes.stop(str(source), f"{source}: none of the {len(files)} files can be read; the first: {problem}")


def _is_used(name: Hashable, dataset: xr.Dataset, layout: Layout) -> bool:
    """Return whether a variable is that of the frames, or is small and may state times or places."""
    variable = dataset.variables[name]
    return name == layout.name or name in dataset.coords or (variable.size <= 1 and variable.dtype.kind == "M")


def _header(path: Path, layout: Layout, unused: Sequence[str], notes: Notes) -> Header | None:
    """Return what a file states; None, with a note, if it holds no frames like the first one."""
    try:
        with open_dataset(path, "netcdf4", unused) as dataset:
            data = dataset.get(layout.name)
            if data is None or not set(layout.dims) <= set(data.dims):
                held = "no such variable" if data is None else f"one over {', '.join(map(str, data.dims))}"
                wanted = f"{layout.name} over {', '.join(map(str, layout.dims))}"
                notes.bad_frame(str(path), f"must hold {wanted}, as the other files, got {held}")
                return None
            times, stated_by = np.array([], "datetime64[ns]"), ""
            if layout.time is not None and data[layout.time].dtype.kind == "M":
                times, stated_by = to_seconds(data[layout.time].values), f"the variable {layout.time}"
            elif layout.time is None and (stated := stated_time(dataset, layout.name)) is not None:
                times, stated_by = np.array([stated[0]], "datetime64[ns]"), stated[1]
            shape = (data.sizes[layout.y], data.sizes[layout.x])
            along = ((layout.y,), (layout.x,))
            places = {str(name): one.values for name, one in data.coords.items() if one.dims in along}
            units = data.attrs.get("units")
            return Header(times, stated_by, shape, data.dtype, None if units is None else str(units), places)
    except OSError as error:
        notes.bad_frame(str(path), str(error).removeprefix(f"{path}: "))
        return None


def _of_one_kind(headers: dict[Path, Header], notes: Notes) -> dict[Path, Header]:
    """Return the files that agree with most about size, units and coordinates; the others are bad."""
    kept = headers
    for what in ("frames of {} pixels", "values in {}"):
        told = {path: _sizes(header) if "pixels" in what else repr(header.units) for path, header in kept.items()}
        usual, count = Counter(told.values()).most_common(1)[0] if told else ("", 0)
        for path, found in told.items():
            if found != usual:
                notes.bad_frame(str(path), f"{what.format(found)}, but {count} of {len(kept)} files have {usual}")
        kept = {path: header for path, header in kept.items() if told[path] == usual}
    first = next(iter(kept.values()), None)
    moved = [path for path, header in kept.items() if first is not None and not _same_place(header, first)]
    for path in moved:
        notes.bad_frame(str(path), f"its coordinates differ from those of {next(iter(kept)).name}")
    return {path: header for path, header in kept.items() if path not in set(moved)}


def _sizes(header: Header) -> str:
    return " x ".join(map(str, header.shape))


def _same_place(one: Header, other: Header) -> bool:
    if one.places.keys() != other.places.keys():
        return False
    for name, values in one.places.items():
        if values.dtype.kind not in "iuf":
            continue
        step = float(np.median(np.abs(np.diff(values)))) if len(values) > 1 else 1.0
        if not np.allclose(values, other.places[name], rtol=0, atol=SAME_PLACE * step, equal_nan=True):
            return False
    return True


def _check_corners(source: Path, files: Files, layout: Layout, notes: Notes) -> None:
    """Record a problem if coordinates of every pixel differ between a few of the files, because the scene moves.

    They are large, so they are not read from all files.
    """
    seen = []
    for path in {files[0]: 0, files[len(files) // 2]: 1, files[-1]: 2}:
        with open_dataset(path, "netcdf4") as dataset:
            coords = dataset[layout.name].coords.values()
            corners = {dim: [0, -1] for dim in (layout.y, layout.x)}
            seen.append([one.isel(corners).values for one in coords if set(one.dims) == corners.keys()])
    alike = all(
        len(some) == len(seen[0])
        and all(
            np.allclose(a, b, rtol=0, atol=PIXELS_APART, equal_nan=True) for a, b in zip(some, seen[0], strict=True)
        )
        for some in seen
    )
    if not alike:
        notes.problem(
            f"{source}: latitude and longitude of the pixels differ between files: frames must all be of the same place"
        )


def _times(source: Path, headers: dict[Path, Header], time_pattern: str | None, notes: Notes) -> dict[Path, Times]:
    """Return the times of the frames of each file: by the pattern if there is one, by the file, or by its name."""
    stated = {path: header.times for path, header in headers.items() if len(header.times)}
    if time_pattern is None and 2 * len(stated) > len(headers):
        for path in headers.keys() - stated.keys():
            notes.bad_frame(str(path), "states no time, as the other files do")
        said_by = Counter(headers[path].stated_by for path in stated).most_common(1)[0][0]
        notes.finding(f"times read from {said_by} of {counted(len(stated), 'file')}")
        return {path: stated.get(path, np.array([], "datetime64[ns]")) for path in headers}
    return _named_times(source, headers, time_pattern, notes)


def _named_times(
    source: Path, headers: dict[Path, Header], time_pattern: str | None, notes: Notes
) -> dict[Path, Times]:
    files = list(headers)
    several = [path for path in files if len(headers[path].times) > 1]
    if several:
        notes.stop(
            str(source),
            f"{source}: time_pattern= is for files of one frame, and {several[0].name} has "
            f"{len(headers[several[0]].times)}; leave it out, and the times of the files are taken",
        )
    found = names_to_times(source, files, time_pattern, notes)
    if found is None:
        example = files[0].name if files else "none"
        form = f"of the form {time_pattern!r} " if time_pattern else ""
        notes.stop(
            str(source),
            f"{source}: no times {form}were found in the files or in their names, such as {example}. Give the form of "
            'the names as strptime takes it, such as time_pattern="%Y%m%d_%H%M"',
        )
    for path, time in zip(files, found.times, strict=True):
        if np.isnat(time):
            notes.bad_frame(str(path), f"a file whose name has no time of the form {found.form}, as most others have")
    return {
        path: found.times[number : number + 1] if not np.isnat(found.times[number]) else found.times[:0]
        for number, path in enumerate(files)
    }


def names_to_times(source: Path, files: Files, time_pattern: str | None, notes: Notes) -> NameTimes | None:
    """Return the times in the names of files, which include their subfolders; None if there are none."""
    root = root_of(source)
    names = [path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name for path in files]
    try:
        found = times_in_names(names, time_pattern)
    except ValueError as error:
        notes.stop(str(source), str(error))
    if found is not None:
        known = counted(int((~np.isnat(found.times)).sum()), "file")
        notes.finding(f"times read from the names of {known} ({found.form})")
    return found
