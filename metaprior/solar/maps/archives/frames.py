"""From a folder or a file of frames to one checked, lazy DataArray (time, y, x).

    frames = open_frames("archive.nc")
    frames[100:108, 32:64, 32:64].values  # (8, 32, 32) float32; no more is read than that

Times increase on a grid of one cadence (with nights, and with gaps, which are listed), all frames have one shape, and
values are finite wherever it is day. docs/solar/frames.md describes the formats and the checks.
"""

import os
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from metaprior.solar.maps.archives.archive import (
    Archive,
    BadFrames,
    BadFramesSkipped,
    GapsInTime,
    OnBad,
    first_lines,
    lazy_variable,
    read_frames,
)
from metaprior.solar.maps.archives.cf_file import read_cf
from metaprior.solar.maps.archives.frame_times import Gaps, cadence_of, check_cadence, check_times, find_gaps
from metaprior.solar.maps.archives.frame_values import check_daylight, check_values
from metaprior.solar.maps.archives.netcdf_folder import refuse_netcdf_folder
from metaprior.solar.maps.archives.npy_folder import read_npy_folder
from metaprior.solar.maps.archives.npz_file import read_npz

__all__ = ["BadFramesSkipped", "GapsInTime", "open_frames"]

FORMATS = "a folder of YYYY-MM-DD_hhmm.npy files, an .npz, a NetCDF file (.nc) or a .zarr folder"


def open_frames(
    path: str | os.PathLike[str],
    *,
    variable: str | None = None,
    cadence: str = "30min",
    on_bad: OnBad = "raise",
    value_units: str | None = None,
    long_name: str | None = None,
    progress: bool = True,
) -> xr.DataArray:
    """Open and check an archive, and return its frames (time, y, x) as a lazy DataArray of float32.

    Every frame is read once, to check it, in blocks of at most 128 MiB, so memory does not grow with the archive. The
    exceptions are .npz files, which are kept in memory, and NetCDF and Zarr files whose single chunks are larger than
    that, which can only be decompressed whole (a warning).

    Args:
        path: A folder of ``YYYY-MM-DD_hhmm.npy`` files, an .npz (``time`` and one 3-D array), NetCDF or Zarr.
        variable: The name of the variable, for files that hold several.
        cadence: The time step. Frames off its grid are bad; missing frames are gaps (a warning,
            ``GapsInTime``), unless they are those of a night that was never recorded.
        on_bad: "raise" a ValueError that names the first bad frame, or "skip" them with a ``BadFramesSkipped``.
        value_units: Units of the values, for files that state none.
        long_name: Name of the values, for files that state none.
        progress: Whether to show a progress bar.

    Returns:
        Frames with strictly increasing times in UTC, and with coordinates ``latitude`` (y) and ``longitude`` (x) if the
        file has them. Attributes: ``units``, ``long_name``, ``standard_name`` if known, ``source``, ``cadence``,
        ``data_min`` and ``data_max`` of the finite values, and the lists ``skipped`` and ``gaps``.

    Raises:
        ValueError: If a frame is bad, times decrease, it is always night, or the file states other units.
    """
    step, bad, source = cadence_of(cadence), BadFrames(on_bad), str(path)
    archive = read_archive(Path(path), variable, bad, progress).described(source, value_units, long_name)
    on_grid = check_times(archive.times, source, archive.frame_name, step, bad)
    checked = check_values(archive, on_grid, bad, progress)
    times = archive.times[checked.positions]
    if len(times) < 2:
        count = ("no frame", "one frame")[len(times)]
        skipped = f"; {len(bad.skipped)} were left out:{first_lines(bad.skipped)}" if bad.skipped else ""
        raise ValueError(f"{source}: {count} is too few; a window has at least one to see and one to forecast{skipped}")
    check_cadence(times, source, step)
    check_daylight(archive, source, checked)
    coords = {"time": ("time", times, {"standard_name": "time", "long_name": "time"}), **archive.coords}
    shape, read = (len(times), *archive.variable.shape[1:]), partial(read_frames, archive.variable, checked.positions)
    frames = xr.DataArray(lazy_variable(shape, np.dtype(np.float32), read), coords=coords, name=archive.name)
    frames.attrs = {"units": "1", "long_name": archive.name, **archive.attrs}
    frames.attrs |= {"data_min": checked.data_min, "data_max": checked.data_max}
    gaps = find_gaps(times, step)
    frames.attrs |= {"source": source, "cadence": cadence, "skipped": bad.skipped, "gaps": gaps.lines}
    frames.set_close(archive.close)
    _warn(source, bad.skipped, gaps)
    return frames


def read_archive(path: Path, variable: str | None, bad: BadFrames, progress: bool) -> Archive:
    """Return the archive, in the format that the name or the content of the path indicates."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; frames are {FORMATS}")
    if path.is_dir() and (path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup"))):
        return read_cf(path, variable, "zarr")
    refuse_netcdf_folder(path)
    if path.is_dir():
        return read_npy_folder(path, variable, bad, progress)
    if path.suffix == ".npz":
        return read_npz(path, variable)
    if path.suffix in (".nc", ".nc4"):
        return read_cf(path, variable, "netcdf4")
    raise ValueError(f"{path}: the format {path.suffix or 'without a suffix'} is not supported; frames are {FORMATS}")


def _warn(source: str, skipped: list[str], gaps: Gaps) -> None:
    """Warn the caller of ``open_frames`` of frames that were left out or are missing."""
    if skipped:
        count = "1 bad frame" if len(skipped) == 1 else f"{len(skipped)} bad frames"
        warnings.warn(f"{source}: {count} left out:{first_lines(skipped)}", BadFramesSkipped, stacklevel=3)
    if gaps.lines:
        warnings.warn(f"{source}: {gaps}; no window crosses them:{first_lines(gaps.lines)}", GapsInTime, stacklevel=3)
