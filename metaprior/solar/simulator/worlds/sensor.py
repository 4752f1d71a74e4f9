"""What a sensor makes of clouds, ground and sun: a signal of about 0 to 1, then the product with its flaws."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior.solar.simulator.worlds.ground import Surface
from metaprior.solar.simulator.worlds.parameters import Sensor, Weather
from metaprior.solar.simulator.worlds.view import Sight
from metaprior.solar.sun import haurwitz

BACKSCATTER = 0.075
"""(1 - g) / 2 of water droplets: a cloud of optical depth t transmits 1 / (1 + 0.075 t)."""
BRIGHTEST = 1100.0
COLDEST, WARMEST = 190.0, 320.0


def transmission(depths: list[Tensor]) -> Tensor:
    """Return the share of light that all layers transmit, (D, T, Y, X)."""
    total = torch.stack(depths).sum(0) if len(depths) > 1 else depths[0]
    return 1 / (1 + BACKSCATTER * total)


def signal(
    sensor: Sensor, weather: Weather, sight: Sight, depths: list[Tensor], ground: Surface, warm: Tensor | None
) -> Tensor:
    """Return what is measured, about 0 to 1, (D, T, Y, X); NaN by night where the product has none.

    Args:
        sensor: What is measured.
        weather: The layers of clouds.
        sight: Sun and viewing angles.
        depths: Optical depth of each layer, (D, T, Y, X).
        ground: Albedo and mean temperature of the surface.
        warm: Temperature of the surface in K, (D, T, Y, X), for thermal sensors.
    """
    space = sight.slant <= 0
    if sensor.kind == "thermal":
        assert warm is not None
        return torch.where(space, 0.0, _emitted(weather, depths, ground, warm))
    through = transmission(depths)
    if sensor.kind == "index":
        result = through
    elif sensor.kind == "irradiance":
        ceiling = torch.from_numpy(haurwitz(sight.sine.numpy()).astype(np.float32))
        result = through * ceiling * ((1 - sensor.haze) / BRIGHTEST)
    else:
        result = _reflected(sensor, sight, 1 - through, ground)
    if sensor.limb:
        result = result * sight.slant.clamp_min(1e-3) ** sensor.limb
    follows_sun = sensor.sun_exponent != 0 and sensor.kind == "reflectance"
    night = sight.sine < (0.0 if follows_sun else sensor.night_sine)
    result = torch.where(night, float("nan") if sensor.night == "missing" else 0.0, result)
    return torch.where(space, 0.0, result)


def _emitted(weather: Weather, depths: list[Tensor], ground: Surface, warm: Tensor) -> Tensor:
    """Return the brightness temperature, 0 at COLDEST and 1 at WARMEST: each layer hides what is warmer below it."""
    seen = warm
    for layer, depth in zip(weather.layers, depths, strict=True):
        opacity = 1 - torch.exp(-0.5 * depth)
        top = (ground.temperature - layer.cooling).clamp_min(COLDEST)
        seen = seen + opacity * (torch.minimum(top, seen) - seen)
    return (seen - COLDEST) / (WARMEST - COLDEST)


def _reflected(sensor: Sensor, sight: Sight, cloud: Tensor, ground: Surface) -> Tensor:
    """Return the light that clouds of this reflectance, ground and haze send back."""
    sine = sight.sine
    if sensor.shading:
        lit_side = torch.zeros_like(cloud)
        lit_side[..., 1:-1] = cloud[..., 2:] - cloud[..., :-2]
        lower = (1 - sine.clamp(0, 1)).square()
        east = 1 if float(sine[:, :, :, -1].mean()) > float(sine[:, :, :, 0].mean()) else -1
        cloud = (cloud - east * sensor.shading * lower * lit_side).clamp(0, 1)
    result = 0.92 * cloud + ground.albedo * (1 - cloud) ** 1.5 + sensor.haze
    if sensor.sun_exponent:
        result = result * sine.clamp_min(1e-4) ** sensor.sun_exponent
    return result


def product(sensor: Sensor, measured: Tensor, noise: torch.Generator) -> Tensor:
    """Return the values of the product, (D, T, Y, X), from the signal."""
    missing = measured.isnan()
    s = torch.where(missing, 0.0, measured) if missing.any() else measured
    s = _with_flaws(sensor, _toned(sensor, _imaged(sensor, s, noise)), noise).clamp(0, 1)
    if sensor.bits:
        levels = 2**sensor.bits - 1
        s = (s * levels).round() / levels
    s = s * sensor.gain + sensor.offset
    s = torch.where(missing, float("nan"), s) if sensor.night == "missing" else s
    return with_gaps(s, sensor, noise)


def _imaged(sensor: Sensor, s: Tensor, noise: torch.Generator) -> Tensor:
    """Return the signal after the optics: point spread, navigation errors, flicker of whole frames."""
    s = blurred(s, sensor.blur) if sensor.blur else s
    s = jittered(s, sensor.jitter, noise) if sensor.jitter else s
    if sensor.flicker:
        s = s * (1 + sensor.flicker * torch.randn(*s.shape[:2], 1, 1, generator=noise))
    return s


def _toned(sensor: Sensor, s: Tensor) -> Tensor:
    """Return the signal as a picture has it: clipped to black and white, with gamma, inverted."""
    s = ((s - sensor.black) / (sensor.white - sensor.black)).clamp(0, 1)
    s = s if sensor.gamma == 1 else s**sensor.gamma
    return 1 - s if sensor.inverted else s


def _with_flaws(sensor: Sensor, s: Tensor, noise: torch.Generator) -> Tensor:
    """Return the picture with noise, stripes, blocks of compression and lines that are drawn over it."""
    if sensor.noise:
        s = s + sensor.noise * torch.randn(s.shape, generator=noise)
    if sensor.striping:
        s = s + sensor.striping * torch.randn(s.shape[-2], 1, generator=noise)
    s = blocky(s, sensor.blocks) if sensor.blocks else s
    return overlaid(s, sensor.overlay, noise) if sensor.overlay else s


def blurred(frames: Tensor, width: float) -> Tensor:
    """Return frames (D, T, Y, X) after a Gaussian point spread function of this standard deviation in pixels."""
    reach = max(1, math.ceil(2.5 * width))
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / width).square())
    kernel = kernel / kernel.sum()
    flat = F.pad(frames.flatten(0, 1)[:, None], (reach,) * 4, mode="replicate")
    flat = F.conv2d(F.conv2d(flat, kernel[None, None, None]), kernel[None, None, :, None])
    result: Tensor = flat[:, 0].unflatten(0, frames.shape[:2])
    return result


def jittered(frames: Tensor, spread: float, noise: torch.Generator) -> Tensor:
    """Return frames (D, T, Y, X), each shifted by a random part of a pixel of this standard deviation."""
    days, count, height, width = frames.shape
    shift = spread * torch.randn(days * count, 2, generator=noise)
    theta = torch.zeros(days * count, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta[:, :, 2] = shift * 2 / torch.tensor([width, height])
    flat = frames.flatten(0, 1)[:, None]
    grid = F.affine_grid(theta, list(flat.shape), align_corners=False)
    moved = F.grid_sample(flat, grid, mode="bicubic", padding_mode="border", align_corners=False)
    result: Tensor = moved[:, 0].unflatten(0, (days, count))
    return result.clamp_min(0)


def blocky(frames: Tensor, share: float) -> Tensor:
    """Return frames in which detail inside blocks of 8 x 8 pixels is reduced by this share, as strong JPEG does."""
    height, width = frames.shape[-2:]
    flat = frames.flatten(0, 1)[:, None]
    means = F.avg_pool2d(flat, 8, ceil_mode=True)
    coarse = F.interpolate(means, scale_factor=8)[..., :height, :width]
    result: Tensor = (flat + share * (coarse - flat))[:, 0].unflatten(0, frames.shape[:2])
    return result


def overlaid(frames: Tensor, level: float, noise: torch.Generator) -> Tensor:
    """Return frames with a grid of straight lines of this brightness, the same in all of them."""
    first, spacing = (int(number) for number in torch.randint(8, 40, (2,), generator=noise))
    result = frames.clone()
    result[..., first :: spacing + 16, :] = level
    result[..., :, first :: spacing + 16] = level
    return result


def with_gaps(frames: Tensor, sensor: Sensor, noise: torch.Generator) -> Tensor:
    """Return frames with missing lines and a missing block (NaN) in some of them."""
    if not (sensor.lines or sensor.holes):
        return frames
    days, count, height, width = frames.shape
    frames = frames.clone()
    if sensor.lines:
        lost = torch.rand(days, count, height, generator=noise) < sensor.lines
        frames[lost] = float("nan")
    if sensor.holes:
        for day, frame in (torch.rand(days, count, generator=noise) < sensor.holes).nonzero().tolist():
            top, left = (int(n) for n in torch.randint(0, max(1, height // 2), (2,), generator=noise))
            frames[day, frame, top : top + height // 4, left : left + width // 2] = float("nan")
    return frames
