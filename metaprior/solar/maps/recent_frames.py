"""The frames that a forecast is made of: opened, looked at, cut to a place; and which windows of them to adapt to.

Nothing later than the issue time is looked at, also where the archives go on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config
from metaprior.solar.maps.archives.door import OnBad, cadence_of
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.fitting import least_pixels
from metaprior.solar.maps.sources import check_irradiance
from metaprior.solar.maps.tasks import is_bright, lowest_sun
from metaprior.solar.maps.units import ClearSkyIndex, Place, Units, Values
from metaprior.solar.maps.windows import Times, gapless_starts

MOST_LOOKED_AT = 500
"""Frames before a time at which no forecast can be issued that are searched for one at which it can."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for on the command line.

    ``place`` is the first row and column of a patch as large as the run's, None the whole frame; ``at`` the time
    of the last input frame, None the archive's last.
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
    on_bad: OnBad | None = None
    """None: as the run's configuration says."""
    overwrite: bool = False
    seed: int = 0

    @property
    def options(self) -> dict[str, object]:
        """What decides about the forecast besides frames."""
        names = ("samples", "steps", "place", "at", "variable", "on_bad", "seed")
        return {f"--{name}": getattr(self, name) for name in names}


@dataclass(frozen=True)
class Forecaster:
    """A run's prior, and how it sees frames."""

    config: Config
    learner: MetaLearner
    units: Units
    cadence: str
    trained_on: dict[str, Any]
    """What ``solar.json`` says about the frames of the run."""

    @property
    def tasks(self) -> dict[str, Any]:
        """``[tasks]`` of the run."""
        return dict(self.config.tasks.arguments)

    @property
    def length(self) -> int:
        """Frames of a window."""
        return int(self.tasks["input_len"] + self.tasks["target_len"])


@dataclass(frozen=True)
class Given:
    """The frames that a forecast is made of; ``starts`` are the first ones of the windows to adapt to."""

    inputs: xr.DataArray
    issued: np.datetime64
    support: xr.DataArray
    starts: list[int]


def given_frames(forecaster: Forecaster, wanted: Wanted, *, progress: bool) -> Given:
    """All that a forecast needs of the archives; raises if something is missing."""
    inputs = _patch(_opened(forecaster, wanted, "inputs", progress), forecaster, wanted.place)
    _check_size(inputs, forecaster.config)
    issued = issue_time(inputs, forecaster, wanted.at)
    support = inputs  # looking at all frames of an archive takes time, so the same one is opened once
    if wanted.support.resolve() != wanted.inputs.resolve():
        support = _patch(_opened(forecaster, wanted, "support", progress), forecaster, wanted.place)
    _check_same_place(support, inputs)
    return Given(inputs, issued, support, support_starts(support, forecaster, issued))


def _opened(
    forecaster: Forecaster, wanted: Wanted, which: Literal["inputs", "support"], progress: bool
) -> xr.DataArray:
    path = wanted.inputs if which == "inputs" else wanted.support
    variable = wanted.variable or (
        None if path.is_dir() and path.suffix != ".zarr" else forecaster.tasks.get("variable")
    )
    try:
        on_bad = wanted.on_bad or forecaster.tasks.get("on_bad", "raise")
        said = {name: forecaster.tasks.get(name) for name in ("value_units", "long_name")}
        frames = open_frames(
            path, variable=variable, cadence=forecaster.cadence, on_bad=on_bad, progress=progress, **said
        )
        if isinstance(forecaster.units, ClearSkyIndex):
            check_irradiance(frames)
        _check_units(frames, forecaster.trained_on["value_units"])
    except ValueError as error:
        raise ValueError(f"--{which} {error} (the run was trained on frames every {forecaster.cadence})") from None
    # Day and night are told by the range of the run's archive, not by that of a few frames.
    seen = {name: forecaster.trained_on[name] for name in ("data_min", "data_max")}
    return frames.assign_attrs(seen)


def _check_units(frames: xr.DataArray, expected: str) -> None:
    if frames.attrs["units"] != expected:
        raise ValueError(
            f"{frames.attrs['source']}: values are in {frames.attrs['units']!r}, the run was trained on {expected!r}"
        )


def _patch(frames: xr.DataArray, forecaster: Forecaster, place: tuple[int, int] | None) -> xr.DataArray:
    if place is None:
        return frames
    size, (y, x) = forecaster.tasks["patch"], place
    height, width = frames.shape[1:]
    if not size:
        raise ValueError("--place is for runs on patches; this one was trained on whole frames (tasks.patch 0)")
    if not (0 <= y <= height - size and 0 <= x <= width - size):
        raise ValueError(
            f"--place {y},{x}: a patch of {size} pixels does not lie within frames of {height} x {width}; the first "
            f"row and column are from 0,0 to {height - size},{width - size}"
        )
    return frames[:, y : y + size, x : x + size]


def _check_size(inputs: xr.DataArray, config: Config) -> None:
    least = least_pixels(config.model)
    if min(inputs.shape[1:]) < least:
        raise ValueError(
            f"--inputs {inputs.attrs['source']}: frames of {inputs.shape[1]} x {inputs.shape[2]} pixels are too small; "
            f"the run's network (model.levels {config.model.arguments['levels']}) needs at least {least} each way"
        )


def _check_same_place(support: xr.DataArray, inputs: xr.DataArray) -> None:
    """What is adapted to has to be the place that is forecast."""
    same = support.shape[1:] == inputs.shape[1:] and all(
        (name in support.coords) == (name in inputs.coords)
        and (name not in inputs.coords or np.allclose(support[name], inputs[name], atol=1e-3))
        for name in ("latitude", "longitude")
    )
    if not same:
        raise ValueError(
            f"--support {support.attrs['source']} and --inputs {inputs.attrs['source']} are not of the same place: "
            f"{where(support)}, and {where(inputs)}"
        )


