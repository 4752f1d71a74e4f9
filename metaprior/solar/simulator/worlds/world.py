"""A world seen through a sensor, as a pure function of its seed."""

from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from metaprior.checks import check_integer
from metaprior.noise import Noise
from metaprior.solar.simulator.worlds import drawing
from metaprior.solar.simulator.worlds.clouds import optical_depths
from metaprior.solar.simulator.worlds.ground import surface, warmth
from metaprior.solar.simulator.worlds.parameters import CADENCES, KINDS, Sensor, Weather
from metaprior.solar.simulator.worlds.sensor import product, signal
from metaprior.solar.simulator.worlds.view import sight, times_of

ATTEMPTS = 20
"""Draws until a world shows clouds that change."""
LEAST_CONTRAST = 0.02
"""Spread over space, and change from the first frame to the last, as shares of the range of the product."""
LOCATED = {"reflectance": 0.6, "irradiance": 0.9, "index": 0.8, "thermal": 0.6}
"""Shares of the worlds that are not disks whose user knows coordinates, by what is measured."""
DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class World:
    """Frames of some days of one world. ``values`` and ``sine`` are (days, frames, size, size), ``times`` are UTC.

    ``sine`` is that of the sun's elevation (-1 in the space around a disk). ``latitude`` and ``longitude`` (size,) are
    in degrees, NaN for a disk; ``located`` tells whether a user would know them.
    """

    values: NDArray[np.float32]
    sine: NDArray[np.float32]
    times: NDArray[np.datetime64]
    latitude: NDArray[np.floating]
    longitude: NDArray[np.floating]
    located: bool
    weather: Weather
    sensor: Sensor
    seed: int

    @property
    def cadence(self) -> int:
        """Minutes between frames."""
        return self.weather.view.cadence

    @property
    def kind(self) -> str:
        """What is measured."""
        return self.sensor.kind

    def to_frames(self) -> xr.DataArray:
        """Return all days one after the other as ``open_frames`` returns frames: (time, y, x)."""
        coordinates: dict[str, object] = {"time": ("time", self.times.ravel(), {"standard_name": "time", "axis": "T"})}
        if self.located:
            north = {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"}
            east = {"standard_name": "longitude", "units": "degrees_east", "axis": "X"}
            coordinates |= {"latitude": ("y", self.latitude, north), "longitude": ("x", self.longitude, east)}
        about = {
            "units": self.sensor.units,
            "long_name": f"simulated {self.kind}",
            "source": f"metaprior simulated world, seed {self.seed}",
            "cadence": f"{self.cadence}min",
            "data_min": float(np.nanmin(self.values)),
            "data_max": float(np.nanmax(self.values)),
        }
        values = self.values.reshape(-1, *self.values.shape[2:])
        return xr.DataArray(values, coordinates, ("time", "y", "x"), self.kind, about)


def draw_world(
    seed: int,
    size: int = 128,
    days: int = 3,
    frames: int = 10,
    cadence: int | None = None,
    kind: str | None = None,
) -> World:
    """Return the world of this seed; worlds of other sizes, days or frames are other worlds.

    Args:
        seed: Everything is a function of it and of the other arguments.
        size: Pixels along each side.
        days: Consecutive days with the same ground, view, sensor and climate, and weather of their own.
        frames: Frames of each day; several days do not overlap.
        cadence: Minutes between frames (5, 10, 15, 20, 30 or 60), or None to draw it.
        kind: "reflectance", "irradiance", "index" or "thermal", or None to draw it.

    Returns:
        A world in which every day shows clouds that change; others are drawn again.

    Raises:
        ValueError: An argument is out of range.
        RuntimeError: No such world was found in 20 draws.
    """
    check_integer("size", size, 16)
    check_integer("days", days, 1)
    check_integer("frames", frames, 2)
    if cadence is not None and cadence not in CADENCES:
        raise ValueError(f"cadence must be {', '.join(map(str, CADENCES))} (minutes) or None, got {cadence}")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be {', '.join(KINDS)} or None, got {kind!r}")
    longest = max(CADENCES) if cadence is None else cadence
    if days > 1 and frames * longest > DAY_MINUTES:
        raise ValueError(
            f"frames must be at most {DAY_MINUTES // longest} with {longest} minutes between them, or days overlap, "
            f"got {frames}. Try a shorter cadence, or one day"
        )
    noise = Noise(seed).fork("simulated world")
    for attempt in range(ATTEMPTS):
        generator = noise.at(task=attempt).generator()
        rng = np.random.default_rng(generator.initial_seed())
        measured = kind or drawing.draw_kind(rng)
        weather = drawing.draw_weather(rng, measured, cadence, size, days, frames)
        sensor = drawing.draw_sensor(rng, measured, weather.view.disk)
        located = bool(not weather.view.disk and rng.random() < LOCATED[measured])
        world = observe(weather, sensor, size=size, frames=frames, located=located, generator=generator, seed=seed)
        if is_varied(world):
            return world
    raise RuntimeError(f"no world of seed {seed} with visible clouds in {ATTEMPTS} draws; take another seed")


def observe(
    weather: Weather,
    sensor: Sensor,
    *,
    size: int,
    frames: int,
    located: bool,
    generator: torch.Generator,
    seed: int = 0,
) -> World:
    """Return the world of this weather through this sensor.

    Args:
        weather: View, ground, layers and days.
        sensor: What is measured, and how.
        size: Pixels along each side.
        frames: Frames of each day.
        located: Whether its user would know coordinates.
        generator: Source of all fields and noise.
        seed: Number to name the world by.
    """
    times = times_of(weather.view, len(weather.days), frames)
    seen = sight(weather.view, times, size)
    ground = surface(weather, seen, generator)
    depths = optical_depths(weather, seen, frames, generator)
    warm = warmth(weather, seen, ground) if sensor.kind == "thermal" else None
    values = product(sensor, signal(sensor, weather, seen, depths, ground, warm), generator).numpy()
    return World(values, seen.sine.numpy(), times, seen.latitude, seen.longitude, located, weather, sensor, seed)


def is_varied(world: World) -> bool:
    """Return whether every day shows something that changes: contrast over space, and over time."""
    span = abs(world.sensor.gain)
    for day in world.values:
        step = max(1, day.shape[-1] // 48)
        few = day[:, ::step, ::step]
        if np.isnan(few).mean() > 0.5 or np.isnan(few[-1]).all() or np.isnan(few[0]).all():
            return False
        if np.nanstd(few) < LEAST_CONTRAST * span or np.nanmean(np.abs(np.diff(few, axis=0))) < 0.002 * span:
            return False
    return True
