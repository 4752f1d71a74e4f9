r"""The network of nowcasts: it weighs candidates, adds a residual, and gives a scale, pixel by pixel.

$$\mu_l = \sum_c a_{lc}\, k_{lc} + r_l, \qquad a_l = \mathrm{softmax}(\cdot),$$

with the candidates $k_{lc}$ of ``inputs.py`` (last frame, moved, both in the light of the target, moved with the trend
of brightness). Weights, residuals and raw scales are 1x1 convolutions of the features of a small U-Net. Its
normalisation works over the channels of a single pixel, and what concerns the whole window enters as scalars that scale
and shift the features; so a pixel's forecast depends on its surroundings alone, and tiles fit together without seams.
"""

import math
from collections import OrderedDict
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaprior.checks import check_counts
from metaprior.solar.maps.nowcast.inputs import CANDIDATES, CHANNELS, INPUTS, LEADS, MAPS, SCALARS

KINDS_OF_CANDIDATES = 5
FIRST_WEIGHTS = (-2.0, 1.0, 0.0, -2.0, -1.0)
"""First logits of the candidates: at first the forecast is mostly the moved frame."""
LARGEST_CHANNELS = 4
"""Channels are at most this many times the width."""


class PixelNorm(nn.Module):
    """Division by the root mean square over the channels of each pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised features of the same shape."""
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-4)


class Block(nn.Module):
    """Two convolutions; the scalars of the window scale and shift what is between them."""

    def __init__(self, inputs: int, outputs: int, scalars: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = PixelNorm()
        self.modulation = nn.Linear(scalars, 2 * outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            self.second.weight *= 0.3

    def forward(self, x: Tensor, scalars: Tensor) -> Tensor:
        """(N, inputs, H, W), (N, scalars) -> (N, outputs, H, W)."""
        scale, shift = self.modulation(scalars)[:, :, None, None].chunk(2, 1)
        between = F.silu(torch.addcmul(shift, self.norm(self.first(x)), 1 + scale))
        out: Tensor = self.skip(x) + self.second(between)
        return out


class Features(NamedTuple):
    """What the output layer reads: features (N, width, H, W), candidates (N, L, K, H, W)."""

    features: Tensor
    candidates: Tensor


class Trunk(nn.Module):
    """A U-Net from the inputs of a window to features at full resolution."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        channels = [width * min(2**level, LARGEST_CHANNELS) for level in range(levels + 1)]
        self.scalars = nn.Sequential(nn.Linear(SCALARS, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.stem = nn.Conv2d(CANDIDATES + MAPS, width, 3, padding=1)
        self.down = nn.ModuleList(
            Block(channels[max(level - 1, 0)], channels[level], 32) for level in range(levels + 1)
        )
        self.up = nn.ModuleList(
            Block(channels[level + 1] + channels[level], channels[level], 32) for level in reversed(range(levels))
        )

    def forward(self, x: Tensor) -> Features:
        """(N, CHANNELS, H, W) -> features of the same height and width.

        Maps are continued to a multiple of 2**levels: each halving then has whole pixels, so enlarging does not shift.
        """
        (height, width), whole = x.shape[-2:], 2 ** len(self.up)
        below, right = -height % whole, -width % whole
        if not below and not right:
            return self.features(x)
        found = self.features(F.pad(x, (0, right, 0, below), mode="replicate"))
        return Features(*(maps[..., :height, :width] for maps in found))

    def features(self, x: Tensor) -> Features:
        """(N, CHANNELS, H, W) -> features; H and W are multiples of 2**levels."""
        candidates, maps, scalars = x.split((CANDIDATES, MAPS, SCALARS), 1)
        given = scalars[:, :, 0, 0]
        unit = given[:, 0].exp()[:, None, None, None]
        context = self.scalars(given)
        features = self.stem(torch.cat([candidates * unit, maps], 1))
        skips = []
        for level, block in enumerate(self.down):
            features = block(F.avg_pool2d(features, 2) if level else features, context)
            skips.append(features)
        skips.pop()
        for block in self.up:
            skip = skips.pop()
            larger = F.interpolate(features, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            features = block(torch.cat([larger, skip], 1), context)
        return Features(features, _candidates(candidates, maps))


def _candidates(given: Tensor, maps: Tensor) -> Tensor:
    """Return the candidates of each lead time, (N, L, K, H, W)."""
    last, warped, lit, still_lit = given.split((1, LEADS, LEADS, LEADS), 1)
    trend = maps[:, INPUTS : INPUTS + 1]  # over a wide neighbourhood
    steps = torch.arange(1, LEADS + 1, dtype=maps.dtype, device=maps.device).reshape(1, -1, 1, 1)
    return torch.stack([last.expand_as(warped), warped, lit, still_lit, warped + steps * trend], 2)


class Output(nn.Module):
    """Weights of the candidates, residuals and raw scales, and the forecast that follows from them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = PixelNorm()
        self.weights = nn.Conv2d(width, KINDS_OF_CANDIDATES * LEADS, 1)
        self.residual = nn.Conv2d(width, LEADS, 1)
        self.apart = nn.Conv2d(width, LEADS, 1)
        self.scale = nn.Conv2d(width, 2 * LEADS, 1)
        with torch.no_grad():
            for layer in (self.weights, self.residual, self.apart, self.scale):
                layer.weight *= 0.1
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
            self.weights.bias.copy_(torch.tensor(FIRST_WEIGHTS).repeat(LEADS))  # type: ignore[union-attr]
            first = [math.log(lead + 1.0) + wider for wider in (-1.0, 0.5) for lead in range(LEADS)]
            self.scale.bias.copy_(torch.tensor(first))  # type: ignore[union-attr]

    def forward(self, features: Features) -> Tensor:
        """(features, candidates) -> means, distances from them and raw scales, (N, 4 L, H, W)."""
        maps, candidates = features  # a plain tuple, where stages are run one by one
        x = F.silu(self.norm(maps))
        logits = self.weights(x).unflatten(1, (LEADS, KINDS_OF_CANDIDATES))
        mean = (logits.softmax(2) * candidates).sum(2) + self.residual(x)
        return torch.cat([mean, self.apart(x), self.scale(x)], 1)


class NowcastNetwork(nn.Sequential):
    """Forecast the next frames of any product: (N, CHANNELS, H, W) -> (N, 4 L, H, W), see ``distribution.py``.

    Args:
        width: Channels at full resolution; they double with each halving, up to four times the width.
        levels: Number of times that the resolution is halved.
    """

    def __init__(self, width: int = 16, levels: int = 3) -> None:
        check_counts(width=width, levels=levels)
        super().__init__(OrderedDict([("trunk", Trunk(width, levels)), ("output", Output(width))]))
        self.config: dict[str, Any] = {"width": width, "levels": levels}
        self.stochastic = r"output\..*"


__all__ = ["CHANNELS", "NowcastNetwork"]
