"""Climates: what decides how often, when and how long the sky of a place is cloudy.

``CLIMATES`` names ranges of parameters; ``draw_climate`` draws one place's ``Climate`` from them, evenly between the
ends. The ranges are wide on purpose: a prior for real plants has to have seen more than one kind of weather. They were
chosen from textbook descriptions, not fitted to data.
"""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Climate:
    """The weather of one place.

    Cloudiness is a number without unit: the sky is mostly clear below -1, changing around 0 and mostly overcast above
    1 (``weather.EDGES``). Seasons are shares of a year after the local midsummer, so 0.5 is midwinter.
    """

    name: str
    turbidity: float  # Linke turbidity, mean
    turbidity_season: float  # relative, positive: hazier in summer
    turbidity_spread: float  # of its logarithm, from day to day
    altitude: float  # metres
    cloudiness: float  # mean over the year
    season: float  # amplitude of cloudiness over the year
    cloudy_season: float  # when it is cloudiest
    sharpness: float  # 0: the year is a sine; 3: two seasons with quick changes (monsoon)
    fronts: float  # standard deviation of cloudiness that passing weather brings
    front_hours: float  # after which that is forgotten
    convection: float  # cloudiness that the afternoon adds in summer
    convection_hour: float  # solar time when it is strongest
    fog: float  # share of mornings with fog or low stratus in its season
    fog_season: float
    burn_off: float  # solar time when fog dissolves, mean
    burn_off_spread: float  # hours
    regime_hours: float  # mean duration of a regime
    regime_spread: float  # standard deviation of cloudiness between successive regimes of the same weather
    overcast: float  # share of clear-sky irradiance under a closed cover of average thickness
    cumulus_hours: float  # after which single clouds are forgotten
    contrast: float  # how sharp the edges of clouds are in the sun's light
    thickness_spread: float  # standard deviation of the logarithm of the clouds' transmission
    enhancement: float  # gain beside bright cloud edges
    thin: float  # share that thin cloud takes away
    warmth: float  # mean temperature, degrees Celsius, above that of the latitude
    temperature_season: float  # K, amplitude for each degree of latitude
    temperature_day: float  # K, amplitude of a clear day
    albedo: float


Ranges = dict[str, tuple[float, float]]

LATITUDES = "latitude"

ANYWHERE: Ranges = {
    LATITUDES: (0, 60),
    "turbidity": (2.0, 4.5),
    "turbidity_season": (-0.1, 0.3),
    "turbidity_spread": (0.05, 0.25),
    "altitude": (0, 800),
    "cloudiness": (-1.2, 1.0),
    "season": (0.0, 0.8),
    "cloudy_season": (0.0, 1.0),
    "sharpness": (0.2, 1.5),
    "fronts": (0.5, 1.5),
    "front_hours": (12, 96),
    "convection": (0.0, 0.8),
    "convection_hour": (13.5, 17.0),
    "fog": (0.0, 0.15),
    "fog_season": (0.0, 1.0),
    "burn_off": (8.5, 11.5),
    "burn_off_spread": (0.5, 2.0),
    "regime_hours": (1.5, 10.0),
    "regime_spread": (0.4, 1.1),
    "overcast": (0.25, 0.5),
    "cumulus_hours": (0.2, 1.0),
    "contrast": (1.5, 5.0),
    "thickness_spread": (0.2, 0.65),
    "enhancement": (0.02, 0.15),
    "thin": (0.05, 0.3),
    "warmth": (-4, 4),
    "temperature_season": (0.15, 0.3),
    "temperature_day": (4, 8),
    "albedo": (0.12, 0.25),
}
"""Ranges that a climate uses where it does not state its own."""

