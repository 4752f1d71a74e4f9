"""Settings with which an archive of frames can be trained on: the packaged configuration, changed where needed.

Candidates are tried from the packaged settings to shorter windows and fewer examples. One is accepted if the
configuration is valid and the first tasks to train, to validate and to test on, and those of the warm start, can be
drawn from the archive. Nothing is trained.
"""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from metaprior.files import bare_name
from metaprior.runs.reading import as_change, read_config
from metaprior.solar.maps.archives.file_list import archive_name
from metaprior.solar.maps.days import LEAST_DAYS, all_days
from metaprior.solar.maps.source import SolarSource
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.value_units import IRRADIANCE
from metaprior.text_table import counted

CONFIG = "frames"
LENGTHS = ((4, 4), (4, 2), (2, 2), (2, 1), (1, 1))
"""Frames to see and to forecast."""
EXAMPLES = ((5, 10, 3), (5, 10, 7), (3, 5, 7), (2, 3, 14), (1, 1, 30))
"""Support windows, query windows, and the days that they are drawn from."""
ELEVATIONS = (10.0, 5.0)
"""Lowest sun of a window, in degrees."""
TRIED_TASKS = 2
FEWER = "there are too few windows in daylight for the usual settings, so windows are shorter or examples fewer"


@dataclass(frozen=True)
class Trainable:
    """Changes to the packaged configuration that make it fit an archive, and why; or why nothing fits.

    Args:
        changes: As ``--set`` takes them; empty if nothing fits.
        reasons: What differs from the packaged configuration and why, or what would have to change.
    """

    changes: tuple[str, ...]
    reasons: tuple[str, ...]


def trainable(frames: xr.DataArray, opened_with: Mapping[str, Any]) -> Trainable:
    """Return the first candidate that fits.

    Args:
        frames: What ``open_frames`` returned.
        opened_with: Keys of ``[tasks]`` that it was opened with, where they differ from the packaged configuration.
    """
    fixed, reasons = _fixed(frames)
    if (days := all_days(frames["time"].values)).count < LEAST_DAYS:
        reasons.append(
            f"whole days are divided from {LEAST_DAYS} days on, and the archive has {counted(days.count, 'day')}: "
            "hours are divided, so tests are of nearly the same weather"
        )
    last = ""
    for candidate in _candidates(frames):
        values = {**{f"tasks.{key}": value for key, value in opened_with.items()}, **fixed, **candidate}
        if values.get("tasks.units") != "scaled" and "model.target_len" in candidate:
            values["model.known"] = candidate["model.target_len"]
        changes = tuple(as_change(key, value) for key, value in values.items())
        try:
            _try(frames, changes)
        except (ValueError, FloatingPointError) as error:
            last = str(error)
        else:
            return Trainable(changes, (*reasons, *([FEWER] if candidate else [])))
    problem = f"no settings were found with which tasks can be drawn; the last attempt: {last}"
    return Trainable((), (problem, *reasons))


def train_command(path: Path, found: Trainable) -> str:
    """Return the command that trains on an archive with the changes that fit it, in a folder named after it."""
    words = [word for change in found.changes for word in ("--set", change)]
    return shlex.join(["metaprior", "train", CONFIG, "--run", f"runs/{bare_name(archive_name(path))}", *words])


def _fixed(frames: xr.DataArray) -> tuple[dict[str, Any], list[str]]:
    """Return keys that follow from units and size of the frames, and why."""
    values: dict[str, Any] = {}
    reasons, units = [], frames.attrs["units"]
    if not has_coordinates(frames):
        reasons.append("there is no latitude and longitude, so values are scaled and night is told by brightness")
    elif units != IRRADIANCE:
        reasons.append(
            f"values are in {units!r} and not in {IRRADIANCE!r}, so they are scaled; if they are irradiance: --set "
            f"'tasks.value_units=!{IRRADIANCE}' --set tasks.units=clear_sky"
        )
    if reasons:
        values |= {"tasks.units": "scaled", "model.known": 0}
    packaged = read_config(CONFIG)
    least, patch, levels = min(frames.shape[1:]), packaged.tasks.arguments["patch"], packaged.model.arguments["levels"]
    if least < patch:
        values["tasks.patch"] = least
        reasons.append(f"frames have {least} pixels along the shorter side, fewer than the usual patch of {patch}")
    if least < 2**levels:
        values["model.levels"] = max(1, int(math.log2(max(2, least))))
    return values, reasons


def _candidates(frames: xr.DataArray) -> Iterator[dict[str, Any]]:
    """Iterate over keys to change, from none to the shortest windows together with the fewest examples."""
    elevations = ELEVATIONS if has_coordinates(frames) else ELEVATIONS[:1]
    ranks = product(range(len(EXAMPLES)), range(len(LENGTHS)), range(len(elevations)))
    for examples, lengths, sun in sorted(ranks, key=sum):
        values: dict[str, Any] = {}
        for key, usual, value in zip(("input_len", "target_len"), LENGTHS[0], LENGTHS[lengths], strict=True):
            values |= {f"tasks.{key}": value, f"model.{key}": value} if value != usual else {}
        for key, usual, value in zip(
            ("k_shot", "k_query", "period_days"), EXAMPLES[0], EXAMPLES[examples], strict=True
        ):
            values |= {f"tasks.{key}": value} if value != usual else {}
        yield values | ({"tasks.min_elevation": elevations[sun]} if sun else {})


def _try(frames: xr.DataArray, changes: tuple[str, ...]) -> None:
    """Raise unless the configuration is valid and its first tasks can be drawn."""
    config = read_config(CONFIG, changes)
    source = SolarSource(config.task_settings, frames, progress=False)
    pooled = source.pooled(config.meta.meta_batch)
    for tasks in (source.tasks("train"), source.tasks("val"), source.tasks("test"), pooled):
        for index in range(TRIED_TASKS):
            task = tasks[index]
            if not np.isfinite(task.support.x.numpy()).all():
                raise ValueError("inputs are not finite")
