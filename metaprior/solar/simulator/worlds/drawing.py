"""Draw the parameters of a world (docs/solar/worlds.md has their ranges and reasons)."""

import math

import numpy as np
from numpy.random import Generator

from metaprior.solar.simulator.worlds.parameters import (
    CADENCES,
    KINDS,
    TEXTURES,
    Day,
    Ground,
    Layer,
    Sensor,
    View,
    Weather,
)

KIND_SHARES = (0.5, 0.25, 0.1, 0.15)
"""Shares of the worlds by what is measured, in the order of KINDS."""
DISK_SHARE = 0.15
"""Share of the worlds that are whole disks; 1.2 times as many of reflectance and thermal, 0.6 of others."""
LOW_SUN_SHARE = 0.25
"""Share of the windows with a low sun in them."""


def log_uniform(rng: Generator, low: float, high: float) -> float:
    """Return a number whose logarithm is uniform."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def sometimes(rng: Generator, share: float, low: float, high: float) -> float:
    """Return a uniform number in this share of the draws, otherwise 0."""
    return float(rng.uniform(low, high)) if rng.random() < share else 0.0


def draw_kind(rng: Generator) -> str:
    """Return what the product measures."""
    return str(rng.choice(KINDS, p=KIND_SHARES))


def draw_weather(rng: Generator, kind: str, cadence: int | None, size: int, days: int, frames: int) -> Weather:
    """Return everything in front of the sensor.

    Args:
        rng: Source of all draws.
        kind: What is measured; disks are mostly reflectance and thermal.
        cadence: Minutes between frames, or None to draw it.
        size: Pixels of the map.
        days: Days to draw.
        frames: Frames of a day.
    """
    minutes = int(rng.choice(CADENCES)) if cadence is None else cadence
    disk = bool(rng.random() < DISK_SHARE * (1.2 if kind in ("reflectance", "thermal") else 0.6))
    if disk:
        minutes = minutes if cadence is not None else int(rng.choice(CADENCES[1:]))
    pixel_km, wind = _pixel_and_wind(rng, minutes, disk, size)
    view = _view(rng, kind, disk, pixel_km, minutes, size, frames)
    count = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
    layers = tuple(_layer(rng, number, count, pixel_km, wind, disk, size) for number in range(count))
    speed = math.hypot(*wind)
    scale = minutes * 60 / (pixel_km * 1000) / size  # of the map crossed in a frame at 1 m/s
    ground = _ground(rng, pixel_km, size)
    return Weather(view, ground, layers, tuple(_day(rng, speed, scale, minutes) for _ in range(days)))


def _pixel_and_wind(rng: Generator, minutes: int, disk: bool, size: int) -> tuple[float, tuple[float, float]]:
    """Return kilometres of a pixel and the wind, such that clouds mostly move by 0.05 to 4 pixels a frame."""
    angle = rng.uniform(0, 2 * math.pi)
    largest = 9500 / size if not disk else 12800 / size
    for _ in range(200):
        speed = min(float(rng.weibull(1.6)) * 11.0, 35.0)
        if disk:
            pixel_km = log_uniform(rng, min(20.0, 0.2 * largest), 1.02 * largest)
        else:
            pixel_km = log_uniform(rng, 0.5, min(40.0, largest))
        moved = speed * minutes * 0.06 / pixel_km
        chance = 1.0 if 0.05 <= moved <= 3.0 else 0.4 if 3.0 < moved <= 6.0 else 0.3 if moved < 0.05 else 0.0
        if rng.random() < chance:
            break
    return pixel_km, (speed * math.cos(angle), speed * math.sin(angle))


def _view(rng: Generator, kind: str, disk: bool, pixel_km: float, minutes: int, size: int, frames: int) -> View:
    span = pixel_km * size / 111.2
    limit = max(0.0, min(60.0, 78.0 - span / 2))
    latitude = 0.0 if disk else float(rng.uniform(-limit, limit))
    longitude = float(rng.uniform(-180, 180))
    day = int(rng.integers(1, 366))
    start = _start(rng, kind, latitude, longitude, day, minutes, frames)
    radius = 5428 / pixel_km / size
    room = max(0.0, radius - 0.35) if disk else 0.0
    off = (float(rng.uniform(-room, room)), float(rng.uniform(-room, room))) if disk else (0.0, 0.0)
    return View(disk, latitude, longitude, pixel_km, minutes, day, start, bool(disk or rng.random() < 0.7), off)


def _start(rng: Generator, kind: str, latitude: float, longitude: float, day: int, minutes: int, frames: int) -> int:
    """Return the minute (UTC) of the first frame: in daylight, or (a quarter of draws) with a low sun in the window."""
    marks = np.arange(0, 1440, minutes if rng.random() < 0.7 else 5)
    window = minutes * np.arange(frames)
    hour_angle = np.radians((marks[:, None] + window) / 4 + longitude - 180)
    declination = math.radians(-23.44) * math.cos(2 * math.pi * (day + 10) / 365.25)
    phi = math.radians(latitude)
    sine = math.sin(phi) * math.sin(declination) + math.cos(phi) * math.cos(declination) * np.cos(hour_angle)
    least, most = sine.min(1), sine.max(1)
    if kind == "thermal" and rng.random() < 0.5:
        fits = np.ones(len(marks), dtype=bool)
    elif rng.random() < LOW_SUN_SHARE:
        fits = (least < 0.15) & (most > 0.1)
    else:
        fits = least > 0.2
    if not fits.any():
        fits = least >= np.quantile(least, 0.9)
    return int(rng.choice(marks[fits]))


def _ground(rng: Generator, pixel_km: float, size: int) -> Ground:
    return Ground(
        land=float(rng.choice([0.02, 0.3, 0.55, 0.8, 0.98], p=[0.2, 0.15, 0.2, 0.2, 0.25])),
        scale_km=pixel_km * size * log_uniform(rng, 0.1, 1.0),
        sea_albedo=float(rng.uniform(0.02, 0.08)),
        land_albedo=log_uniform(rng, 0.08, 0.35),
        contrast=float(rng.uniform(0.05, 0.45)),
        bright=sometimes(rng, 0.25, 0.35, 0.8),
        temperature=float(rng.uniform(268, 303)),
        diurnal=float(rng.uniform(2, 35)),
        relief=float(rng.uniform(0, 10)),
    )


def _layer(
    rng: Generator, number: int, count: int, pixel_km: float, wind: tuple[float, float], disk: bool, size: int
) -> Layer:
    """Return a layer; the first is the lowest, and the wind of those above it is stronger and turned."""
    high = number / 2
    turn, factor = (0.0, 1.0) if number == 0 else (rng.normal(0, 0.6), rng.uniform(0.6, 1.9))
    still = count > 1 and number == 0 and rng.random() < 0.15
    east, north = wind
    moved = (factor * (east * math.cos(turn) - north * math.sin(turn)),
             factor * (east * math.sin(turn) + north * math.cos(turn)))  # fmt: skip
    thin = number > 0
    lowest = 2.2 + 0.7 * thin
    return Layer(
        texture=str(rng.choice(TEXTURES, p=[0.6, 0.2, 0.2])),
        slope=float(rng.uniform(lowest, 4.2)),
        outer_km=pixel_km * size * log_uniform(rng, 0.08, 1.2),
        stretch=float(rng.choice([1.0, rng.uniform(1.05, 1.35), rng.uniform(1.35, 2.0)], p=[0.4, 0.45, 0.15])),
        direction=float(rng.uniform(0, math.pi)),
        swirl=float(rng.uniform(0, 0.25)) * float(rng.random() < 0.8),
        cover=float(np.clip(rng.beta(0.9, 0.9), 0.04, 0.96) * (0.7 if thin else 1.0)),
        sharpness=log_uniform(rng, 1.5, 15.0) * (0.5 if thin else 1.0),
        plateau=float(rng.uniform(0, 0.8)),
        depth=log_uniform(rng, 4.0, 40.0) * (0.4 if thin else 1.0),
        patchiness=sometimes(rng, 0.5, 0.2, 0.9),
        lifetime=log_uniform(rng, 0.3, 10.0),
        lifetime_power=float(rng.uniform(0.5, 1.0)),
        smooth_in_time=bool(rng.random() < 0.6),
        wind=(0.0, 0.0) if still else (float(moved[0]), float(moved[1])),
        cells=int(rng.integers(5, 60)) if not disk and rng.random() < 0.25 else 0,
        cell_km=max(log_uniform(rng, 3.0, 60.0), 1.2 * pixel_km),
        cell_hours=log_uniform(rng, 0.5, 6.0),
        cooling=float(rng.uniform(3, 25) + high * rng.uniform(30, 60)),
    )


def _day(rng: Generator, speed: float, scale: float, minutes: int) -> Day:
    spread = 1.0 + 0.3 * speed
    rough = rng.uniform(0, 1) ** 2
    return Day(
        wind=(float(rng.normal(0, spread)), float(rng.normal(0, spread))),
        cloudiness=float(rng.normal(0, 0.5)),
        growth=float(rng.normal(0, 0.4)),
        front=float(rng.normal(0, 1.0)) if rng.random() < 0.3 else 0.0,
        front_angle=float(rng.uniform(0, 2 * math.pi)),
        front_place=float(rng.uniform(-0.4, 0.4)),
        front_speed=float(rng.normal(0, 1) * (speed + 2) * scale * 60 / minutes),
        front_width=log_uniform(rng, 0.02, 0.4),
        turning=float(rng.normal(0, 0.3)),
        rotation=float(rng.normal(0, 0.8 * rough)),
        divergence=float(rng.normal(0, 0.25 * rough)),
        shear=(float(rng.normal(0, 0.5 * rough)), float(rng.normal(0, 0.5 * rough))),
        waviness=float(rng.uniform(0, 0.6)) * float(rng.random() < 0.8),
        jet=sometimes(rng, 0.2, -1.2, 1.2),
    )


def draw_sensor(rng: Generator, kind: str, disk: bool) -> Sensor:
    """Return a sensor of this kind."""
    picture = rng.random() < {"reflectance": 0.6, "irradiance": 0.15, "index": 0.15, "thermal": 0.5}[kind]
    raw = not picture and kind != "reflectance"
    units, gain, offset = _units(rng, kind, bool(picture))
    black = float(rng.uniform(0, 0.06)) if picture else 0.0
    white = float(rng.uniform(0.6, 1.05)) if picture else 1.3 if kind == "reflectance" else 1.1
    night_sine = float(rng.uniform(0.0, 0.2))
    return Sensor(
        kind=kind,
        sun_exponent=0.0 if kind != "reflectance" or rng.random() < 0.3 else float(rng.uniform(0.5, 1.2)),
        night=str(rng.choice(["dark", "missing"], p=[0.6, 0.4] if kind != "reflectance" else [0.85, 0.15])),
        night_sine=night_sine if kind != "irradiance" else 0.5 * night_sine,
        haze=float(rng.uniform(0, 0.08)),
        limb=sometimes(rng, 0.6, 0.05, 0.4) if disk and kind == "reflectance" else 0.0,
        shading=sometimes(rng, 0.4, 0.2, 1.0) if kind == "reflectance" else 0.0,
        blur=float(rng.uniform(0.35, 0.6)) if rng.random() < 0.7 else float(rng.uniform(0.6, 1.2)),
        jitter=_jitter(rng),
        flicker=sometimes(rng, 0.06, 0.005, 0.04),
        gamma=1.0 if raw or rng.random() < 0.25 else log_uniform(rng, 0.4, 2.2),
        black=black,
        white=white,
        inverted=bool(rng.random() < (0.5 if kind == "thermal" else 0.06 if kind == "reflectance" else 0.0)),
        noise=log_uniform(rng, 0.001, 0.03) if rng.random() < 0.6 else 0.0,
        striping=log_uniform(rng, 0.001, 0.01) if rng.random() < 0.12 else 0.0,
        blocks=sometimes(rng, 0.06, 0.1, 0.45),
        overlay=sometimes(rng, 0.08, 0.5, 1.0),
        bits=8 if rng.random() < (0.6 if picture else 0.15) else 10 if rng.random() < 0.15 else 0,
        gain=gain,
        offset=offset,
        units=units,
        lines=sometimes(rng, 0.05, 0.002, 0.03),
        holes=sometimes(rng, 0.04, 0.02, 0.2),
    )


def _jitter(rng: Generator) -> float:
    """Return the shift of frames in pixels: small in most products that have one, rarely large."""
    if rng.random() < 0.4:
        return log_uniform(rng, 0.05, 0.5)
    return log_uniform(rng, 0.5, 1.0) if rng.random() < 0.04 else 0.0


def _units(rng: Generator, kind: str, picture: bool) -> tuple[str, float, float]:
    """Return units, and the values of signal 0 and of the range up to signal 1."""
    if picture:
        return ("count", 255.0, 0.0) if rng.random() < 0.8 else ("1", 1.0, 0.0)
    if kind == "irradiance":
        return "W m-2", 1.1 * 1100.0, 0.0
    if kind == "index":
        return ("1", 1.1, 0.0) if rng.random() < 0.7 else ("percent", 110.0, 0.0)
    if kind == "thermal":
        return "K", 1.1 * 130.0, 190.0
    counts = log_uniform(rng, 100, 30000), rng.uniform(-100, 100)
    return [("1", 1.3, 0.0), ("percent", 130.0, 0.0), ("count", 1023.0, 0.0), ("count", *counts)][int(rng.integers(4))]
