"""From a folder, a pattern or a file of frames to one checked, lazy DataArray (time, y, x).

    frames = open_frames("archive.nc")  # or "folder", or "folder/**/*.nc"
    frames[100:108, 32:64, 32:64].values  # (8, 32, 32) float32; no more is read than that

Times increase on a grid of one cadence (with nights, and with gaps, which are listed), all frames have one shape, and
values are finite wherever it is day. docs/solar/frames.md describes the formats and the checks.
"""

import os
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import xarray as xr

from metaprior.solar.maps.archives.archive import (
    Archive,
    BadFramesSkipped,
    GapsInTime,
    Positions,
    Times,
    first_lines,
    lazy_variable,
    read_frames,
)
from metaprior.solar.maps.archives.cadence import on_grid
from metaprior.solar.maps.archives.cf_file import read_cf
from metaprior.solar.maps.archives.cf_files import read_cf_files
from metaprior.solar.maps.archives.described import check_not_summed, described
from metaprior.solar.maps.archives.file_list import NETCDF, NPY, files_of, is_pattern
from metaprior.solar.maps.archives.frame_times import (
    Gaps,
    cadence_of,
    cadence_text,
    check_cadence,
    check_order,
    check_times,
    find_gaps,
)
from metaprior.solar.maps.archives.frame_values import Checked, Missing, check_daylight, check_values
from metaprior.solar.maps.archives.notes import Notes, OnBad
from metaprior.solar.maps.archives.npy_folder import read_npy_folder
from metaprior.solar.maps.archives.npz_file import read_npz

__all__ = ["BadFramesSkipped", "GapsInTime", "open_frames"]

AUTO = "auto"
"""The cadence that is found from the times."""
FORMATS = (
    "a NetCDF or HDF5 file (.nc, .h5), a folder or a pattern of such files (data/*.nc), a .zarr folder, an .npz, or a "
    "folder of .npy files named by their times, such as 2026-01-28_1030.npy"
)


def open_frames(
    path: str | os.PathLike[str],
    *,
    variable: str | None = None,
    cadence: str = AUTO,
    time_pattern: str | None = None,
    on_bad: OnBad = "raise",
    missing: Missing = "bad",
    value_units: str | None = None,
    long_name: str | None = None,
    progress: bool = True,
) -> xr.DataArray:
    """Open and check an archive, and return its frames (time, y, x) as a lazy DataArray of float32.

    Every frame is read once, to check it, in blocks of at most 128 MiB, so memory does not grow with the archive. The
    exceptions are .npz files, which are kept in memory, and NetCDF and Zarr files whose single chunks are larger than
    that, which can only be decompressed whole (a warning).

    Args:
        path: A NetCDF or HDF5 file, a folder of such files or of npy files, a pattern such as ``data/**/*.nc``, a Zarr
            folder, or an .npz (``time`` and one 3-D array).
        variable: The name of the variable, for files that hold several.
        cadence: The time step; "auto" finds it. Times are rounded to its grid if they are off by seconds, and finer
            parts are thinned to it. Frames off the grid are bad; missing frames are gaps (a warning,
            ``GapsInTime``), unless they are those of a night that was never recorded.
        time_pattern: The form of times in the names of files, as strptime takes it: "SIS%Y%m%d%H%M". None finds it,
            and prefers the times that files state themselves.
        on_bad: "raise" a ValueError that names the bad frames, or "skip" them with a ``BadFramesSkipped``.
        missing: What becomes of frames in which values are missing by day: they are "bad", or "keep" keeps them, and
            leaves out those without any value. "keep" also takes archives of nights alone.
        value_units: Units of the values, for files that state none; "!W m-2" replaces those of a file.
        long_name: Name of the values, for files that state none.
        progress: Whether to show a progress bar.

    Returns:
        Frames with strictly increasing times in UTC, and with coordinates ``latitude`` (y) and ``longitude`` (x), or
        both (y, x), if the file has them. Attributes: ``units``, ``long_name``, ``standard_name`` if known, ``source``,
        ``cadence``, ``data_min`` and ``data_max`` of the finite values, and the lists ``findings`` (what was
        understood), ``skipped`` and ``gaps``.

    Raises:
        ValueError: If something is not understood or wrong; the message names all problems, with what settles them.
    """
    notes, source = Notes(on_bad), str(path)
    step = _checked_arguments(cadence, missing, notes)
    archive = read_archive(Path(path), variable, time_pattern, notes, progress)
    archive, step, usable = _on_grid(archive, source, step, notes)
    stated = archive.attrs.get("units", "")
    archive = described(archive, source, value_units, long_name, step, notes)
    if not archive.located:
        notes.finding("latitudes and longitudes are not known: night is told by brightness")
    notes.raise_problems(source)
    checked = check_values(archive, usable, notes, progress, missing)
    check_not_summed(source, stated, checked.out_of_range, len(usable), notes)
    notes.raise_bad(source)
    times = archive.times[checked.positions]
    _check_enough(times, source, notes)
    check_cadence(times, source, step)
    if missing == "bad":  # who keeps missing values may also want the infrared by night
        check_daylight(archive, source, checked)
    frames = _as_array(archive, checked)
    gaps = find_gaps(times, step)
    frames.attrs |= {"source": source, "cadence": cadence_text(step) if cadence == AUTO else cadence}
    frames.attrs |= {"findings": notes.findings, "skipped": notes.skipped, "gaps": gaps.lines}
    _warn(source, notes.skipped, gaps)
    return frames


