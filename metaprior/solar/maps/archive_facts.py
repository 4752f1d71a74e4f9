"""What ``metaprior inspect`` says about an archive of frames: all that keeps it from being trained on, at once."""

import shlex
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from metaprior.cli.inspection import Inspection
from metaprior.cli.options import as_options, messages_name_options
from metaprior.files import bare_name, named_after
from metaprior.solar.maps.archives.archive import Archive, BadFrames, Times, first_lines
from metaprior.solar.maps.archives.frame_times import NIGHT, cadence_of, find_gaps
from metaprior.solar.maps.archives.frames import open_frames, read_archive
from metaprior.solar.maps.archives.netcdf_folder import python_command
from metaprior.solar.maps.days import all_days
from metaprior.solar.maps.task_settings import KEPT_BYTES
from metaprior.solar.maps.trainable import CONFIG, Trainable, train_command, trainable
from metaprior.text_table import counted

KIND = "an archive of frames"
LOOKED_AT = 100
"""Frames whose missing values are counted, evenly spread."""
ARGUMENTS = {"variable": "--variable ", "cadence": "--set tasks.cadence=", "on_bad": "--set tasks.on_bad="}
WARNINGS = ("stored in chunks", "given for every pixel")
"""Warnings of the reader that are problems of the archive."""
USUAL_CADENCE = "30min"
NOTHING = Trainable((), ())


@dataclass
class TimeSteps:
    """Steps between frames that windows can be made of, the most frequent first, and what is wrong with the times."""

    cadences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unsorted: bool = False


def inspect_archive(path: Path, variable: str | None) -> Inspection:
    """Return what an archive holds, its problems, and the command that trains on it.

    Args:
        path: The archive.
        variable: Name of the variable, for files with several.
    """
    with warnings.catch_warnings(record=True) as caught, messages_name_options(ARGUMENTS):
        warnings.simplefilter("always")
        archive = read_archive(path, variable, BadFrames("skip"), True)
        steps = time_steps(archive.times)
        found = _best(path, variable, steps)
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
        return Inspection(KIND, facts, problems, following)
    facts |= {"cadence": found.cadence, **_value_facts(found.frames)}
    problems += [*_left_out(found), *found.settings.reasons]
    if not found.settings.changes:
        return Inspection(KIND, facts, problems)
    return Inspection(KIND, facts, problems, _next(path, variable, found), "", CONFIG, found.settings.changes)


@dataclass(frozen=True)
class Opened:
    """An archive as it was opened at a cadence, with settings to train on it; without frames, the error."""

    cadence: str
    frames: xr.DataArray | None
    settings: Trainable = NOTHING
    error: str = ""


def _best(path: Path, variable: str | None, steps: TimeSteps) -> Opened | None:
    """Return the archive at the first cadence that can be trained on, or else at the most frequent one."""
    tried = []
    for cadence in steps.cadences:
        tried.append(_opened(path, variable, cadence))
        if tried[-1].settings.changes:
            return tried[-1]
    return tried[0] if tried else None


def _opened(path: Path, variable: str | None, cadence: str) -> Opened:
    try:
        frames = open_frames(path, variable=variable, cadence=cadence, on_bad="skip")
    except (ValueError, OSError) as error:
        return Opened(cadence, None, error=str(error))
    given: dict[str, Any] = {"path": str(path)}
    given |= {"variable": variable} if variable is not None else {}
    given |= {"cadence": cadence} if cadence != USUAL_CADENCE else {}
    given |= {"on_bad": "skip"} if frames.attrs["skipped"] else {}
    frames = frames.load() if 4 * frames.size <= KEPT_BYTES else frames
    return Opened(cadence, frames, trainable(frames, given))


def _left_out(found: Opened) -> list[str]:
    """Return the frames that cannot be used; of those between the steps of the cadence the number is enough."""
    skipped = [] if found.frames is None else found.frames.attrs["skipped"]
    between = [line for line in skipped if "is off the cadence" in line]
    others = [line for line in skipped if line not in between]
    told = [f"{counted(len(between), 'frame')} off the cadence of {found.cadence}: tasks.on_bad=skip leaves them out"]
    bad = f"{counted(len(others), 'frame')} not usable: tasks.on_bad=skip leaves them out{first_lines(others, 3)}"
    return [*(told if between else []), *([bad] if others else [])]


def _next(path: Path, variable: str | None, found: Opened) -> list[str]:
    train, out = train_command(path, found.settings), f"{bare_name(path)}.toml"
    return (
        [train] if variable else [train, shlex.join(["metaprior", "init", CONFIG, "--data", str(path), "--out", out])]
    )


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
    axes = {name: archive.coords[name].values for name in ("latitude", "longitude") if name in archive.coords}
    places = ", ".join(f"{name} {axis.min():g} to {axis.max():g}" for name, axis in axes.items())
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
    counts = Counter(steps[steps > 0].tolist()).most_common()
    if not counts:
        found.problems.append("there must be at least two frames of different times")
        return found
    (usual, most), *others = counts
    mixed = [
        (step, count)
        for step, count in others
        if step < NIGHT / np.timedelta64(1, "s") and count > _rare(step, usual) * most
    ]
    if mixed:
        told = ", ".join(f"{count} steps of {_length(step)}" for step, count in [(usual, most), *mixed])
        found.problems.append(f"frames come at several cadences ({told}): windows are made of one of them alone")
    found.cadences = [_length(step) for step, _ in [(usual, most), *mixed]]
    return found


def _rare(step: float, usual: float) -> float:
    """Return the share of steps up to which they are gaps, or odd frames, and not a second cadence."""
    return 0.05 if step % usual else 0.3


def _length(seconds: float) -> str:
    """Return a time step as ``tasks.cadence`` takes it."""
    return f"{seconds / 60:g}min" if seconds % 60 == 0 else f"{seconds:g}s"


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
