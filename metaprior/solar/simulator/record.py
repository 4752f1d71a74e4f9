"""A record of irradiance maps, any of its states, and samples of what could have followed.

The weather at step n is a function of the seed and n alone, so a longer record only adds to a shorter one, and every
state can be computed again: one state per day is kept (0.4 MB for 96 x 96 pixels), and the others are computed from
the one before.
"""

import math
import re
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from numpy.typing import NDArray

from metaprior.checks import check_integer
from metaprior.noise import Noise
from metaprior.progress import progress_bar
from metaprior.solar.simulator.region import RESOLUTION, Region, draw_maps
from metaprior.solar.simulator.weather import Clock, Dynamics, Innovations, State, clear_sky_index, draw
from metaprior.solar.sun import clear_sky, elevation
from metaprior.solar.value_units import IRRADIANCE

Floats = NDArray[np.float64]

MARGIN = 64
"""Least number of pixels of the torus that are not shown. What leaves on one side of the map takes hours to cross them
and is mostly decorrelated when it enters on the other."""

CONTINUATIONS_AT_ONCE = 16
"""Continuations that ``futures`` computes together, which takes about 30 MB for 96 x 96 pixels."""

DAY = pd.Timedelta("1D")
ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d([T ]00:00(:00)?)?")
YEAR_DAYS = 365.25
MIDWINTER_DAY = 355