def where(frames: xr.DataArray) -> str:
    """Size and place, for a message."""
    text = f"{frames.shape[1]} x {frames.shape[2]} pixels"
    for name in ("latitude", "longitude"):
        if name in frames.coords:
            values = frames[name].values
            text += f", {name} {values.min():g} to {values.max():g}"
    return text


def place_of(frames: xr.DataArray) -> Place:
    """Coordinates, where there are any."""
    if not {"latitude", "longitude"} <= set(frames.coords):
        return Place(None, None)
    return Place(frames["latitude"].values, frames["longitude"].values)


def read(frames: xr.DataArray, start: int, count: int) -> Values:
    """Some frames."""
    return np.asarray(frames.variable[start : start + count].values, np.float32)


def issue_time(inputs: xr.DataArray, forecaster: Forecaster, at: str | None) -> np.datetime64:
    """The time of the last input frame, with enough frames before it, all in daylight, and daylight to come.

    Only the time that was asked for (the latest one, if none was) is taken: a forecast of now that is quietly one of
    this morning would do harm. Another time that would do is named.
    """
    times, source = inputs["time"].values, inputs.attrs["source"]
    (found,) = np.nonzero(times == _moment(at)) if at else (np.array([len(times) - 1]),)
    if not len(found):
        raise ValueError(f"--inputs {source}: there is no frame at {at}; frames are from {times[0]} to {times[-1]}")
    last = int(found[0])
    if why_not := _why_not(inputs, forecaster, last):
        raise ValueError(f"--inputs {source}: {why_not}; {_another_time(inputs, forecaster, last)}")
    chosen: np.datetime64 = times[last]
    return chosen


def _another_time(inputs: xr.DataArray, forecaster: Forecaster, last: int) -> str:
    """The latest time before that would do, among those that are worth a look."""
    earlier = range(last - 1, max(-1, last - 1 - MOST_LOOKED_AT), -1)
    possible = next((number for number in earlier if _why_not(inputs, forecaster, number) is None), None)
    if possible is None:
        return f"none of the {len(earlier)} frames before would do either"
    return f"the latest time before that would do: --at {inputs['time'].values[possible].astype('datetime64[m]')}"


def _why_not(inputs: xr.DataArray, forecaster: Forecaster, last: int) -> str | None:
    """What keeps a forecast from being issued at the frame with this number; None if nothing does."""
    times, count = inputs["time"].values, forecaster.tasks["input_len"]
    issued, first = times[last], last + 1 - count
    if first not in gapless_starts(times, cadence_of(forecaster.cadence), count):
        return (
            f"the forecast issued at {minute(issued)} needs the {count} frames up to then, one every "
            f"{forecaster.cadence}, and some are missing"
        )
    return _why_dark(inputs, times[first : last + 1], forecaster, read(inputs, first, count))


def _moment(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        raise ValueError(f"--at takes a time in UTC such as 2025-04-20T10:30, got {text!r}") from None


def _why_dark(inputs: xr.DataArray, times: Times, forecaster: Forecaster, values: Values) -> str | None:
    """All frames of a window were in daylight in training, those to forecast included, and none had a gap."""
    if not np.isfinite(values).all():
        return f"values are missing in the {len(times)} frames up to {minute(times[-1])}"
    least = forecaster.tasks["min_elevation"]
    window = np.concatenate([times, valid_times(times[-1], forecaster)])
    lowest = lowest_sun(window, place_of(inputs))
    if lowest is not None and lowest < least:
        return (
            f"from {minute(window[0])} to {minute(window[-1])}, the frames to see and to forecast, the sun goes down "
            f"to {lowest:.1f} degrees, and the run was trained on windows of at least {least:g} (tasks.min_elevation)"
        )
    if lowest is None and not is_bright(values, inputs):
        return f"it is dark in some of the frames from {minute(times[0])} to {minute(times[-1])}"
    return None


def valid_times(issued: np.datetime64, forecaster: Forecaster) -> Times:
    """The times that are forecast."""
    steps = np.arange(1, forecaster.tasks["target_len"] + 1)
    later: Times = issued + steps * cadence_of(forecaster.cadence)
    return later


def support_starts(support: xr.DataArray, forecaster: Forecaster, issued: np.datetime64) -> list[int]:
    """First frames of up to k_shot windows in daylight that were over by the issue time, in order of time.

    The most recent ones of which no two have a target frame in common; where these are too few, the most recent of the
    others too.
    """
    times, length, wanted = support["time"].values, forecaster.length, int(forecaster.tasks["k_shot"])
    starts = gapless_starts(times, cadence_of(forecaster.cadence), length)
    latest_first = starts[times[starts + length - 1] <= issued][::-1].tolist()
    chosen: list[int] = []
    for apart in (int(forecaster.tasks["target_len"]), 1):
        for start in latest_first:
            if len(chosen) == wanted:
                break
            if all(abs(start - other) >= apart for other in chosen) and _is_usable(support, start, forecaster):
                chosen.append(start)
    return sorted(chosen)


def _is_usable(support: xr.DataArray, start: int, forecaster: Forecaster) -> bool:
    """Whether a window is in daylight and has no missing value."""
    times = support["time"].values[start : start + forecaster.length]
    lowest = lowest_sun(times, place_of(support))
    if lowest is not None and lowest < forecaster.tasks["min_elevation"]:
        return False
    values = read(support, start, forecaster.length)
    return bool(np.isfinite(values).all()) and (lowest is not None or is_bright(values, support))


def minute(time: np.datetime64) -> str:
    """A time, for a message."""
    return f"{str(time.astype('datetime64[m]')).replace('T', ' ')} UTC"
