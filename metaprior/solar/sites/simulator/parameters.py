"""The true parameters of a simulated plant, and how they are drawn."""

from dataclasses import dataclass

import numpy as np

from metaprior.solar.sites.simulator.climates import Climate, draw_climate

KINDS = {"ground": 0.27, "roof": 0.3, "flat": 0.08, "east-west": 0.1, "strings": 0.12, "tracking": 0.13}
"""Shares of the kinds of plants."""

HORIZON_DIRECTIONS = 12


@dataclass(frozen=True)
class PlantParameters:
    """What a simulated plant is; ``kilowatts`` apart, powers are shares of its DC peak.

    ``share``, ``tilt`` and ``azimuth`` have one value for each string.
    """

    number: int
    kind: str
    climate: Climate
    latitude: float
    longitude: float
    share: tuple[float, ...]
    tilt: tuple[float, ...]
    azimuth: tuple[float, ...]
    max_angle: float  # of a tracker's rotation, degrees
    ground_cover: float  # width of rows over their distance; 0: one row
    horizon: tuple[float, ...]  # degrees, at azimuths 0, 30, ..., 330
    tree_azimuth: float
    tree_width: float  # degrees
    tree_height: float  # degrees; 0: no tree
    tree_opacity: float  # in leaf
    tree_foliage: float  # share of the opacity that is lost in winter
    ac_limit: float  # of the inverters
    export_limit: float  # of the connection
    curtailment: float  # share of days with a lower limit around noon
    inverter_efficiency: float
    temperature_coefficient: float  # per K
    heat: float  # K per W/m2, of the cells above the air
    system_losses: float
    age: float  # years
    degradation: float  # per year
    soiling: float  # per day without rain
    snow_days: float  # mean duration of snow on the panels
    extent_minutes: float  # clouds take this time to cross the plant
    meter_noise: float  # relative
    meter_resolution: float  # 0: fine
    standby: float  # power that the plant draws at night
    clock_error: float  # seconds that the clock of the record is behind true time
    kilowatts: float  # DC peak
    nameplate: float  # capacity as reported


def draw_parameters(
    number: int,
    climates: list[str],
    random: np.random.Generator,
    place: tuple[float, float] | None = None,
) -> PlantParameters:
    """Return a plant of a climate chosen among those named, with everything else drawn from wide distributions.

    A ``place`` (degrees north, degrees east) that is given replaces the one that is drawn.
    """
    climate, latitude = draw_climate(climates[random.integers(len(climates))], random)
    longitude = random.uniform(-180, 180)
    if place is not None:
        latitude, longitude = place
    kind = str(random.choice(list(KINDS), p=list(KINDS.values())))
    share, tilt, azimuth = _strings(kind, latitude, random)
    utility = kind in ("ground", "tracking")
    ac_limit = 1 / random.uniform(0.85, 1.55)
    kilowatts = 10 ** (random.uniform(2.5, 5.3) if utility else random.uniform(0.4, 3.0))
    system_losses = random.uniform(0.03, 0.2)
    # Owners state the limit of the inverters, the DC peak, or about the highest power that was ever recorded.
    highest = min(ac_limit, 0.95 * (1 - system_losses))
    stated = (ac_limit, 1.0, highest)[random.choice(3, p=[0.4, 0.25, 0.35])]
    error = 1.4 ** random.uniform(-1, 1) if random.random() < 0.3 else random.normal(1, 0.01)
    return PlantParameters(
        number=number,
        kind=kind,
        climate=climate,
        latitude=latitude,
        longitude=longitude,
        share=share,
        tilt=tilt,
        azimuth=azimuth,
        max_angle=random.uniform(45, 60),
        ground_cover=_sometimes(random, 0.7 if utility else 0.3, 0.25, 0.6) if kind != "roof" else 0.0,
        horizon=_horizon(random),
        tree_azimuth=random.uniform(60, 300) if latitude >= 0 else random.uniform(-120, 120) % 360,
        tree_width=random.uniform(10, 70),
        tree_height=_sometimes(random, 0.05 if utility else 0.35, 10, 50),
        tree_opacity=random.uniform(0.3, 1.0),
        tree_foliage=_sometimes(random, 0.5, 0.3, 0.9),
        ac_limit=ac_limit,
        export_limit=_sometimes(random, 0.1, 0.5, 0.95, otherwise=1.0) * ac_limit,
        curtailment=_sometimes(random, 0.06, 0.05, 0.5),
        inverter_efficiency=random.uniform(0.94, 0.985),
        temperature_coefficient=random.uniform(-0.005, -0.0025),
        heat=random.uniform(0.018, 0.045),
        system_losses=system_losses,
        age=random.uniform(0, 15),
        degradation=random.uniform(0.002, 0.012),
        soiling=_sometimes(random, 0.6, 0.0, 0.004),
        snow_days=random.exponential(2.5),
        extent_minutes=random.uniform(0, 12) if utility else random.uniform(0, 2),
        meter_noise=_sometimes(random, 0.5, 0.0, 0.02),
        meter_resolution=_sometimes(random, 0.3, 0.0005, 0.02),
        standby=_sometimes(random, 0.3, 0.0, 0.004),
        clock_error=_clock_error(random),
        kilowatts=kilowatts,
        nameplate=kilowatts * stated * float(error),
    )


