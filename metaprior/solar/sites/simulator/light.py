r"""The sun over many places, and its light on the panels of many plants.

All arrays that are not said to be (plants, T) are one-dimensional: the daylight steps of all plants, one plant after
the other. Decomposition, transposition, trackers, cells and inverters are pvlib's.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pvlib import atmosphere, clearsky, irradiance, shading, tracking  # type: ignore[import-untyped]

from metaprior.solar.sites.simulator.parameters import HORIZON_DIRECTIONS, PlantParameters
from metaprior.solar.sites.simulator.processes import Singles
from metaprior.solar.sun import direction

LOWEST = 0.5
"""Degrees of elevation below which a plant produces nothing."""

BEAM_EDGE = 1.5
"""Degrees over which a shadow's edge passes the panels."""

REFLECTION = 0.05
"""Of glass (ASHRAE)."""


@dataclass(frozen=True)
class Sun:
    """Where the sun is: east, north and up are the unit vector to it, (plants, T)."""

    east: Singles
    north: Singles
    up: Singles
    extraterrestrial: Singles  # normal irradiance in W/m2, (plants, T)

    @property
    def elevation(self) -> Singles:
        """Degrees above the horizon, without refraction, (plants, T)."""
        return np.degrees(np.arcsin(np.clip(self.up, -1, 1)))


@lru_cache(maxsize=4)
def _directions(first: np.datetime64, step: float, count: int) -> tuple[NDArray[np.float64], Singles]:
    """Return directions of the sun (count, 3) in the middles of steps, and extraterrestrial irradiance (count,)."""
    times = first + ((np.arange(count) + 0.5) * step * 1000).astype("timedelta64[ms]")
    day_of_year = (times - times.astype("datetime64[Y]").astype("datetime64[ms]")) / np.timedelta64(1, "D") + 1
    return direction(times), irradiance.get_extra_radiation(day_of_year, method="spencer").astype(np.float32)


def sun_of(start: NDArray[np.datetime64], step: float, count: int, latitude: Any, longitude: Any) -> Sun:
    """Return the sun in the middles of ``count`` steps of ``step`` seconds from each plant's ``start`` on.

    The direction of the sun is computed once for each time (``metaprior.solar.sun``) and turned to every place.
    """
    phi, lambda_ = np.radians(np.asarray(latitude))[:, None], np.radians(np.asarray(longitude))[:, None]
    offsets = np.rint((start - start.min()) / np.timedelta64(1000, "ms") / step).astype(np.int64)
    toward, extra = _directions(start.min(), step, int(offsets.max()) + count)
    steps = offsets[:, None] + np.arange(count)
    x, y, z = np.moveaxis(toward.astype(np.float32)[steps], 2, 0)
    sine, cosine = np.sin(lambda_).astype(np.float32), np.cos(lambda_).astype(np.float32)
    out = x * cosine + y * sine
    up, over = np.sin(phi).astype(np.float32), np.cos(phi).astype(np.float32)
    return Sun(y * cosine - x * sine, z * over - out * up, out * over + z * up, extra[steps])


@dataclass(frozen=True)
class Daylight:
    """The daylight steps of many plants."""

    lit: NDArray[np.bool_]  # (plants, T)
    plant: NDArray[np.int32]  # row of each daylight step
    east: Singles
    north: Singles
    up: Singles
    zenith: Singles  # degrees
    azimuth: Singles  # degrees clockwise from north
    extraterrestrial: Singles
    clear: Singles  # global horizontal irradiance under a cloudless sky, W/m2


def daylight_of(sun: Sun, turbidity: Singles, altitude: NDArray[np.float64]) -> Daylight:
    """Return the daylight steps, with clear-sky irradiance of Ineichen and Perez.

    ``turbidity`` is that of Linke (plants, T), ``altitude`` is in metres (plants,).
    """
    lit = sun.up > np.sin(np.radians(LOWEST))
    plant = np.repeat(np.arange(len(lit), dtype=np.int32), lit.sum(axis=1))
    east, north, up = sun.east[lit], sun.north[lit], sun.up[lit]
    zenith = np.degrees(np.arccos(np.minimum(up, 1)))
    azimuth = np.degrees(np.arctan2(east, north)) % 360
    extra = sun.extraterrestrial[lit]
    height = np.asarray(altitude, np.float32)
    pressure = np.asarray(atmosphere.alt2pres(height), np.float32)
    airmass = atmosphere.get_relative_airmass(zenith, "kastenyoung1989") * (pressure / 101325)[plant]
    sky = clearsky.ineichen(zenith, airmass, turbidity[lit], height[plant], extra)
    return Daylight(lit, plant, east, north, up, zenith, azimuth, extra, np.asarray(sky["ghi"], np.float32))


