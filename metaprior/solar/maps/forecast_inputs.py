"""The frames that a forecast is made from: opened, checked against the run, and divided into windows.

Nothing later than the issue time is used, even if the archives continue.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config
from metaprior.solar.maps.archives.file_list import is_npy_folder
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.archives.notes import OnBad
from metaprior.solar.maps.task_settings import least_pixels
from metaprior.solar.maps.units import ClearSkyIndex, check_clear_sky, units_from_json
from metaprior.solar.maps.windows import UnusableWindow, Window, WindowReader, utc

MOST_EARLIER_FRAMES = 500
"""Frames before an impossible issue time that are searched for a possible one."""


@dataclass(frozen=True)
class ForecastRequest:
    """The arguments of ``metaprior predict``.

    ``place`` is the first row and column of a patch as large as the run's, None the whole frame; ``at`` is the time of
    the last input frame, None the archive's last; ``on_bad`` None is the run's setting.
    """

    run: Path
    support: Path
    inputs: Path
    out: Path
    samples: int = 20
    steps: int | None = None
    place: tuple[int, int] | None = None
    at: str | None = None
    variable: str | None = None
    time_pattern: str | None = None
    on_bad: OnBad | None = None
    overwrite: bool = False
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class TrainedRun:
    """A run's configuration, its prior, and what ``solar.json`` states about the frames of its training."""

    config: Config
    learner: MetaLearner
    trained_on: Mapping[str, Any]

    @property
    def tasks(self) -> dict[str, Any]:
        """The section ``[tasks]`` of the run."""
        return dict(self.config.tasks.arguments)


@dataclass(frozen=True)
class ForecastInputs:
    """The window to forecast (``issue``) and the windows to adapt to, each with the reader of its archive."""

    reader: WindowReader
    issue: Window
    support_reader: WindowReader
    support: list[Window]


def forecast_inputs(run: TrainedRun, request: ForecastRequest, *, progress: bool) -> ForecastInputs:
    """Open the archives and select the windows of a forecast; raises ValueError if one cannot be made."""
    k_shot, min_elevation, least = run.tasks["k_shot"], run.tasks["min_elevation"], least_pixels(run.config.model)
    reader = _reader(run, request, "inputs", request.inputs, progress)
    if min(reader.shape) < least:
        raise ValueError(
            f"--inputs {reader.frames.attrs['source']}: frames of {reader.shape[0]} x {reader.shape[1]} pixels are "
            f"too small; the run's network (model.levels {run.config.model.arguments['levels']}) needs {least} or more"
        )
    issue = issue_window(reader, min_elevation, request.at)
    support = reader  # checking all frames of an archive takes time, so the same one is opened once
    if request.support.resolve() != request.inputs.resolve():
        support = _reader(run, request, "support", request.support, progress)
        _check_same_place(support, reader)
    return ForecastInputs(reader, issue, support, support_windows(support, reader.issued(issue), k_shot, min_elevation))


def _reader(run: TrainedRun, request: ForecastRequest, option: str, path: Path, progress: bool) -> WindowReader:
    """Open an archive, cut out the requested place, and return the reader of its windows."""
    tasks, units = run.tasks, units_from_json(run.trained_on["units"])
    try:
        frames = open_frames(
            path,
            variable=request.variable or (None if is_npy_folder(path) else tasks.get("variable")),
            cadence=run.trained_on["cadence"],
            time_pattern=request.time_pattern or tasks.get("time_pattern"),
            on_bad=request.on_bad or tasks.get("on_bad", "raise"),
            missing=tasks.get("missing", "bad"),
            value_units=tasks.get("value_units"),
            long_name=tasks.get("long_name"),
            progress=progress,
        )
        if isinstance(units, ClearSkyIndex):
            check_clear_sky(frames)
        if frames.attrs["units"] != run.trained_on["value_units"]:
            raise ValueError(
                f"{path}: values must be in {run.trained_on['value_units']!r}, on which the run was trained, got "
                f"{frames.attrs['units']!r}"
            )
    except ValueError as error:
        trained = f" (the run was trained on frames every {run.trained_on['cadence']})" if "every" in str(error) else ""
        raise ValueError(f"--{option} {error}{trained}") from None
    # Day and night are told by the range of the run's archive, not by that of a few frames.
    frames = frames.assign_attrs({name: run.trained_on[name] for name in ("data_min", "data_max")})
    if request.place is not None:
        frames = _patch(frames, request.place, tasks["patch"])
    return WindowReader(frames, tasks["input_len"], tasks["target_len"], units)


