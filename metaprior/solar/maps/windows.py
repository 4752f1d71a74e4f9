"""Windows of consecutive frames: where they start, and the one reader of their times, places, values and examples."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from metaprior.checks import check_integer
from metaprior.solar import sun
from metaprior.solar.maps.archives.archive import Times, Values
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.units import Units, has_coordinates
from metaprior.solar.sun import Floats, Place

MIN_ELEVATION = 10.0
"""Default elevation of the sun in degrees above which a window counts as daylight."""
MIN_BRIGHTNESS = 0.08
"""Mean brightness of a patch in daylight, as a share of the archive's range, where the sun's position is not known."""
MOST_LOOKED_AT = 128
"""Rows and columns of a frame at which the sun is looked at, where it is different for every pixel."""
DIRECTIONS_AT_ONCE = 100
"""Frames for which the direction of the sun is computed by one call: the first costs as much as 300 more."""


class UnusableWindow(ValueError):
    """A window is not in daylight, or values are missing; the message says which."""


class Window(NamedTuple):
    """Position of the first frame, and the first row and column of the patch that is cut out of the frames."""

    start: int
    y: int
    x: int


def gapless_starts(times: Times, cadence: np.timedelta64, length: int) -> NDArray[np.int64]:
    """Return the positions from which ``length`` frames follow each other at the cadence."""
    check_integer("length of a window", length, 1)
    if len(times) < length:
        return np.empty(0, np.int64)
    follows = np.diff(times) == cadence
    run = np.concatenate([[0], np.cumsum(follows)])  # frames i to j are gapless where run[j] - run[i] = j - i
    gapless = run[length - 1 :] - run[: len(run) - length + 1] == length - 1
    return np.flatnonzero(gapless)


@dataclass(frozen=True, eq=False)
class WindowReader:
    """Reads windows of ``input_len`` frames to see and ``target_len`` frames to forecast.

    The target frames may lie beyond the end of the archive, as long as only inputs are read.

    Args:
        frames: Frames of ``open_frames``.
        input_len: Number of frames to see.
        target_len: Number of frames to forecast.
        units: How the network sees the values.
        patch: Pixels along each side of a window; None is the whole frame.
    """

    frames: xr.DataArray
    input_len: int
    target_len: int
    units: Units
    patch: int | None = None

    @property
    def length(self) -> int:
        """Number of frames in a window."""
        return self.input_len + self.target_len

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of a window."""
        height, width = self.frames.shape[1:]
        return (height, width) if self.patch is None else (self.patch, self.patch)

    @cached_property
    def archive_times(self) -> Times:
        """Times of all frames, (T,)."""
        return np.asarray(self.frames["time"].values)

    @cached_property
    def cadence(self) -> np.timedelta64:
        """Time between frames."""
        return cadence_of(self.frames.attrs["cadence"])

    def starts(self, length: int | None = None) -> NDArray[np.int64]:
        """Return the positions of the first frames of all gapless windows, or of ``length`` gapless frames."""
        return gapless_starts(self.archive_times, self.cadence, self.length if length is None else length)

    def times(self, window: Window) -> Times:
        """Return the times of the window's input and target frames, (length,)."""
        return np.asarray(self.archive_times[window.start] + np.arange(self.length) * self.cadence)

    def issued(self, window: Window) -> np.datetime64:
        """Return the time of the last input frame."""
        time: np.datetime64 = self.times(window)[self.input_len - 1]
        return time

    @cached_property
    def archive_place(self) -> Place | None:
        """Coordinates of whole frames, if they are known."""
        if not has_coordinates(self.frames):
            return None
        return Place.of(self.frames["latitude"].values, self.frames["longitude"].values)

    def place(self, window: Window) -> Place | None:
        """Return the coordinates of the window's rows and columns, if they are known."""
        return None if self.archive_place is None else self.archive_place.part(*self._slices(window))

    def sine(self, window: Window) -> Floats | None:
        """Return what the units need of the sun: the sine of its elevation in all frames, (length, H, W), or None."""
        place = self.place(window) if self.units.needs_sun else None
        return None if place is None else sun.sine_of_elevation(self.times(window), place)

    def block(self, window: Window) -> xr.DataArray:
        """Return the window's frames with their coordinates, without reading them."""
        return self.frames[window.start : window.start + self.length, *self._slices(window)]

    def read(self, window: Window, count: int | None = None) -> Values:
        """Read all frames of the window, or the first ``count``, in their own units: (length or count, H, W)."""
        stop = window.start + (self.length if count is None else count)
        block = slice(window.start, stop), *self._slices(window)
        variable = self.frames.variable
        if getattr(variable, "_in_memory", False):  # xarray's indexing takes longer than all else that is done here
            return np.asarray(variable.values[block], np.float32)
        return np.asarray(variable[block].values, np.float32)

    def read_in_daylight(self, window: Window, min_elevation: float, count: int | None = None) -> Values:
        """Read a window, or its first ``count`` frames, if all its times are in daylight and no value is missing.

        Daylight is told by the sun where coordinates are known, otherwise by the mean brightness of the frames read.

        Raises:
            UnusableWindow: If the window is dark or values are missing. Nothing is read if the sun is too low.
        """
        times, place = self.times(window), self.place(window)
        lit = place is None or self.lowest_over_frames(window.start) >= min_elevation
        if place is not None and not lit and (lowest := lowest_sun(times, place)) < min_elevation:
            raise UnusableWindow(
                f"from {utc(times[0])} to {utc(times[-1])}, the frames to see and to forecast, the sun goes down to "
                f"{lowest:.1f} degrees, and windows must have at least {min_elevation:g} (tasks.min_elevation)"
            )
        values = self.read(window, count)
        problem = self._problem(values, told_by_sun=place is not None)
        if problem:
            span = f"in the {len(values)} frames from {utc(times[0])} to {utc(times[len(values) - 1])}"
            raise UnusableWindow(f"{problem} {span}")
        return values

    def lowest_over_frames(self, start: int) -> float:
        """Return the sun's lowest elevation in degrees over whole frames, in windows with this start.

        It is computed once for each start, and no patch has a lower one. Without coordinates it is not known: -inf.
        """
        if self.archive_place is None:
            return -math.inf
        if start not in self._lowest:
            sun.direction(self.archive_times[start : start + DIRECTIONS_AT_ONCE])  # one call instead of many
            self._lowest[start] = lowest_sun(self.times(Window(start, 0, 0)), self.archive_place)
        return self._lowest[start]

    @cached_property
    def _lowest(self) -> dict[int, float]:
        """What ``lowest_over_frames`` has computed."""
        return {}

    def inputs(self, window: Window) -> Tensor:
        """Return x of the window (input_len + known, H, W), reading its input frames alone."""
        return self.example(window, self.read(window, self.input_len))[0]

    def example(self, window: Window, values: Values | None = None) -> tuple[Tensor, Tensor]:
        """Return x (input_len + known, H, W) and y (target_len, H, W); ``values`` are those of ``read`` if at hand."""
        values, sine = self.read(window) if values is None else values, self.sine(window)
        seen = self.units.encode(values, _part(sine, slice(len(values))))
        known = self.units.known(_part(sine, self._targets), self.shape)
        x = torch.from_numpy(np.concatenate([seen[: self.input_len], known]))
        return x, torch.from_numpy(seen[self.input_len :])

    def decoding(self, window: Window) -> tuple[Tensor, Tensor]:
        """Return loc and scale of ``value = loc + scale * y``, to broadcast against targets (target_len, H, W)."""
        loc, scale = self.units.decoding(self.target_len, _part(self.sine(window), self._targets))
        return torch.from_numpy(loc), torch.from_numpy(scale)

    @property
    def _targets(self) -> slice:
        return slice(self.input_len, self.length)

    def _problem(self, values: Values, *, told_by_sun: bool) -> str | None:
        """Return why values cannot be used, or None."""
        # Most windows that are dark are dark at an end, and two frames are read from memory faster than all of them.
        if not told_by_sun and self._is_dark(values[:: max(1, len(values) - 1)]):
            return "it is dark"
        if not np.isfinite(values).all():
            return "values are missing"
        return "it is dark" if not told_by_sun and self._is_dark(values) else None

    def _is_dark(self, values: Values) -> bool:
        """Return whether the mean brightness of a frame is too low; a frame with missing values has none."""
        return bool((values.mean((1, 2)) < least_brightness(self.frames)).any())

    def _slices(self, window: Window) -> tuple[slice, slice]:
        height, width = self.shape
        return slice(window.y, window.y + height), slice(window.x, window.x + width)