def light_on_panels(
    plants: list[PlantParameters], day: Daylight, ghi: Singles, leaves: Singles
) -> tuple[Singles, Singles]:
    """Return effective and total irradiance of the panels in W/m2, means over the strings of each plant.

    Args:
        plants: The plants.
        day: Their daylight steps.
        ghi: Global horizontal irradiance in W/m2.
        leaves: Share of the leaves that trees have, 0 (winter) to 1.

    Returns:
        The irradiance that reaches the cells, and that which heats the panels.
    """
    parts = irradiance.erbs_driesse(ghi, day.zenith, dni_extra=day.extraterrestrial)
    direct, diffuse = np.asarray(parts["dni"], np.float32), np.asarray(parts["dhi"], np.float32)
    seen = _unshaded(plants, day, leaves)
    open_sky = np.array([np.mean(np.cos(np.radians(plant.horizon)) ** 2) for plant in plants], np.float32)[day.plant]
    albedo = np.array([plant.climate.albedo for plant in plants], np.float32)[day.plant]
    effective, total = np.zeros_like(ghi), np.zeros_like(ghi)
    for string in range(max(len(plant.share) for plant in plants)):
        share = np.array([(*plant.share, 0, 0, 0)[string] for plant in plants], np.float32)[day.plant]
        mine = np.flatnonzero(share)
        tilt, azimuth = _surface(plants, day, mine, string)
        cosine_tilt, sine_tilt = np.cos(np.radians(tilt)), np.sin(np.radians(tilt))
        turn = np.radians(azimuth)
        facing = sine_tilt * (np.sin(turn) * day.east[mine] + np.cos(turn) * day.north[mine])
        facing = np.maximum(facing + cosine_tilt * day.up[mine], 0)
        rows = _row_light(plants, day, mine, tilt, azimuth)
        beam = direct[mine] * facing * seen[mine] * rows
        ratio = facing / np.maximum(day.up[mine], 0.01745)
        sky = irradiance.haydavies(
            tilt,
            azimuth,
            diffuse[mine],
            direct[mine] * seen[mine],
            day.extraterrestrial[mine],
            projection_ratio=ratio,
        )
        sky *= open_sky[mine]
        ground = ghi[mine] * albedo[mine] * (1 - cosine_tilt) / 2
        passed = 1 - REFLECTION * (1 / np.maximum(facing, 0.05) - 1)
        effective[mine] += share[mine] * (beam * np.maximum(passed, 0) + 0.95 * (sky + ground))
        total[mine] += share[mine] * (beam + sky + ground)
    return effective, total


def _surface(
    plants: list[PlantParameters], day: Daylight, mine: NDArray[np.intp], string: int
) -> tuple[Singles, Singles]:
    """Return tilt and azimuth of one string of each plant at the steps ``mine``, in degrees."""
    row = day.plant[mine]
    tilt = np.array([(*plant.tilt, 0, 0, 0)[string] for plant in plants], np.float32)[row]
    azimuth = np.array([(*plant.azimuth, 0, 0, 0)[string] for plant in plants], np.float32)[row]
    turning = np.array([plant.kind == "tracking" for plant in plants])[row]
    if turning.any():
        at, axis = mine[turning], azimuth[turning]
        limit = np.array([plant.max_angle for plant in plants], np.float32)[row[turning]]
        cover = np.array([plant.ground_cover for plant in plants], np.float32)[row[turning]]
        turned = tracking.singleaxis(
            day.zenith[at], day.azimuth[at], 0, axis, (-limit, limit), backtrack=True, gcr=np.maximum(cover, 0.05)
        )
        tilt[turning], azimuth[turning] = turned["surface_tilt"], turned["surface_azimuth"]
    return tilt, azimuth


def _row_light(
    plants: list[PlantParameters], day: Daylight, mine: NDArray[np.intp], tilt: Singles, azimuth: Singles
) -> Singles:
    """Return the share of the beam that rows of fixed panels leave to each other; trackers turn out of the shade."""
    lit = np.ones(len(mine), np.float32)
    cover = np.array([0 if plant.kind == "tracking" else plant.ground_cover for plant in plants], np.float32)
    low = np.flatnonzero((cover[day.plant[mine]] > 0) & (day.up[mine] < 0.65) & (tilt > 1))
    if low.size:
        at = mine[low]
        # Rows that face azimuth a are trackers with the axis at a - 90 that stay at the rotation of their tilt.
        shaded = shading.shaded_fraction1d(
            day.zenith[at],
            day.azimuth[at],
            azimuth[low] - 90,
            tilt[low],
            collector_width=1.0,
            pitch=1 / cover[day.plant[at]],
        )
        in_front = np.cos(np.radians(day.azimuth[at] - azimuth[low])) > 0
        lit[low] = np.where(in_front, 1 - shaded, 1)
    return lit


def _unshaded(plants: list[PlantParameters], day: Daylight, leaves: Singles) -> Singles:
    """Return the share of the beam that passes horizon and trees."""
    heights = np.array([plant.horizon for plant in plants], np.float32)
    position = day.azimuth * np.float32(HORIZON_DIRECTIONS / 360)
    before = np.floor(position).astype(np.int32) % HORIZON_DIRECTIONS
    after = (before + 1) % HORIZON_DIRECTIONS
    part = position - np.floor(position)
    horizon = heights[day.plant, before] * (1 - part) + heights[day.plant, after] * part
    elevation = 90 - day.zenith
    seen = _edge(elevation - horizon)
    tall = np.array([plant.tree_height for plant in plants], np.float32)[day.plant]
    near = np.flatnonzero((tall > 0) & (elevation < tall + 3 * BEAM_EDGE))
    if near.size:
        row = day.plant[near]
        columns = np.array(
            [(plant.tree_azimuth, plant.tree_width, plant.tree_opacity, plant.tree_foliage) for plant in plants],
            np.float32,
        )[row]
        aside = np.abs((day.azimuth[near] - columns[:, 0] + 180) % 360 - 180)
        covered = _edge(tall[near] - elevation[near]) * _edge(columns[:, 1] / 2 - aside)
        seen[near] *= 1 - covered * columns[:, 2] * (1 - columns[:, 3] * (1 - leaves[near]))
    return seen


def _edge(above: Singles) -> Singles:
    """Return 0 well below an edge and 1 well above it."""
    return np.asarray(np.clip(0.5 + above / (2 * BEAM_EDGE), 0, 1), np.float32)
