"""What ``metaprior inspect`` says about an archive of frames: all that keeps it from being trained on, at once."""

import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from metaprior.cli.inspection import Inspection
from metaprior.cli.options import as_options, messages_name_options
from metaprior.files import bare_name, named_after
from metaprior.solar.maps.archives.archive import Archive, Times, first_lines
from metaprior.solar.maps.archives.cadence import frequent_steps
from metaprior.solar.maps.archives.cf_layout import frame_layouts, open_dataset
from metaprior.solar.maps.archives.file_list import NETCDF, archive_name, files_of
from metaprior.solar.maps.archives.frame_times import cadence_of, cadence_text, find_gaps
from metaprior.solar.maps.archives.frames import AUTO, open_frames, read_archive
from metaprior.solar.maps.archives.notes import Notes
from metaprior.solar.maps.days import all_days
from metaprior.solar.maps.task_settings import KEPT_BYTES
from metaprior.solar.maps.trainable import CONFIG, Trainable, train_command, trainable
from metaprior.text_table import counted

KIND = "an archive of frames"
LOOKED_AT = 100
"""Frames whose missing values are counted, evenly spread."""
ARGUMENTS = {"variable": "--variable ", "time_pattern": "--time-pattern "} | {
    name: f"--set tasks.{name}=" for name in ("cadence", "on_bad", "value_units")
}
HOLES = "missing (NaN)"
"""In the message of a frame with missing values by day; if most have some, they are kept."""
WARNINGS = ("stored in chunks",)
"""Warnings of the reader that are problems of the archive."""
NOTHING = Trainable((), ())


@dataclass
class TimeSteps:
    """Steps between frames that windows can be made of, the most frequent first, and what is wrong with the times."""

    cadences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unsorted: bool = False


def inspect_archive(path: Path, variable: str | None, time_pattern: str | None = None) -> Inspection:
    """Return what an archive holds, its problems, and the command that trains on it.

    Args:
        path: The archive.
        variable: Name of the variable, for files with several.
        time_pattern: The form of times in the names of files.
    """
    given = {name: text for name, text in (("variable", variable), ("time_pattern", time_pattern)) if text is not None}
    with warnings.catch_warnings(record=True) as caught, messages_name_options(ARGUMENTS):
        warnings.simplefilter("always")
        notes = Notes("skip")
        archive = read_archive(path, variable, time_pattern, notes, True)
        notes.raise_problems(str(path))
        steps = time_steps(archive.times)
        found = _best(path, given, steps)
    told = [str(one.message) for one in caught]
    problems = [*steps.problems, *dict.fromkeys(text for text in told if any(mark in text for mark in WARNINGS))]
    facts = _archive_facts(archive)
    if found is None or found.frames is None:
        following = []
        if steps.unsorted and path.suffix in (".nc", ".nc4"):
            out = named_after(path, "sorted.nc")
            code = f"import xarray as xr; xr.open_dataset({str(path)!r}).sortby('time').to_netcdf({out!r})"
            following = [python_command(code), shlex.join(["metaprior", "inspect", out])]
        problems += [] if found is None else [as_options(found.error, ARGUMENTS)]
        night = found is not None and "it is night in all frames" in found.error  # infrared can be forecast
        return Inspection(KIND, facts, problems, [_nowcast(path, given)] if night else following)
    facts |= {"cadence": found.cadence, **_value_facts(found.frames)}
    body = "\n".join(["understood:", *(f"  {as_options(line, ARGUMENTS)}" for line in found.frames.attrs["findings"])])
    problems += [*_left_out(found), *found.settings.reasons]
    if not found.settings.changes:
        return Inspection(KIND, facts, problems, [_nowcast(path, given)], body=body)
    return Inspection(KIND, facts, problems, _next(path, given, found), body, CONFIG, found.settings.changes)


def frame_variables(path: Path) -> list[str]:
    """Return the names of the variables that may hold the frames of a NetCDF or Zarr archive, by its first file."""
    zarr = path.is_dir() and (
        path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup"))
    )
    files = [path] if zarr or path.is_file() else files_of(path, Notes())
    if not files or (files[0].suffix.lower() not in NETCDF and not zarr):
        return []
    try:
        with open_dataset(files[0], "zarr" if zarr else "netcdf4") as dataset:
            return [layout.name for layout in frame_layouts(dataset)]
    except OSError:  # which opening says
        return []


@dataclass(frozen=True)
class Opened:
    """An archive as it was opened at a cadence, with settings to train on it; without frames, the error."""

    cadence: str
    frames: xr.DataArray | None
    settings: Trainable = NOTHING
    error: str = ""


def _best(path: Path, given: Mapping[str, str], steps: TimeSteps) -> Opened | None:
    """Return the archive at its own cadence or, if that cannot be trained on, at another one that can."""
    tried: list[Opened] = []
    for cadence in (AUTO, *steps.cadences) if steps.cadences else ():
        if cadence not in [one.cadence for one in tried]:
            tried.append(_opened(path, given, cadence))
        if tried[-1].settings.changes:
            return tried[-1]
    return tried[0] if tried else None


