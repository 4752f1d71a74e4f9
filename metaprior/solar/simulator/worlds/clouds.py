r"""Optical depth of the layers of clouds in each frame.

Where the texture $z$ (variance 1) and the cloudiness $b$ of place and time are together above zero there is cloud,

$$\tau = D\,e^{\sigma q - \sigma^2/2}\,\mathrm{sigmoid}(s\,e)\,\bigl(p + (1 - p)\,\mathrm{softplus}(2 e)\bigr),
  \qquad e = z + b,$$

with sharpness $s$ of the edges, plateau $p$ (1: flat decks, 0: heaps) and patchiness $\sigma$.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from metaprior.solar.simulator.worlds.parameters import Day, Layer, Weather
from metaprior.solar.simulator.worlds.texture import textures
from metaprior.solar.simulator.worlds.view import Sight
from metaprior.solar.simulator.worlds.wind import at_places, displacements, disturbance, sampled, swirled

MOST_PIXELS = 6.0
"""Largest mean displacement in pixels a frame; faster wind is slowed down to it."""


def torus_of(size: int) -> int:
    """Return the pixels of the torus on which clouds live: 7/4 of the map's, a multiple of 16."""
    return math.ceil(1.75 * size / 16) * 16


def mean_displacements(weather: Weather, layer: Layer, frames: int) -> Tensor:
    """Return the mean displacement of a layer in the step into each frame, in pixels along y and x, (D, T, 2)."""
    view = weather.view
    pixels = view.cadence * 60 / (view.pixel_km * 1000)  # a frame at 1 m/s
    still = layer.wind == (0.0, 0.0)
    share = torch.linspace(-0.5, 0.5, frames)
    rows = []
    for day in weather.days:
        east, north = (0.0, 0.0) if still else (layer.wind[0] + day.wind[0], layer.wind[1] + day.wind[1])
        angle = math.atan2(north, east) + day.turning * share
        speed = min(math.hypot(east, north) * pixels, MOST_PIXELS)
        down = -torch.sin(angle) if view.north_up else torch.sin(angle)
        rows.append(speed * torch.stack([down, torch.cos(angle)], -1))
    return torch.stack(rows)


def optical_depths(weather: Weather, sight: Sight, frames: int, noise: torch.Generator) -> list[Tensor]:
    """Return the optical depth of each layer, from the lowest, each (D, T, Y, X)."""
    rest = torch.stack([disturbance(day, noise) for day in weather.days])
    cloudiness = torch.stack([_cloudiness(weather, day, sight, frames, noise) for day in weather.days])
    depths = []
    for layer in weather.layers:
        means = mean_displacements(weather, layer, frames)
        speed = means.norm(dim=-1).mean(1)
        z, patches = _moved(weather, layer, means, rest * speed[:, None, None, None], sight, noise)
        above = z.add_(cloudiness).add_(_threshold(layer.cover))
        heaps = F.softplus(2 * above)
        depth = torch.sigmoid(layer.sharpness * above).mul_(heaps.mul_(1 - layer.plateau).add_(layer.plateau))
        if patches is not None:
            depth.mul_(patches.mul_(layer.patchiness).sub_(layer.patchiness**2 / 2).exp_())
        depths.append(depth.mul_(layer.depth))
    return depths


def _moved(
    weather: Weather, layer: Layer, means: Tensor, rest: Tensor, sight: Sight, noise: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Return the texture of a layer as it is seen, and its patches (None without), each (D, T, Y, X).

    Args:
        weather: View of the clouds.
        layer: The layer.
        means: Mean displacement in the step into each frame, in pixels along y and x, (D, T, 2).
        rest: Displacement beside it on the nodes, in pixels a frame, (D, NODES, NODES, 2).
        sight: Places of the pixels in the clouds.
        noise: Generator of the fields.
    """
    days, frames = means.shape[:2]
    torus = torus_of(sight.y.shape[0])
    hours = weather.view.cadence / 60
    along = means.cumsum(1)
    along = along - along[:, frames // 2, None]
    z, patches = textures(layer, hours, weather.view.pixel_km, along, torus, noise)
    if layer.cells:
        z += _cells(weather, layer, along, torus, noise)
    maps = displacements(rest, means, torus).flatten(0, 1)
    moved = at_places(maps, sight.y, sight.x, torus)
    y, x = sight.y - moved[:, 0] + torus // 2, sight.x - moved[:, 1] + torus // 2
    if layer.swirl:
        rows, columns = (axis.unflatten(0, (days, frames)) for axis in (y, x))
        swirls = swirled(layer, weather.view.pixel_km, rows, columns, along, torus, noise)
        y, x = y + swirls[:, 0], x + swirls[:, 1]

    def seen(fields: Tensor) -> Tensor:
        result: Tensor = sampled(fields.flatten(0, 1), y, x).unflatten(0, (days, frames))
        return result

    return seen(z), None if patches is None else seen(patches)


def _cells(weather: Weather, layer: Layer, along: Tensor, torus: int, noise: torch.Generator) -> Tensor:
    """Return what convective cells add to the texture, (D, T, M, M): round heaps that grow, and spread and decay."""
    days, frames = along.shape[:2]
    hours = weather.view.cadence / 60
    draws = torch.rand(days, layer.cells, 5, generator=noise)
    length = frames * hours
    born = draws[..., 0] * (length + layer.cell_hours) - layer.cell_hours
    age = (torch.arange(frames)[:, None] * hours - born[:, None]) / (layer.cell_hours * (0.5 + draws[:, None, :, 3]))
    grown = torch.where((age > 0) & (age < 1), 3 * age * (1 - age).square(), 0.0)
    strength = 3.0 * (draws[:, None, :, 4] + 0.3) * grown * 2
    radius = layer.cell_km / weather.view.pixel_km * (0.3 + age.clamp(0, 1))
    pixels = torch.arange(torus)

    def profile(axis: int) -> Tensor:
        centre = draws[:, None, :, 1 + axis] * torus + along[..., None, axis]  # (D, T, N)
        distance = (pixels - centre[..., None] + torus / 2) % torus - torus / 2
        return torch.exp(-0.5 * (distance / radius.clamp_min(0.7)[..., None]).square())

    return torch.einsum("dtn,dtny,dtnx->dtyx", strength, profile(0), profile(1))


def _cloudiness(weather: Weather, day: Day, sight: Sight, frames: int, noise: torch.Generator) -> Tensor:
    """Return the cloudiness b of the place and time of one day without that of the layer, (T, Y, X)."""
    size = sight.y.shape[0]
    share = torch.linspace(-0.5, 0.5, frames)[:, None, None]
    result = day.cloudiness + day.growth * share
    if weather.view.disk:
        zone = torch.deg2rad(sight.parallel)
        result = result + 0.5 * torch.cos(6 * zone) - 0.2
    if day.front:
        y, x = sight.y / size, sight.x / size
        across = y * math.cos(day.front_angle) + x * math.sin(day.front_angle)
        along = x * math.cos(day.front_angle) - y * math.sin(day.front_angle)
        phases = 2 * math.pi * torch.rand(3, generator=noise)
        wave = sum(0.06 / n * torch.sin(2 * math.pi * n * along + phases[n - 1]) for n in (1, 2, 3))
        moved = day.front_place + day.front_speed * weather.view.cadence / 60 * (frames - 1) * share
        result = result + day.front * torch.tanh((across + wave - moved) / day.front_width)
    return result.expand(frames, size, size)


def _threshold(cover: float) -> float:
    """Return b at which clouds cover this share of a texture that is normally distributed."""
    return float(torch.special.ndtri(torch.tensor(cover, dtype=torch.float64)))
