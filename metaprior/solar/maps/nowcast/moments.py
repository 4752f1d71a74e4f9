"""Moments of an archive at which forecasts are issued: their frames, and what was known beside them at that time."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from metaprior.solar import sun
from metaprior.solar.maps.archives.archive import Times, Values
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.nowcast.bank import Batch, typical_of
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, Known
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.sun import Place

MOST_DAYS = 10
"""Earlier days that are averaged."""
LEAST_FRAMES = 3
"""Input frames that must be there, the last one among them; others count as missing."""
LEAST_PRESENT = 0.05
"""Least share of the pixels of the last frame that must have a value."""
LEAST_CONTRAST = 0.005
"""Least standard deviation of a frame, in shares of the archive's range: a frame of almost one value is night."""
ONE_DAY = np.timedelta64(1, "D")
STEPS = np.arange(1 - INPUTS, LEADS + 1)
"""Steps of inputs and targets from the moment of issue."""


class Rows(NamedTuple):
    """A part of the frames: slices of rows and columns."""

    rows: slice = slice(None)
    columns: slice = slice(None)


ALL = Rows()


@dataclass(frozen=True, eq=False)
class Moments:
    """Reads what is known when a forecast is issued at the frame with a given position.

    Args:
        frames: Frames of ``open_frames``.
        part: The part of the frames that is read.
    """

    frames: xr.DataArray
    part: Rows = ALL

    @cached_property
    def times(self) -> Times:
        """Times of the frames."""
        return np.asarray(self.frames["time"].values)

    @cached_property
    def step(self) -> np.timedelta64:
        """Time between frames."""
        return cadence_of(self.frames.attrs["cadence"])

    @property
    def minutes(self) -> float:
        """Minutes between frames."""
        return float(self.step / np.timedelta64(1, "m"))

    @property
    def step_text(self) -> str:
        """The time between frames, for messages."""
        return f"{self.minutes:g} minutes"

    @property
    def source(self) -> str:
        """Where the frames come from."""
        return str(self.frames.attrs.get("source", "the archive"))

    @cached_property
    def place(self) -> Place | None:
        """Coordinates of rows and columns, if they are known."""
        if not has_coordinates(self.frames):
            return None
        return Place.of(self.frames["latitude"].values, self.frames["longitude"].values).part(*self.part)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that are read."""
        height, width = self.frames.shape[1:]
        rows, columns = self.part
        return len(range(height)[rows]), len(range(width)[columns])

    def whole(self) -> NDArray[np.int64]:
        """Return the positions of issue whose inputs and targets are all in the archive."""
        there = [self._positions(self.times + step * self.step) >= 0 for step in STEPS.tolist()]
        return np.flatnonzero(np.all(there, 0))

    def possible(self) -> NDArray[np.int64]:
        """Return the positions at which a forecast can be issued: enough input frames are in the archive."""
        there = [self._positions(self.times + step * self.step) >= 0 for step in range(1 - INPUTS, 1)]
        return np.flatnonzero(there[-2] & (np.sum(there, 0) >= LEAST_FRAMES))

    def has_structure(self, position: int) -> bool:
        """Return whether the frame at a position shows something: it is neither night nor almost empty."""
        height, width = self.shape
        frame = self._read(np.array([position]))[0, :: max(1, height // 64), :: max(1, width // 64)]
        present = frame[np.isfinite(frame)]
        if len(present) < LEAST_PRESENT * frame.size:
            return False
        span = float(self.frames.attrs.get("data_max", 1.0)) - float(self.frames.attrs.get("data_min", 0.0))
        return float(present.std()) > LEAST_CONTRAST * abs(span)

    def batch(self, position: int) -> Batch:
        """Return what is known at a position of issue, and the targets (NaN where the archive has none)."""
        times = self.times[position] + STEPS * self.step
        values = torch.from_numpy(self._read(self._positions(times)))
        known = Known(*(part[None] for part in self._known(times, self.times[position])))
        return Batch(values[None, :INPUTS], values[None, INPUTS:], known, torch.tensor([self.minutes]))

    def _known(self, times: Times, issued: np.datetime64) -> tuple[Tensor, Tensor, Tensor]:
        unknown = torch.full((len(times), *self.shape), torch.nan)
        sine = unknown
        if self.place is not None:
            sine = torch.from_numpy(sun.sine_of_elevation(times, self.place).astype(np.float32))
        days = []
        for back in range(1, MOST_DAYS + 1):
            found = self._positions(times - back * ONE_DAY)
            found = np.where(self.times[found] <= issued, found, -1)
            if (found >= 0).any():
                days.append(torch.from_numpy(self._read(found)))
        if not days:
            return sine, unknown, unknown[0]
        return sine, *typical_of(torch.stack(days))

    def _positions(self, times: Times) -> NDArray[np.int64]:
        """Return the positions of frames at these times, -1 where there is none."""
        found = np.searchsorted(self.times, times)
        found = np.minimum(found, len(self.times) - 1)
        return np.where(self.times[found] == times, found, -1)

    def _read(self, positions: NDArray[np.int64]) -> Values:
        """Return frames (len(positions), H, W), NaN for position -1."""
        values = np.full((len(positions), *self.shape), np.nan, np.float32)
        variable = self.frames.variable
        for number, position in enumerate(positions.tolist()):
            if position >= 0:
                values[number] = np.asarray(variable[position, self.part.rows, self.part.columns].values, np.float32)
        return values
