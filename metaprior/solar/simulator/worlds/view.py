"""Where pixels are on the Earth, how high the sun stands there, and how clouds are foreshortened."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaprior.solar.simulator.worlds.parameters import View
from metaprior.solar.sun import Place, direction, sine_of_elevation

EARTH_KM = 6371.0
ORBIT_KM = 42164.0
DEGREE_KM = 111.195
YEAR = np.datetime64("2023-01-01T00:00", "ns")
"""All worlds are in one year, at multiples of 5 minutes."""


@dataclass(frozen=True)
class Sight:
    """What the geometry gives: coordinates (size,) (NaN for a disk), sine of the sun's elevation (D, T, size, size),
    place in the clouds in pixels from the middle, cosine of the viewing angle (0 in space) and latitude, (size, size).
    """

    latitude: NDArray[np.floating]
    longitude: NDArray[np.floating]
    sine: Tensor
    y: Tensor
    x: Tensor
    slant: Tensor
    parallel: Tensor


def times_of(view: View, days: int, frames: int) -> NDArray[np.datetime64]:
    """Return the times of the frames (days, frames), in UTC."""
    midnights = 1440 * (view.day_of_year - 1 + np.arange(days)[:, None])
    minutes = view.start_minute + view.cadence * np.arange(frames) + midnights
    return YEAR + minutes.astype("timedelta64[m]").astype("timedelta64[ns]")


def sight(view: View, times: NDArray[np.datetime64], size: int) -> Sight:
    """Return the geometry of a view at these times (D, T)."""
    if view.disk:
        return _disk(view, times, size)
    latitude, longitude = coordinates(view, size)
    sine = sine_of_elevation(times.ravel(), Place.of(latitude, longitude)).astype(np.float32)
    offset = torch.arange(size) - (size - 1) / 2
    y, x = torch.meshgrid(offset, offset, indexing="ij")
    parallel = torch.tensor(latitude, dtype=torch.float32)[:, None].expand(size, size)
    shape = (*times.shape, size, size)
    return Sight(latitude, longitude, torch.from_numpy(sine).reshape(shape), y, x, torch.ones(size, size), parallel)


def coordinates(view: View, size: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return latitudes of rows and longitudes of columns; pixels are square in the middle."""
    offset = np.arange(size) - (size - 1) / 2
    step = view.pixel_km / DEGREE_KM
    latitude = view.latitude + (-step if view.north_up else step) * offset
    return latitude, view.longitude + step / math.cos(math.radians(view.latitude)) * offset


def _disk(view: View, times: NDArray[np.datetime64], size: int) -> Sight:
    """Return the geometry of the Earth as a geostationary satellite sees it."""
    offset = torch.arange(size) - (size - 1) / 2
    down, right = torch.meshgrid(offset + view.off_centre[0] * size, offset + view.off_centre[1] * size, indexing="ij")
    per_pixel = view.pixel_km / (ORBIT_KM - EARTH_KM)
    radius = torch.hypot(down, right).clamp_min(1e-3)
    scan = per_pixel * radius
    slant_angle = torch.asin((ORBIT_KM / EARTH_KM * scan.sin()).clamp(max=1.0))
    on_earth = (ORBIT_KM / EARTH_KM * scan.sin()) < 1
    arc = slant_angle - scan  # from the point below the satellite
    stretch = arc * EARTH_KM / view.pixel_km / radius
    north, east, towards = -torch.sin(arc) * down / radius, torch.sin(arc) * right / radius, torch.cos(arc)
    turn = math.radians(view.longitude)
    normal = torch.stack([towards * math.cos(turn) - east * math.sin(turn),
                          towards * math.sin(turn) + east * math.cos(turn), north])  # fmt: skip
    sun = torch.tensor(direction(times.ravel()), dtype=torch.float32)
    sine = torch.einsum("tc,cyx->tyx", sun, normal)
    sine = torch.where(on_earth, sine, -1.0).reshape(*times.shape, size, size)
    slant = torch.where(on_earth, slant_angle.cos(), 0.0)
    unknown = np.full(size, np.nan)
    middle = [view.off_centre[0] * size, view.off_centre[1] * size]
    y, x = down * stretch - middle[0], right * stretch - middle[1]
    return Sight(unknown, unknown, sine, y, x, slant, torch.rad2deg(torch.asin(north.clamp(-1, 1))))
