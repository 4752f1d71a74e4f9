r"""The weather: a Markov chain, whose future depends on the state and new noise alone, and the light under its clouds.

One step of $\Delta t$ hours, for octave $o$ with lifetime $T_o$ and regime $r$ (unit variance) with lifetime $T_r$,

$$f_o(p) \leftarrow a_o f_o(p - v(p)\Delta t) + \sqrt{1 - a_o^2}\; \epsilon_o(p), \qquad
  r \leftarrow a_r r + \sqrt{1 - a_r^2}\; \epsilon_r, \qquad a = e^{-\Delta t / T},$$

with the wind $v(p)$ of the place and season plus that of the regime. Small scales decorrelate sooner: clouds grow and
decay while they drift. The innovations $\epsilon$ of all octaves come from one white field.

The share $k$ of clear-sky irradiance reaches the ground: with texture $z = \sum_o w_o f_o$ (variance 1), threshold $b$
and the local mean solar hour $h$,

$$\tau = D\,\mathrm{softplus}_\beta(z + b) + \tau_\mathrm{fog}, \qquad k = \frac{1}{1 + \frac12 (1 - g)\,\tau},$$

the two-stream transmission of a cloud that scatters and does not absorb, with asymmetry $g$ = 0.85 of water droplets
(Bohren 1987, American Journal of Physics 55, 524-533). $b$ is the sum of the cloudiness of place and season, of the
regime, and of afternoons on ridges; $\tau_\mathrm{fog}$ fills valleys in the morning until it burns off, which is later
if it is dense.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior.noise import Noise
from metaprior.solar.simulator.octaves import OCTAVES, advected, band, filtered
from metaprior.solar.simulator.region import PIXEL_METRES, Maps, Region

REGIME_HOURS = (36.0, 36.0, 48.0, 48.0)
"""Times of decorrelation of the regime: northward wind, eastward wind, cloudiness and fog of the whole region."""
WIND, CLOUDINESS, FOG = slice(0, 2), 2, 3

ASYMMETRY = 0.85
SHARPNESS = 4.0
"""beta of softplus(x) = log(1 + exp(beta x)) / beta: clouds end in haze about 1 / beta standard deviations wide."""
AFTERNOON = (15.0, 2.5)
"""Local solar hour at which clouds on ridges are strongest, and its standard deviation."""
BURN_OFF = (10.0, 1.0, 0.5)
"""Local solar hour at which typical fog is halved, hours later per unit of the fog regime, and duration in hours."""


@dataclass(frozen=True)
class State:
    """Everything that the future depends on, for C independent continuations (1 in the record itself).

    ``step`` counts steps of the cadence from the start, nights included; ``octaves`` is (C, O, M, M) on the torus and
    ``regime`` (C, 4), both standard normal in the stationary distribution.
    """

    step: int
    octaves: Tensor
    regime: Tensor


class Innovations(NamedTuple):
    """The standard normal numbers of one step: white fields (C, M, M) and regimes (C, 4)."""

    texture: Tensor
    regime: Tensor


def draw(noise: Noise, torus: int, samples: range) -> Innovations:
    """Return the innovations of these samples of the noise, each from its own stream."""
    normals = noise.normals(torch.empty(torus * torus + len(REGIME_HOURS)), samples)
    texture, regime = normals.split([torus * torus, len(REGIME_HOURS)], 1)
    return Innovations(texture.reshape(-1, torus, torus), regime)


class Dynamics:
    """The step from a state to the next, in a region and at a cadence of ``hours``."""

    def __init__(self, region: Region, maps: Maps, hours: float) -> None:
        torus = maps.ridge.shape[-1]
        self._filters = torch.stack([band(torus, shortest, longest) for shortest, longest, _ in OCTAVES])
        self._maps = maps
        self._wind_regime = region.wind_regime
        self._pixels = hours * 3600 / PIXEL_METRES  # crossed in one step at 1 m/s
        self._keep = torch.tensor([math.exp(-hours / life) for _, _, life in OCTAVES])[:, None, None]
        self._regime_keep = torch.tensor([math.exp(-hours / life) for life in REGIME_HOURS])

    def first(self, innovations: Innovations) -> State:
        """Return a state of the stationary distribution, at step 0."""
        return State(0, filtered(innovations.texture, self._filters), innovations.regime)

    def advance(self, state: State, season: float, innovations: Innovations) -> State:
        """Return the state one step later, moved by the wind of the given state."""
        moved = advected(state.octaves, self.displacement(state, season))
        fresh = (1 - self._keep.square()).sqrt() * self._filters
        octaves = moved.mul_(self._keep).add_(filtered(innovations.texture, fresh))
        kept = self._regime_keep * state.regime
        regime = kept + (1 - self._regime_keep.square()).sqrt() * innovations.regime
        return State(state.step + 1, octaves, regime)

    def displacement(self, state: State, season: float) -> Tensor:
        """Return the pixels along y and x (C, M, M, 2) by which the air moves in the step after the state."""
        place = (self._maps.wind + season * self._maps.wind_season).permute(1, 2, 0)  # (M, M, 2)
        return self._pixels * (place + self._wind_regime * state.regime[:, None, None, WIND])


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