def _sometimes(
    random: np.random.Generator, probability: float, low: float, high: float, otherwise: float = 0.0
) -> float:
    """Return a number between ``low`` and ``high`` with this probability, and ``otherwise`` else."""
    value, chance = random.uniform(low, high), random.random()
    return float(value) if chance < probability else otherwise


def _strings(
    kind: str, latitude: float, random: np.random.Generator
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the share of the panels, tilt and azimuth of each string."""
    equator = 180.0 if latitude >= 0 else 0.0

    def roof() -> tuple[float, float]:
        facing = random.normal(0, 35) if random.random() < 0.6 else random.uniform(-120, 120)
        return random.uniform(5, 50), (equator + facing) % 360

    if kind == "tracking":
        return (1.0,), (0.0,), ((equator + random.normal(0, 5)) % 360,)
    if kind == "ground":
        tilt = float(np.clip(abs(latitude) * random.uniform(0.5, 1.15) + random.normal(0, 4), 3, 65))
        return (1.0,), (tilt,), ((equator + random.normal(0, 12)) % 360,)
    if kind == "flat":
        return (1.0,), (random.uniform(0, 12),), (random.uniform(0, 360),)
    if kind == "east-west":
        turn, tilt, east = random.normal(0, 20), random.uniform(5, 40), random.uniform(0.35, 0.65)
        return (east, 1 - east), (tilt, tilt), ((90 + turn) % 360, (270 + turn) % 360)
    if kind == "roof":
        tilt, azimuth = roof()
        return (1.0,), (tilt,), (azimuth,)
    parts = [roof() for _ in range(int(random.integers(2, 4)))]
    shares = random.dirichlet([4.0] * len(parts))
    return tuple(shares.tolist()), tuple(tilt for tilt, _ in parts), tuple(azimuth for _, azimuth in parts)


def _horizon(random: np.random.Generator) -> tuple[float, ...]:
    """Return heights of the horizon: low for most plants, hills or buildings in some directions for others."""
    height = random.exponential(2.0) if random.random() < 0.6 else random.exponential(8.0)
    raw = random.gamma(1.0, 1.0, HORIZON_DIRECTIONS)
    rounded = (np.roll(raw, 1) + 2 * raw + np.roll(raw, -1)) / 4
    return tuple(np.clip(height * rounded, 0, 40).tolist())


def _clock_error(random: np.random.Generator) -> float:
    """Return seconds: none for most, minutes for some, up to an hour (summer time, other stamps) for few."""
    kind, minutes = random.random(), random.normal(0, 4)
    if kind < 0.7:
        return 0.0
    if kind < 0.9:
        return 60 * float(minutes)
    return float(random.choice([-3600, -1800, -900, 900, 1800, 3600]))
