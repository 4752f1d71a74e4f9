"""Windows of consecutive frames: where they start, and the one reader of their times, places, values and examples."""

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
from metaprior.solar.maps.units import Place, Units, has_coordinates

MIN_ELEVATION = 10.0
"""Default elevation of the sun in degrees above which a window counts as daylight."""
MIN_BRIGHTNESS = 0.08
"""Mean brightness of a patch in daylight, as a share of the archive's range, where the sun's position is not known."""


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

    def place(self, window: Window) -> Place | None:
        """Return the coordinates of the window's rows and columns, if they are known."""
        if not has_coordinates(self.frames):
            return None
        rows, columns = self._slices(window)
        return Place(self.frames["latitude"].values[rows], self.frames["longitude"].values[columns])

    def block(self, window: Window) -> xr.DataArray:
        """Return the window's frames with their coordinates, without reading them."""
        return self.frames[window.start : window.start + self.length, *self._slices(window)]

    def read(self, window: Window, count: int | None = None) -> Values:
        """Read all frames of the window, or the first ``count``, in their own units: (length or count, H, W)."""
        stop = window.start + (self.length if count is None else count)
        return np.asarray(self.frames.variable[window.start : stop, *self._slices(window)].values, np.float32)

    def read_in_daylight(self, window: Window, min_elevation: float, count: int | None = None) -> Values:
        """Read a window, or its first ``count`` frames, if all its times are in daylight and no value is missing.

        Daylight is told by the sun where coordinates are known, otherwise by the mean brightness of the frames read.

        Raises:
            UnusableWindow: If the window is dark or values are missing. Nothing is read if the sun is too low.
        """
        times, place = self.times(window), self.place(window)
        if place is not None and (lowest := lowest_sun(times, place)) < min_elevation:
            raise UnusableWindow(
                f"from {utc(times[0])} to {utc(times[-1])}, the frames to see and to forecast, the sun goes down to "
                f"{lowest:.1f} degrees, and windows must have at least {min_elevation:g} (tasks.min_elevation)"
            )
        values, (low, high) = self.read(window, count), (self.frames.attrs[name] for name in ("data_min", "data_max"))
        span = f"in the {len(values)} frames from {utc(times[0])} to {utc(times[len(values) - 1])}"
        if not np.isfinite(values).all():
            raise UnusableWindow(f"values are missing {span}")
        if place is None and values.mean((1, 2)).min() < low + MIN_BRIGHTNESS * (high - low):
            raise UnusableWindow(f"it is dark {span}")
        return values

    def inputs(self, window: Window) -> Tensor:
        """Return x of the window (input_len + known, H, W), reading its input frames alone."""
        return self.example(window, self.read(window, self.input_len))[0]

    def example(self, window: Window, values: Values | None = None) -> tuple[Tensor, Tensor]:
        """Return x (input_len + known, H, W) and y (target_len, H, W); ``values`` are those of ``read`` if at hand."""
        values, times, place = self.read(window) if values is None else values, self.times(window), self.place(window)
        seen = self.units.encode(values, times[: len(values)], place)
        known = self.units.known(times[self.input_len :], place, self.shape)  # what is known about the target times
        x = torch.from_numpy(np.concatenate([seen[: self.input_len], known]))
        return x, torch.from_numpy(seen[self.input_len :])

    def decoding(self, window: Window) -> tuple[Tensor, Tensor]:
        """Return loc and scale of ``value = loc + scale * y``, to broadcast against targets (target_len, H, W)."""
        loc, scale = self.units.decoding(self.times(window)[self.input_len :], self.place(window))
        return torch.from_numpy(loc), torch.from_numpy(scale)

    def _slices(self, window: Window) -> tuple[slice, slice]:
        height, width = self.shape
        return slice(window.y, window.y + height), slice(window.x, window.x + width)


def lowest_sun(times: Times, place: Place) -> float:
    """Return the sun's lowest elevation in degrees over these times and this place."""
    # Along a column the sun is lowest at an end; along a row that holds for patches, but not around the Earth.
    return float(sun.elevation(times, place.latitude[[0, -1]], place.longitude).min())


def utc(time: np.datetime64) -> str:
    """Return a time to the minute, for messages."""
    return f"{str(time.astype('datetime64[m]')).replace('T', ' ')} UTC"