def read_archive(path: Path, variable: str | None, time_pattern: str | None, notes: Notes, progress: bool) -> Archive:
    """Return the archive, in the format that the name or the content of the path indicates."""
    if not path.exists() and not is_pattern(path):
        raise FileNotFoundError(f"{path} does not exist; frames are {FORMATS}")
    if path.is_dir() and (path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup"))):
        return read_cf(path, variable, time_pattern, "zarr", notes, progress)
    if path.is_dir() or is_pattern(path):
        files = files_of(path, notes)
        if not files:
            notes.stop(str(path), _nothing_found(path))
        if files[0].suffix.lower() in NPY:
            return read_npy_folder(path, files, variable, time_pattern, notes, progress)
        if len(files) > 1:
            return read_cf_files(path, files, variable, time_pattern, notes, progress)
        path = files[0]
    if path.suffix == ".npz":
        return read_npz(path, variable, notes)
    if path.suffix.lower() in NETCDF:
        return read_cf(path, variable, time_pattern, "netcdf4", notes, progress)
    raise ValueError(f"{path}: the format {path.suffix or 'without a suffix'} is not supported; frames are {FORMATS}")


def _checked_arguments(cadence: str, missing: str, notes: Notes) -> np.timedelta64 | None:
    """Return the time step, None to find it; arguments that are not valid are problems."""
    if missing not in get_args(Missing):
        notes.problem(f'missing must be "bad" or "keep", got {missing!r}')
    if cadence == AUTO:
        return None
    try:
        return cadence_of(cadence)
    except ValueError as error:
        notes.problem(str(error))
        return None


def _on_grid(
    archive: Archive, source: str, step: np.timedelta64 | None, notes: Notes
) -> tuple[Archive, np.timedelta64, Positions]:
    """Return the archive with its times on the grid of the cadence, the cadence, and the positions that lie on it."""
    check_order(archive.times, source, notes)
    grid = on_grid(archive.times, step)
    notes.findings += grid.findings
    archive = replace(archive, times=grid.times)
    kept = np.setdiff1d(np.arange(len(grid.times)), grid.thinned)
    names = partial(_name_of, archive, kept)
    return archive, grid.step, kept[check_times(grid.times[kept], names, grid.step, notes)]


def _name_of(archive: Archive, positions: Positions, number: int) -> str:
    return archive.frame_name(int(positions[number]))


def _check_enough(times: Times, source: str, notes: Notes) -> None:
    """Raise ValueError unless there are two frames, with the bad ones that were left out."""
    if len(times) < 2:
        skipped = f"; {len(notes.skipped)} were left out:{first_lines(notes.skipped)}" if notes.skipped else ""
        told = "".join(f"; {line}" for line in notes.findings if "without any value" in line)
        raise ValueError(
            f"{source}: there must be at least 2 usable frames, one to see and one to forecast, got {len(times)}"
            f"{told}{skipped}"
        )


def _as_array(archive: Archive, checked: Checked) -> xr.DataArray:
    """Return the good frames of an archive as a lazy array with their coordinates and attributes."""
    times = archive.times[checked.positions]
    coords = {"time": ("time", times, {"standard_name": "time", "long_name": "time"}), **archive.coords}
    shape, read = (len(times), *archive.variable.shape[1:]), partial(read_frames, archive.variable, checked.positions)
    frames = xr.DataArray(lazy_variable(shape, np.dtype(np.float32), read), coords=coords, name=archive.name)
    frames.attrs = {"units": "1", "long_name": archive.name, **archive.attrs}
    frames.attrs |= {"data_min": checked.data_min, "data_max": checked.data_max}
    frames.set_close(archive.close)
    return frames


def _nothing_found(path: Path) -> str:
    if is_pattern(path):
        return f"{path}: no file has such a name; frames are {FORMATS}"
    entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    if not entries:
        return f"{path}: the folder is empty; frames are {FORMATS}"
    return f"{path}: none of the {len(entries)} files is one of frames; one is {entries[0]}. Frames are {FORMATS}"


def _warn(source: str, skipped: list[str], gaps: Gaps) -> None:
    """Warn the caller of ``open_frames`` of frames that were left out or are missing."""
    if skipped:
        count = "1 bad frame" if len(skipped) == 1 else f"{len(skipped)} bad frames"
        warnings.warn(f"{source}: {count} left out:{first_lines(skipped)}", BadFramesSkipped, stacklevel=3)
    if gaps.lines:
        warnings.warn(f"{source}: {gaps}; no window crosses them:{first_lines(gaps.lines)}", GapsInTime, stacklevel=3)