class Simulator:
    """The weather of a region over some days, with the true distribution of its futures.

    Args:
        days: Length of the record.
        size: Pixels along each side of the map, of 0.05 degrees of latitude (5.6 km).
        seed: Seed of the region's maps and of its weather.
        start: First day, in UTC: YYYY-MM-DD, with or without T00:00.
        cadence: Time between frames, which divides a day.
        region: Character of the region.
        daylight_only: Whether to leave out frames in which the sun is below the horizon on the whole map.

    ``times`` are those of the frames (T,), ``latitude`` (size,) and ``longitude`` (size,) are in degrees.
    """

    def __init__(
        self,
        *,
        days: int = 60,
        size: int = 96,
        seed: int = 0,
        start: str = "2025-03-01",
        cadence: str = "30min",
        region: Region | None = None,
        daylight_only: bool = True,
    ) -> None:
        check_integer("days", days, 1)
        check_integer("size", size, 4)
        self.region = region or Region()
        self.days, self.size, self.seed, self.cadence = days, size, seed, cadence
        self._start, self._interval = _start_of(start), _interval_of(cadence)
        self.steps_per_day = int(DAY / self._interval)
        self.torus = math.ceil((size + MARGIN) / 16) * 16  # Fourier transforms of multiples of 16 are fast
        offset = np.arange(size, dtype=np.float64) - (size - 1) / 2
        self.latitude: Floats = self.region.latitude + RESOLUTION * offset
        per_pixel = RESOLUTION / math.cos(math.radians(self.region.latitude))  # pixels are square in the middle
        self.longitude: Floats = self.region.longitude + per_pixel * offset
        noise = Noise(seed)
        self._weather = noise.fork("simulated weather")
        self.maps = draw_maps(self.region, self.torus, noise.fork("simulated region"))
        self._dynamics = Dynamics(self.region, self.maps, self._interval / pd.Timedelta("1h"))
        self._latest = self._dynamics.first(draw(self._weather.at(step=0), self.torus, range(1)))
        self._midnights = {0: self._latest}
        self._steps = np.arange(days * self.steps_per_day)  # of the frames
        if daylight_only:  # where the sun is up at a corner, at the middle of an edge or in the middle of the map
            some = [0, size // 2, -1]
            heights = elevation(self._times(self._steps), self.latitude[some], self.longitude[some])
            self._steps = self._steps[(heights > 0).any((1, 2))]
        self.times = self._times(self._steps)

    def frames(self, *, progress: bool = True) -> xr.DataArray:
        """Return the record: global horizontal irradiance in W/m2, (time, y, x), as ``open_frames`` returns frames."""
        values = np.empty((len(self._steps), self.size, self.size), np.float32)
        # Day by day, because the clear sky of a whole record would take several times its memory.
        edges = np.searchsorted(self._steps, np.arange(self.days + 1) * self.steps_per_day)
        with progress_bar("simulating", len(values), unit="frames", show=progress) as bar:
            for first, after in pairwise(edges.tolist()):
                for index, ceiling in enumerate(self._clear_sky(self._steps[first:after]), start=first):
                    values[index] = self.clear_sky_index(self.state_at(index))[0] * ceiling
                    bar.update()
        coordinates = {
            "time": ("time", self.times, {"standard_name": "time", "axis": "T"}),
            "latitude": ("y", self.latitude, {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"}),
            "longitude": ("x", self.longitude, {"standard_name": "longitude", "units": "degrees_east", "axis": "X"}),
        }
        about = {
            "units": IRRADIANCE,
            "long_name": "simulated global horizontal irradiance",
            "standard_name": "surface_downwelling_shortwave_flux_in_air",
            "source": f"metaprior simulator, seed {self.seed}",
            "cadence": self.cadence,
            "data_min": float(values.min()),
            "data_max": float(values.max()),
        }
        return xr.DataArray(values, coordinates, ("time", "y", "x"), "ghi", about)

    def state_at(self, time_index: int) -> State:
        """Return the state of the weather in the frame with this index."""
        if not 0 <= time_index < len(self._steps):
            raise IndexError(f"time_index must be 0 to {len(self._steps) - 1}, got {time_index}")
        return self._state(int(self._steps[time_index]))

    def index_of(self, time: np.datetime64) -> int:
        """Return the index of the frame at this time."""
        (found,) = np.nonzero(self.times == time)
        if not len(found):
            raise ValueError(
                f"there is no frame at {time}; frames are every {self.cadence} from {self.times[0]} to "
                f"{self.times[-1]}, with the nights left out if daylight_only"
            )
        return int(found[0])

    def innovations(self, step: int) -> Innovations:
        """Return the noise with which the record went from this step to the next."""
        return draw(self._weather.at(step=step + 1), self.torus, range(1))

    def advance(self, state: State, innovations: Innovations) -> State:
        """Return the state one step later."""
        return self._dynamics.advance(state, self._clock(state.step).season, innovations)

    def clear_sky_index(self, state: State) -> NDArray[np.float32]:
        """Return irradiance over that of a clear sky, in (0, 1], also by night: (C, size, size)."""
        return np.asarray(clear_sky_index(state, self.region, self.maps, self._clock(state.step), self.size))

    def futures(
        self, time_index: int, *, continuations: int = 100, steps: int = 4, seed: int = 0
    ) -> NDArray[np.float32]:
        """Draw samples of the true distribution of what follows a frame, given the full state of the weather in it.

        Returns irradiance in W/m2, (continuations, steps, size, size), at the next ``steps`` times of the cadence,
        whether or not the record has frames there. The record itself is one more such sample. A continuation depends
        on the seed, the frame and its own number, not on the number of continuations.
        """
        check_integer("continuations", continuations, 1)
        check_integer("steps", steps, 1)
        state = self.state_at(time_index)
        noise = Noise(seed).fork("simulated futures").at(task=state.step)
        ceiling = self._clear_sky(state.step + 1 + np.arange(steps))
        values = np.empty((continuations, steps, self.size, self.size), np.float32)
        for first in range(0, continuations, CONTINUATIONS_AT_ONCE):
            samples = range(first, min(first + CONTINUATIONS_AT_ONCE, continuations))
            octaves = state.octaves.expand(len(samples), *state.octaves.shape[1:])
            later = State(state.step, octaves, state.regime.expand(len(samples), -1))
            for number in range(steps):
                later = self.advance(later, draw(noise.at(step=later.step), self.torus, samples))
                values[samples.start : samples.stop, number] = self.clear_sky_index(later) * ceiling[number]
        return values

    def _state(self, step: int) -> State:
        """Return the state of a step, computed from the latest kept state before it; states of midnights are kept."""
        kept = (self._latest, *self._midnights.values())
        state = max((one for one in kept if one.step <= step), key=lambda one: one.step)
        while state.step < step:
            state = self.advance(state, self.innovations(state.step))
            if state.step % self.steps_per_day == 0:
                self._midnights[state.step] = state
        self._latest = state
        return state

    def _clock(self, step: int) -> Clock:
        """Return local mean solar hour and season in the middle of the region; in the south seasons are reversed."""
        time = self._start + step * self._interval
        hour = (time.hour + time.minute / 60 + time.second / 3600 + self.region.longitude / 15) % 24
        phase = 2 * math.pi * (time.day_of_year - MIDWINTER_DAY) / YEAR_DAYS
        return Clock(hour, math.cos(phase) * (1 if self.region.latitude >= 0 else -1))

    def _times(self, steps: NDArray[np.int64]) -> NDArray[np.datetime64]:
        times: NDArray[np.datetime64] = self._start.to_datetime64() + steps * self._interval.to_timedelta64()
        return times.astype("datetime64[ns]")

    def _clear_sky(self, steps: NDArray[np.int64]) -> Floats:
        return clear_sky(self._times(steps), self.latitude, self.longitude)


def simulate(*, progress: bool = True, **settings: Any) -> xr.DataArray:
    """Return ``Simulator(**settings).frames()``: irradiance in W/m2, (time, y, x), float32."""
    return Simulator(**settings).frames(progress=progress)


def _start_of(start: str) -> pd.Timestamp:
    """Return midnight of the day. Only ISO dates are accepted: 1.3.2025 is in March to some, in January to others."""
    try:
        if not ISO_DAY.fullmatch(start):
            raise ValueError("another spelling")
        return pd.Timestamp(date.fromisoformat(start[:10]))
    except ValueError:
        raise ValueError(
            f"start must be a day of the calendar in UTC, written YYYY-MM-DD as in 2025-03-01, got {start!r}"
        ) from None


def _interval_of(cadence: str) -> pd.Timedelta:
    try:
        interval = pd.Timedelta(cadence)
    except ValueError as problem:
        raise ValueError(f"cadence must be a time such as 30min, got {cadence!r}") from problem
    if not (interval > pd.Timedelta(0) and DAY % interval == pd.Timedelta(0)):
        raise ValueError(f"cadence must divide a day, such as 15min or 1h, got {cadence!r}")
    return interval
