r"""The share of clear-sky irradiance that reaches the ground, from the state of the weather.

With texture $z = \sum_o w_o f_o$ (variance 1), threshold $b$ and the local mean solar hour $h$,

$$\tau = D\,\mathrm{softplus}_\beta(z + b) + \tau_\mathrm{fog}, \qquad k = \frac{1}{1 + \frac12 (1 - g)\,\tau},$$

the two-stream transmission of a cloud that scatters and does not absorb, with asymmetry $g$ = 0.85 of water droplets
(Bohren 1987, American Journal of Physics 55, 524-533). $b$ is the sum of the cloudiness of place and season, of the
regime, and of afternoons on ridges; $\tau_\mathrm{fog}$ fills valleys in the morning until it burns off, which is later
if it is dense.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior.solar.simulator.region import Maps, Region
from metaprior.solar.simulator.weather import CLOUDINESS, FOG, State

ASYMMETRY = 0.85
SHARPNESS = 4.0
"""beta of softplus(x) = log(1 + exp(beta x)) / beta: clouds end in haze about 1 / beta standard deviations wide."""
AFTERNOON = (15.0, 2.5)
"""Local solar hour at which clouds on ridges are strongest, and its standard deviation."""
BURN_OFF = (10.0, 1.0, 0.5)
"""Local solar hour at which typical fog is halved, hours later per unit of the fog regime, and duration in hours."""


class Clock(NamedTuple):
    """Local mean solar hour, 0 to 24, and season from -1 (midsummer) to 1 (midwinter)."""

    hour: float
    season: float

    @property
    def summer(self) -> float:
        """0 in midwinter to 1 in midsummer."""
        return 0.5 * (1 - self.season)


def transmission(optical_depth: Tensor) -> Tensor:
    """Return the share of light that a cloud transmits, 1 / (1 + (1 - g) tau / 2)."""
    return 1 / (1 + 0.5 * (1 - ASYMMETRY) * optical_depth)


def clear_sky_index(state: State, region: Region, maps: Maps, clock: Clock, shown: int) -> Tensor:
    """Return the index k, more than 0 and at most 1, in the shown corner of the torus: (C, shown, shown)."""
    maps = Maps(*(field[..., :shown, :shown] for field in maps))
    texture = (maps.weights * state.octaves[..., :shown, :shown]).sum(1)
    above = texture + threshold(state, region, maps, clock)
    return transmission(region.depth * F.softplus(above, SHARPNESS) + fog_depth(state, region, maps, clock))


def threshold(state: State, region: Region, maps: Maps, clock: Clock) -> Tensor:
    """Return b, how far clouds reach below the mean of the texture in its standard deviations: (C, Y, X)."""
    middle, width = AFTERNOON
    place = maps.cloudiness + clock.season * maps.cloudiness_season
    afternoon = math.exp(-0.5 * ((clock.hour - middle) / width) ** 2)
    on_ridges = region.orography * clock.summer * afternoon * maps.ridge
    return place + on_ridges + region.cloudiness_regime * state.regime[:, CLOUDINESS, None, None]


def fog_depth(state: State, region: Region, maps: Maps, clock: Clock) -> Tensor:
    """Return the optical depth of morning fog, (C, Y, X)."""
    regime = state.regime[:, FOG]
    middle, later, width = BURN_OFF
    left = torch.sigmoid((middle + later * regime - clock.hour) / width)
    strength = region.fog * (1 - 0.5 * clock.summer) * (1 + regime).clamp_min(0) * left
    return strength[:, None, None] * maps.valley
