"""The character of a region (chosen numbers) and of each place in it (random maps)."""

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.checks import check_not_negative
from metaprior.noise import Noise
from metaprior.solar.simulator.octaves import OCTAVES, band, filtered

RESOLUTION = 0.05
"""Degrees of latitude per pixel. Longitudes are spaced wider, so that pixels are square in the middle of the region."""

PIXEL_METRES = RESOLUTION * 111_195
CLIMATE_WAVELENGTHS = (50.0, math.inf)
TERRAIN_WAVELENGTHS = (14.0, 60.0)
ROUGHNESS = (0.5, 0.15)
"""Mean and spread over places of the roughness h: an octave has 2**-h times the amplitude of the next longer one."""


@dataclass(frozen=True)
class Region:
    """The character of a region. A ``..._spread`` is a standard deviation over its places.

    Args:
        latitude: Latitude of the middle in degrees, -60 to 60.
        longitude: Longitude of the middle in degrees east.
        wind: Prevailing wind, mean over places and seasons: eastward and northward, in m/s.
        wind_spread: Spread of the wind's two components in m/s; the seasonal change has the same spread.
        wind_regime: Standard deviation of the wind over regimes of a few days, in m/s.
        cloudiness: Mean of the threshold b in standard deviations of the texture; at 0 clouds cover half of the sky.
        cloudiness_spread: Spread of b; the seasonal change has half of it.
        cloudiness_regime: Standard deviation of b over regimes of a few days.
        depth: Optical depth of a cloud one standard deviation above the threshold.
        orography: What the highest ridges add to b in a summer afternoon.
        fog: Optical depth of fog in the deepest valleys in a typical winter morning.
    """

    latitude: float = 46.0
    longitude: float = 8.0
    wind: tuple[float, float] = (5.0, 2.0)
    wind_spread: float = 2.0
    wind_regime: float = 1.5
    cloudiness: float = -0.1
    cloudiness_spread: float = 0.4
    cloudiness_regime: float = 0.5
    depth: float = 14.0
    orography: float = 1.0
    fog: float = 25.0

    def __post_init__(self) -> None:
        numbers = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "wind"}
        for name, value in {**numbers, "wind (eastward)": self.wind[0], "wind (northward)": self.wind[1]}.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} of a region must be a finite number, got {value}")
        if not -60 <= self.latitude <= 60:
            raise ValueError(f"latitude must be -60 to 60 (days need a morning and an afternoon), got {self.latitude}")
        for name in ("wind_spread", "wind_regime", "cloudiness_spread", "cloudiness_regime", "depth", "fog"):
            check_not_negative(f"{name} of a region", numbers[name])


class Maps(NamedTuple):
    """Maps on the torus of M x M pixels; a value is mean + seasonal * season, with season from -1 to 1."""

    wind: Tensor  # (2, M, M) northward and eastward, m/s
    wind_season: Tensor  # (2, M, M)
    cloudiness: Tensor  # (M, M)
    cloudiness_season: Tensor  # (M, M)
    weights: Tensor  # (O, M, M) of the octaves; their squares sum to 1 everywhere
    ridge: Tensor  # (M, M) 0 to 1
    valley: Tensor  # (M, M) 0 to 1


def draw_maps(region: Region, torus: int, noise: Noise) -> Maps:
    """Return the maps of a region: smooth random fields around its means."""
    climate = _smooth(7, torus, CLIMATE_WAVELENGTHS, noise.fork("climate"))
    terrain = _smooth(1, torus, TERRAIN_WAVELENGTHS, noise.fork("terrain"))[0]
    prevailing = torch.tensor(region.wind[::-1])[:, None, None]
    mean, spread = ROUGHNESS
    weights = 2.0 ** (-(mean + spread * climate[6]) * torch.arange(len(OCTAVES))[:, None, None])
    return Maps(
        wind=prevailing + region.wind_spread * climate[0:2],
        wind_season=region.wind_spread * climate[2:4],
        cloudiness=region.cloudiness + region.cloudiness_spread * climate[4],
        cloudiness_season=0.5 * region.cloudiness_spread * climate[5],
        weights=weights / weights.square().sum(0).sqrt(),
        ridge=_heights(terrain),
        valley=_heights(-terrain),
    )


def _smooth(count: int, torus: int, wavelengths: tuple[float, float], noise: Noise) -> Tensor:
    """Return random maps of these wavelengths, each with mean 0 and standard deviation 1 over the torus."""
    white = noise.normal(torch.empty(count, torus, torus))
    maps = filtered(white, band(torus, *wavelengths)[None])[:, 0]
    return maps / maps.std((-2, -1), keepdim=True)


def _heights(terrain: Tensor) -> Tensor:
    """Return heights from half a standard deviation above the mean (about a third of the area), 0 to 1."""
    above = (terrain - 0.5).clamp_min(0)
    return above / above.max()
