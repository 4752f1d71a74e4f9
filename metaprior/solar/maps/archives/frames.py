"""From a folder or a file of frames to one checked, lazy DataArray (time, y, x).

    frames = open_frames("archive.nc")
    frames[100:108, 32:64, 32:64].values  # (8, 32, 32) float32; no more is read than that

What is behind this door can be trusted: times increase on a grid of one cadence (with gaps, which are listed), every
frame has the same shape, values are finite wherever it is day. docs/solar/frames.md has the formats and the checks.
"""

import os
import warnings
from pathlib import Path

import xarray as xr

from metaprior.solar.maps.archives.archive import Archive, Times, lazy_variable
from metaprior.solar.maps.archives.cf_file import read_cf
from metaprior.solar.maps.archives.door import (
    BadFramesSkipped,
    Door,
    GapsInTime,
    OnBad,
    cadence_of,
    check_cadence,
    check_times,
    first_few,
    gaps,
    missing_count,
)
from metaprior.solar.maps.archives.frame_values import Checked, check_lit, check_values
from metaprior.solar.maps.archives.npy_folder import read_npy_folder
from metaprior.solar.maps.archives.npz_file import read_npz
from metaprior.solar.maps.archives.value_units import with_stated

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
    """Frames (time, y, x) as a lazy DataArray: float32 when read, times in UTC strictly increasing.

    Every frame is read once, here, to check it, in blocks of at most 128 MiB: memory does not grow with the archive.
    Except of an .npz, which lives in memory, and of NetCDF and Zarr files with single chunks of more than that, which
    can only be unpacked whole (a warning).

    path: a folder of ``YYYY-MM-DD_hhmm.npy`` files, an .npz (``time`` and one 3-D array), NetCDF or Zarr with CF axes.
    variable: which one, where a file holds several.
    cadence: the time step; frames off its grid are bad, missing ones are gaps (a warning, ``GapsInTime``).
    on_bad: "raise" a ValueError that names the first bad frame, or "skip" all of them with a ``BadFramesSkipped``.
    value_units, long_name: of the values, where the file does not say them; other units than the file's are refused.

    Coordinates: ``latitude`` (y) and ``longitude`` (x) where the file has them. Attributes: ``units``, ``long_name``,
    ``standard_name`` if known, ``source``, ``cadence``, ``data_min`` and ``data_max`` of the finite values, and the
    lists ``skipped`` and ``gaps``.
    """
    step, door, source = cadence_of(cadence), Door(on_bad), str(path)
    archive = with_stated(_read(Path(path), variable, door, progress), source, value_units, long_name)
    kept = check_times(archive.times, source, archive.reader.called, step, door)
    checked = check_values(archive, kept, door, progress)
    times = archive.times[checked.kept]
    _check_enough(times, source, door)
    check_cadence(times, source, step)
    check_lit(archive, source, checked)
    frames = _assembled(archive, times, checked)
    frames.attrs |= {"source": source, "cadence": cadence, "skipped": door.skipped, "gaps": gaps(times, step)}
    _tell(frames, missing_count(times, step))
    return frames


def _read(path: Path, variable: str | None, door: Door, progress: bool) -> Archive:
    """The archive, by what its name or its content says it is."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; frames are {FORMATS}")
    if path.is_dir() and (path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup"))):
        return read_cf(path, variable, "zarr")
    if path.is_dir():
        return read_npy_folder(path, variable, door, progress)
    if path.suffix == ".npz":
        return read_npz(path, variable)
    if path.suffix in (".nc", ".nc4"):
        return read_cf(path, variable, "netcdf4")
    raise ValueError(f"{path}: the format {path.suffix or 'without a suffix'} is not known; frames are {FORMATS}")


def _check_enough(times: Times, source: str, door: Door) -> None:
    if len(times) < 2:
        found = {0: "no frame", 1: "one frame"}[len(times)]
        skipped = f"; {len(door.skipped)} were left out:{first_few(door.skipped)}" if door.skipped else ""
        raise ValueError(f"{source}: {found} is too few; a window has at least one to see and one to forecast{skipped}")


def _assembled(archive: Archive, times: Times, checked: Checked) -> xr.DataArray:
    coords = {"time": ("time", times, {"standard_name": "time", "long_name": "time"}), **archive.coords}
    frames = xr.DataArray(lazy_variable(archive.reader, checked.kept), coords=coords, name=archive.name)
    frames.attrs = {"units": "1", "long_name": archive.name, **archive.attrs}
    frames.attrs |= {"data_min": checked.data_min, "data_max": checked.data_max}
    frames.set_close(archive.close)
    return frames


def _tell(frames: xr.DataArray, missing: int) -> None:
    """Warn, to the caller of ``open_frames``, of what is not there."""
    source, skipped, holes = (frames.attrs[key] for key in ("source", "skipped", "gaps"))
    if skipped:
        text = (
            f"{source}: {len(skipped)} bad {'frame' if len(skipped) == 1 else 'frames'} left out:{first_few(skipped)}"
        )
        warnings.warn(text, BadFramesSkipped, stacklevel=3)
    if holes:
        places = "1 gap" if len(holes) == 1 else f"{len(holes)} gaps"
        text = f"{source}: {places} in time, {missing} frames missing; no window crosses them:{first_few(holes)}"
        warnings.warn(text, GapsInTime, stacklevel=3)