CLIMATES: dict[str, Ranges] = {
    "arid": {
        LATITUDES: (12, 38),
        "turbidity": (2.5, 6.0),
        "turbidity_spread": (0.1, 0.4),
        "altitude": (0, 1800),
        "cloudiness": (-2.5, -0.9),
        "season": (0.0, 0.6),
        "fronts": (0.4, 1.1),
        "convection": (0.0, 0.4),
        "temperature_day": (7, 11),
        "warmth": (0, 7),
        "albedo": (0.2, 0.35),
    },
    "mediterranean": {
        LATITUDES: (29, 44),
        "cloudiness": (-1.5, -0.2),
        "season": (0.5, 1.2),
        "cloudy_season": (0.42, 0.58),
        "fronts": (0.6, 1.4),
        "front_hours": (20, 60),
        "convection": (0.0, 0.4),
    },
    "maritime": {
        LATITUDES: (42, 62),
        "turbidity": (2.0, 3.5),
        "cloudiness": (-0.1, 1.4),
        "season": (0.0, 0.5),
        "cloudy_season": (0.4, 0.6),
        "fronts": (0.7, 1.5),
        "front_hours": (8, 40),
        "regime_hours": (1.0, 4.0),
        "convection": (0.0, 0.5),
    },
    "continental": {
        LATITUDES: (36, 60),
        "cloudiness": (-0.8, 0.8),
        "season": (0.0, 0.8),
        "cloudy_season": (0.3, 0.7),
        "fronts": (0.8, 1.8),
        "front_hours": (20, 120),
        "convection": (0.2, 1.2),
        "temperature_season": (0.25, 0.4),
    },
    "monsoon": {
        LATITUDES: (8, 30),
        "turbidity": (3.5, 6.5),
        "cloudiness": (-0.7, 0.7),
        "season": (0.8, 1.8),
        "cloudy_season": (0.02, 0.2),
        "sharpness": (1.5, 4.0),
        "fronts": (0.5, 1.2),
        "front_hours": (24, 150),
        "convection": (0.2, 1.0),
        "warmth": (0, 5),
    },
    "tropical": {
        LATITUDES: (0, 18),
        "turbidity": (3.0, 5.0),
        "cloudiness": (-0.7, 0.9),
        "season": (0.0, 0.6),
        "fronts": (0.3, 1.0),
        "front_hours": (12, 48),
        "convection": (0.6, 2.0),
        "regime_hours": (0.7, 3.0),
        "enhancement": (0.05, 0.2),
        "fog": (0.0, 0.1),
    },
    "humid subtropical": {
        LATITUDES: (20, 37),
        "turbidity": (3.0, 6.0),
        "cloudiness": (-0.6, 0.9),
        "season": (0.0, 0.8),
        "fronts": (0.7, 1.5),
        "front_hours": (24, 150),
        "convection": (0.3, 1.3),
    },
    "fog coast": {
        LATITUDES: (10, 45),
        "cloudiness": (-1.8, -0.1),
        "fog": (0.2, 0.8),
        "burn_off": (8.5, 13.0),
        "burn_off_spread": (1.0, 3.0),
        "convection": (0.0, 0.3),
    },
    "valley": {
        LATITUDES: (35, 55),
        "cloudiness": (-0.7, 0.8),
        "fog": (0.2, 0.7),
        "fog_season": (0.3, 0.55),
        "burn_off": (9.5, 14.0),
        "burn_off_spread": (1.5, 4.0),
        "fronts": (0.7, 1.5),
        "turbidity_spread": (0.1, 0.3),
    },
    "mountain": {
        LATITUDES: (20, 50),
        "turbidity": (1.8, 3.0),
        "altitude": (800, 3000),
        "cloudiness": (-1.2, 0.6),
        "convection": (0.5, 2.0),
        "convection_hour": (12.5, 16.0),
        "regime_hours": (1.0, 3.5),
        "fronts": (0.6, 1.4),
        "warmth": (-10, -2),
        "temperature_day": (6, 10),
    },
    "subpolar": {
        LATITUDES: (54, 65),
        "turbidity": (1.8, 3.0),
        "cloudiness": (-0.3, 1.4),
        "cloudy_season": (0.3, 0.6),
        "fronts": (0.7, 1.5),
        "front_hours": (12, 72),
        "convection": (0.0, 0.4),
        "warmth": (-6, 4),
        "temperature_season": (0.15, 0.35),
    },
    "anywhere": {
        LATITUDES: (0, 62),
        "front_hours": (10, 150),
        "cloudiness": (-2.2, 1.4),
        "convection": (0.0, 1.5),
        "fog": (0.0, 0.4),
    },
}

SOUTHERN_LIMIT = -60.0


def climates_at(latitude: float) -> list[str]:
    """Return the names of the climates that occur at a latitude."""
    ranges = {name: (ANYWHERE | given)[LATITUDES] for name, given in CLIMATES.items()}
    return [name for name, (low, high) in ranges.items() if low <= abs(latitude) <= high] or ["anywhere"]


def draw_climate(name: str, random: np.random.Generator) -> tuple[Climate, float]:
    """Return a place's climate of the named kind, and its latitude in degrees north.

    Raises:
        ValueError: There is no climate of this name.
    """
    if name not in CLIMATES:
        raise ValueError(f"climate must be one of {', '.join(CLIMATES)}, got {name!r}")
    drawn = {field: random.uniform(low, high) for field, (low, high) in (ANYWHERE | CLIMATES[name]).items()}
    latitude = drawn.pop(LATITUDES) * (1 if random.random() < 0.6 else -1)
    names = {field.name for field in fields(Climate)} - {"name"}
    return Climate(name, **{field: drawn[field] for field in names}), max(latitude, SOUTHERN_LIMIT)