def least_brightness(frames: xr.DataArray) -> float:
    """Return the mean brightness from which frames without coordinates count as daylight."""
    low, high = frames.attrs["data_min"], frames.attrs["data_max"]
    return float(low + MIN_BRIGHTNESS * (high - low))


def times_in_daylight(frames: xr.DataArray, min_elevation: float) -> Times:
    """Return the times at which the mean frame is in daylight: by the sun in the middle, or by brightness."""
    times: Times = frames["time"].values
    if has_coordinates(frames):
        place = Place.of(frames["latitude"].values, frames["longitude"].values)
        sine = sun.sine_of_elevation(times, place.thinned(16))
        lit = np.nanmedian(sun.degrees_of(sine), axis=(1, 2)) >= min_elevation
    else:
        means = [np.nanmean(frames.variable[number].values) for number in range(len(times))]
        lit = np.array(means) >= least_brightness(frames)
    chosen: Times = times[lit]
    return chosen


def lowest_sun(times: Times, place: Place) -> float:
    """Return the sun's lowest elevation in degrees over these times and this place.

    Along a meridian the sun is lowest at an end; along a parallel that holds for patches, not around the Earth. Where
    every pixel has coordinates of its own, at most MOST_LOOKED_AT rows and columns are looked at, ends among them.
    """
    if not place.of_pixels:
        return float(sun.degrees_of(sun.sine_of_elevation(times, place.part([0, -1])).min()))
    sine = sun.sine_of_elevation(times, place.thinned(MOST_LOOKED_AT))
    return float(sun.degrees_of(np.where(np.isnan(sine), 1.0, sine).min()))  # NaN sees no place


def _part(sine: Floats | None, frames: slice) -> Floats | None:
    return None if sine is None else sine[frames]


def utc(time: np.datetime64) -> str:
    """Return a time to the minute, for messages."""
    return f"{str(time.astype('datetime64[m]')).replace('T', ' ')} UTC"
