r"""Where air comes from: maps of displacement of a wind that is not the same everywhere.

With the mean displacement $m$ of a frame (taken care of by phases) and the rest $V(x)$ of the wind, the air at $x$ was
$U_t(x) + D_t$ pixels away in the reference frame in the middle of the window:

$$U_{t+1}(x) = U_t(x - m - V(x)) + V(x), \qquad U_{t-1}(x) = U_t(x + m + V(x)) - V(x).$$

The maps are smooth, so they are computed on few nodes; textures are interpolated once for each frame.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior.solar.simulator.worlds.parameters import Day, Layer
from metaprior.solar.simulator.worlds.texture import amplitude, white

NODES = 40


def nodes() -> tuple[Tensor, Tensor]:
    """Return coordinates y and x of the nodes, -1 to 1 over the torus, each (NODES, NODES)."""
    line = torch.linspace(-1, 1, NODES)
    return line[:, None].expand(NODES, NODES), line.expand(NODES, NODES)


def disturbance(day: Day, noise: torch.Generator) -> Tensor:
    """Return the wind that differs from the mean, (NODES, NODES, 2) along y and x, as a share of the mean speed."""
    y, x = nodes()
    along, across = day.shear
    linear = torch.stack([(day.divergence + along) * y + (across + day.rotation) * x,
                          (across - day.rotation) * y + (day.divergence - along) * x], -1)  # fmt: skip
    waves = torch.randn(2, 4, 4, generator=noise)
    smooth = F.interpolate(waves[None], size=(NODES, NODES), mode="bicubic", align_corners=True)[0].permute(1, 2, 0)
    angle = day.front_angle
    distance = y * math.cos(angle) + x * math.sin(angle) - day.front_place
    along_jet = torch.tensor([-math.sin(angle), math.cos(angle)])
    jet = torch.exp(-0.5 * (distance / 0.15).square())[..., None] * along_jet
    return linear + day.waviness * smooth + day.jet * jet


def displacements(rest: Tensor, means: Tensor, torus: int) -> Tensor:
    """Return U of each frame in pixels, (D, T, 2, NODES, NODES).

    Args:
        rest: V in pixels a frame, (D, NODES, NODES, 2).
        means: m of the step into each frame, in pixels along y and x, (D, T, 2); the first is that of the second.
        torus: Pixels of the torus.
    """
    frames = means.shape[1]
    middle = frames // 2
    y, x = nodes()
    home = torch.stack([x, y], -1)
    field = rest.permute(0, 3, 1, 2)
    maps = {middle: torch.zeros_like(field)}
    for step in (1, -1):
        for frame in range(middle + step, frames if step > 0 else -1, step):
            mean = means[:, frame if step > 0 else frame + 1, None, None, :]
            moved = (step * 2 / torus) * (rest + mean)
            came = home - moved.flip(-1)
            before = F.grid_sample(maps[frame - step], came, padding_mode="border", align_corners=True)
            maps[frame] = before + step * field
    return torch.stack([maps[frame] for frame in range(frames)], 1)


def sampled(fields: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Return fields (N, M, M) of the torus at these pixels, (N, Y, X), by bicubic interpolation."""
    torus = fields.shape[-1]
    padded = F.pad(fields[:, None], (2, 2, 2, 2), mode="circular")
    grid = (torch.stack([x % torus, y % torus], -1) + 2) * (2 / (torus + 3)) - 1
    return F.grid_sample(padded, grid, mode="bicubic", padding_mode="border", align_corners=True)[:, 0]


def at_places(maps: Tensor, y: Tensor, x: Tensor, torus: int) -> Tensor:
    """Return maps (N, 2, NODES, NODES) of the torus at these pixels (Y, X), measured from its middle: (N, 2, Y, X)."""
    grid = torch.stack([x, y], -1) * (2 / torus)
    return F.grid_sample(maps, grid.expand(len(maps), *grid.shape), padding_mode="border", align_corners=True)


def swirled(
    layer: Layer, pixel_km: float, y: Tensor, x: Tensor, along: Tensor, torus: int, noise: torch.Generator
) -> Tensor:
    """Return how far the air was displaced before the first frame, in pixels, (D * T, 2, Y, X): it curls the texture.

    Args:
        layer: Its outer scale, and its swirl as a share of this scale.
        pixel_km: Kilometres of a pixel.
        y: Rows from which air came, (D, T, Y, X).
        x: Columns from which air came.
        along: Displacement by the mean wind, (D, T, 2): swirls move with the air.
        torus: Pixels of the torus.
        noise: Generator of the swirls.
    """
    days = len(y)
    outer = min(max(layer.outer_km / pixel_km, 8.0), torus / 4)
    shape = amplitude(torus, 5.0, outer)[:, : torus // 2 + 1]
    fields = torch.fft.irfft2(white(2 * days, torus, noise) * shape, s=(torus, torus), norm="ortho")
    fields = (layer.swirl * outer) * fields.unflatten(0, (days, 2))
    padded = F.pad(fields, (0, 1, 0, 1), mode="circular")  # (D, 2, M + 1, M + 1)
    place = torch.stack([x - along[..., 1, None, None], y - along[..., 0, None, None]], -1) % torus
    grid = (place * (2 / torus) - 1).flatten(1, 2)  # (D, T * Y, X, 2)
    moved = F.grid_sample(padded, grid, align_corners=True)
    by_frame: Tensor = moved.unflatten(2, y.shape[1:3])
    return by_frame.transpose(1, 2).flatten(0, 1)