def _opened(path: Path, asked: Mapping[str, str], cadence: str) -> Opened:
    how: dict[str, Any] = {**asked, "cadence": cadence, "on_bad": "skip"}
    given: dict[str, Any] = {"path": str(path), **asked}
    try:
        frames = open_frames(path, **how)
        with_holes = sum(HOLES in line for line in frames.attrs["skipped"]) > len(frames)
    except (ValueError, OSError) as error:
        if "it is night in all frames" in str(error):
            return Opened(cadence, None, error=str(error))
        with_holes = True
    if with_holes:
        given |= {"missing": "keep"}
        try:
            frames = open_frames(path, **how, missing="keep")
        except (ValueError, OSError) as error:
            return Opened(cadence, None, error=str(error))
    given |= {"cadence": cadence} if cadence != AUTO else {}
    given |= {"on_bad": "skip"} if frames.attrs["skipped"] else {}
    frames = frames.load() if 4 * frames.size <= KEPT_BYTES else frames
    return Opened(frames.attrs["cadence"], frames, trainable(frames, given))


def _left_out(found: Opened) -> list[str]:
    """Return the frames that cannot be used; of those between the steps of the cadence the number is enough."""
    skipped = [] if found.frames is None else found.frames.attrs["skipped"]
    between = [line for line in skipped if "is off the cadence" in line]
    others = [line for line in skipped if line not in between]
    told = [f"{counted(len(between), 'frame')} off the cadence of {found.cadence}: tasks.on_bad=skip leaves them out"]
    bad = f"{counted(len(others), 'frame')} not usable: tasks.on_bad=skip leaves them out{first_lines(others, 3)}"
    return [*(told if between else []), *([bad] if others else [])]


def python_command(code: str) -> str:
    """Return a command that runs a line of Python whose strings are in single quotes."""
    return shlex.join(["python", "-c", code]) if set(code) & set('"$`!\\') else f'python -c "{code}"'


def _next(path: Path, given: Mapping[str, str], found: Opened) -> list[str]:
    train, out = train_command(path, found.settings), f"{bare_name(archive_name(path))}.toml"
    following = [train, _nowcast(path, given)]
    return (
        following
        if given
        else [*following, shlex.join(["metaprior", "init", CONFIG, "--data", str(path), "--out", out])]
    )


def _nowcast(path: Path, given: Mapping[str, str]) -> str:
    """Return the command that forecasts the next frames without training."""
    options = [word for name, text in given.items() for word in (f"--{name.replace('_', '-')}", text)]
    return shlex.join(["metaprior", "nowcast", str(path), *options, "--out", "forecast.nc"])


def _archive_facts(archive: Archive) -> dict[str, str]:
    """Return what a file states: variable, units, sizes and places."""
    count, rows, columns = archive.variable.shape
    facts = {
        "variable": f"{archive.name} ({archive.attrs.get('long_name', 'no long_name')})",
        "units": archive.attrs.get("units", "not stated"),
        "frames": f"{count:,} of {rows} x {columns} pixels, {archive.variable.dtype}",
    }
    if archive.frames_per_chunk > 1:
        facts["chunks"] = f"{archive.frames_per_chunk:,} frames together"
    axes = {name: archive.coords[name].values for name in ("latitude", "longitude") if archive.located}
    places = ", ".join(f"{name} {np.nanmin(axis):g} to {np.nanmax(axis):g}" for name, axis in axes.items())
    return {**facts, "places": places or "unknown"}


def time_steps(times: Times) -> TimeSteps:
    """Return the steps between frames that are frequent, and what is wrong with the times."""
    found = TimeSteps()
    known = times[~np.isnat(times)]
    if len(known) < len(times):
        found.problems.append(f"{counted(len(times) - len(known), 'frame')} without a time; every frame needs one")
    steps = np.diff(known) / np.timedelta64(1, "s")
    if (steps < 0).any():
        found.unsorted = True
        found.problems.append("times must increase: sort the archive by time")
        return found
    if (steps == 0).any():
        found.problems.append(f"{counted(int((steps == 0).sum()), 'time')} more than once; the first frame counts")
    found.cadences = [cadence_text(np.timedelta64(step, "s")) for step in frequent_steps(known)]
    if not found.cadences:
        found.problems.append("there must be at least two frames of different times")
    return found


def _value_facts(frames: xr.DataArray) -> dict[str, str]:
    """Return days, gaps, range, missing values and memory of checked frames."""
    times, attrs, days = frames["time"].values, frames.attrs, all_days(frames["time"].values)
    some = np.unique(np.linspace(0, len(frames) - 1, LOOKED_AT).astype(int))
    missing = np.mean([np.isnan(frames.variable[int(number)].values).mean() for number in some])
    looked_at = f"({len(some)} frames looked at)" if len(some) < len(frames) else "(all frames looked at)"
    absent = f"{f'{missing:.2%}' if missing else 'none'} missing {looked_at}"
    size = 4 * frames.size
    kept = "kept in memory while training" if size <= KEPT_BYTES else "read from the file while training"
    return {
        "days": f"{days.count} ({days})",
        "gaps": str(find_gaps(times, cadence_of(attrs["cadence"]))),
        "values": f"{attrs['data_min']:.6g} to {attrs['data_max']:.6g}, {absent}",
        "size": f"{size / 2**20:,.1f} MiB as float32, {kept}",
    }
