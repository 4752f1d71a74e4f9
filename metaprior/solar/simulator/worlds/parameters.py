"""What is drawn of a world: its view, ground, weather and sensor (docs/solar/worlds.md has the ranges)."""

from dataclasses import dataclass

KINDS = ("reflectance", "irradiance", "index", "thermal")
CADENCES = (5, 10, 15, 20, 30, 60)
TEXTURES = ("plain", "ridged", "cellular")
NIGHTS = ("dark", "missing")


@dataclass(frozen=True)
class View:
    """The place, the pixels and the time."""

    disk: bool
    latitude: float
    longitude: float
    pixel_km: float
    cadence: int
    day_of_year: int
    start_minute: int
    north_up: bool
    off_centre: tuple[float, float]


@dataclass(frozen=True)
class Ground:
    """The surface under the clouds."""

    land: float
    scale_km: float
    sea_albedo: float
    land_albedo: float
    contrast: float
    bright: float
    temperature: float
    diurnal: float
    relief: float


@dataclass(frozen=True)
class Layer:
    """One layer of clouds: its texture, optical depth, life and mean wind."""

    texture: str
    slope: float
    outer_km: float
    stretch: float
    direction: float
    swirl: float
    cover: float
    sharpness: float
    plateau: float
    depth: float
    patchiness: float
    lifetime: float
    lifetime_power: float
    smooth_in_time: bool
    wind: tuple[float, float]
    cells: int
    cell_km: float
    cell_hours: float
    cooling: float


@dataclass(frozen=True)
class Day:
    """The weather of one day, around the climate of its world."""

    wind: tuple[float, float]
    cloudiness: float
    growth: float
    front: float
    front_angle: float
    front_place: float
    front_speed: float
    front_width: float
    turning: float
    rotation: float
    divergence: float
    shear: tuple[float, float]
    waviness: float
    jet: float


@dataclass(frozen=True)
class Weather:
    """Everything in front of the sensor."""

    view: View
    ground: Ground
    layers: tuple[Layer, ...]
    days: tuple[Day, ...]


@dataclass(frozen=True)
class Sensor:
    """What is measured, and what the product makes of it."""

    kind: str
    sun_exponent: float
    night: str
    night_sine: float
    haze: float
    limb: float
    shading: float
    blur: float
    jitter: float
    flicker: float
    gamma: float
    black: float
    white: float
    inverted: bool
    noise: float
    striping: float
    blocks: float
    overlay: float
    bits: int
    gain: float
    offset: float
    units: str
    lines: float
    holes: float