def _patch(frames: xr.DataArray, place: tuple[int, int], size: int) -> xr.DataArray:
    """Return the frames of the patch whose first row and column are ``place``."""
    (y, x), (height, width) = place, frames.shape[1:]
    if not size:
        raise ValueError("--place is for runs on patches; this one was trained on whole frames (tasks.patch 0)")
    if not (0 <= y <= height - size and 0 <= x <= width - size):
        raise ValueError(
            f"--place must be the first row and column, from 0,0 to {height - size},{width - size}, of a patch of "
            f"{size} pixels within frames of {height} x {width}, got {y},{x}"
        )
    return frames[:, y : y + size, x : x + size]


def _check_same_place(support: WindowReader, inputs: WindowReader) -> None:
    """Raise unless the network adapts to the place that it forecasts."""
    one, other = _coordinates(support), _coordinates(inputs)
    same = support.shape == inputs.shape and one.keys() == other.keys()
    if not same or not all(_alike(one[name], other[name]) for name in one):
        raise ValueError(
            f"--support {support.frames.attrs['source']} and --inputs {inputs.frames.attrs['source']} must be of the "
            f"same place, got {described_place(support)}, and {described_place(inputs)}"
        )


def _alike(one: NDArray[np.floating], other: NDArray[np.floating]) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-3, equal_nan=True)


def described_place(reader: WindowReader) -> str:
    """Return size and coordinates of the frames, for messages."""
    text = f"{reader.shape[0]} x {reader.shape[1]} pixels"
    for name, values in _coordinates(reader).items():
        text += f", {name} {np.nanmin(values):g} to {np.nanmax(values):g}"
    return text


def _coordinates(reader: WindowReader) -> dict[str, NDArray[np.floating]]:
    """Return the coordinates of the first patch by name; empty if they are not known."""
    place = reader.place(Window(0, 0, 0))
    return {} if place is None else {"latitude": place.latitude, "longitude": place.longitude}


def issue_window(reader: WindowReader, min_elevation: float, at: str | None) -> Window:
    """Return the window whose last input frame is at the time ``at``, by default the archive's last.

    Raises ValueError if frames are missing or it is not day, and names the latest time before that is possible. That
    time is not used instead: a forecast of now that is silently one of this morning would do harm.
    """
    times, source = reader.archive_times, reader.frames.attrs["source"]
    last = len(times) - 1
    if at is not None:
        try:
            (found,) = np.nonzero(times == np.datetime64(at, "ns"))
        except ValueError:
            raise ValueError(f"--at must be a time in UTC such as 2025-04-20T10:30, got {at!r}") from None
        if not len(found):
            raise ValueError(f"--inputs {source}: there is no frame at {at}; frames are from {times[0]} to {times[-1]}")
        last = int(found[0])
    if problem := _problem(reader, last, min_elevation):
        earlier = range(last - 1, max(-1, last - 1 - MOST_EARLIER_FRAMES), -1)
        possible = next((one for one in earlier if _problem(reader, one, min_elevation) is None), None)
        advice = f"none of the {len(earlier)} frames before would do either"
        if possible is not None:
            advice = f"the latest time before that would do: --at {times[possible].astype('datetime64[m]')}"
        raise ValueError(f"--inputs {source}: {problem}; {advice}")
    return Window(last + 1 - reader.input_len, 0, 0)


def _problem(reader: WindowReader, last: int, min_elevation: float) -> str | None:
    """Return why no forecast can be issued at the frame with this position; None if it can."""
    window = Window(last + 1 - reader.input_len, 0, 0)
    if window.start not in reader.starts(reader.input_len):
        return (
            f"the forecast issued at {utc(reader.archive_times[last])} needs the {reader.input_len} frames up to then, "
            f"one every {reader.frames.attrs['cadence']}, and some are missing"
        )
    try:
        reader.read_in_daylight(window, min_elevation, reader.input_len)
    except UnusableWindow as problem:
        return str(problem)
    return None


def support_windows(reader: WindowReader, issued: np.datetime64, k_shot: int, min_elevation: float) -> list[Window]:
    """Return up to ``k_shot`` windows in daylight that were over by the issue time, in order of time.

    These are the most recent windows of which no two share a target frame; if they are too few, the most recent of the
    others are added.
    """
    starts = reader.starts()
    over = reader.archive_times[starts + reader.length - 1] <= issued
    latest_first = [Window(start, 0, 0) for start in starts[over][::-1].tolist()]
    chosen: list[Window] = []
    for apart in (reader.target_len, 1):
        for window in latest_first:
            if len(chosen) == k_shot:
                break
            if all(abs(window.start - other.start) >= apart for other in chosen):
                with suppress(UnusableWindow):
                    reader.read_in_daylight(window, min_elevation)
                    chosen.append(window)
    return sorted(chosen)
