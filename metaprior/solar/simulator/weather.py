r"""The state of the weather and its dynamics: a Markov chain, whose future depends on the state and new noise alone.

One step of $\Delta t$ hours, for octave $o$ with lifetime $T_o$ and regime $r$ (unit variance) with lifetime $T_r$,

$$f_o(p) \leftarrow a_o f_o(p - v(p)\Delta t) + \sqrt{1 - a_o^2}\; \epsilon_o(p), \qquad
  r \leftarrow a_r r + \sqrt{1 - a_r^2}\; \epsilon_r, \qquad a = e^{-\Delta t / T},$$

with the wind $v(p)$ of the place and season plus that of the regime. Small scales decorrelate sooner: clouds grow and
decay while they drift. The innovations $\epsilon$ of all octaves come from one white field.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.noise import Noise
from metaprior.solar.simulator.octaves import OCTAVES, advected, band, filtered
from metaprior.solar.simulator.region import PIXEL_METRES, Maps, Region

REGIME_HOURS = (36.0, 36.0, 48.0, 48.0)
"""Times of decorrelation of the regime: northward wind, eastward wind, cloudiness and fog of the whole region."""
WIND, CLOUDINESS, FOG = slice(0, 2), 2, 3


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
