"""The surface under the clouds: sea and land, its albedo and its temperature through the day."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.solar.simulator.worlds.clouds import torus_of
from metaprior.solar.simulator.worlds.parameters import Weather
from metaprior.solar.simulator.worlds.texture import amplitude, white
from metaprior.solar.simulator.worlds.view import Sight
from metaprior.solar.simulator.worlds.wind import sampled


class Surface(NamedTuple):
    """Share of land, albedo and mean temperature (K), each (Y, X), and the course of temperature (D, T, Y, X)."""

    land: Tensor
    albedo: Tensor
    temperature: Tensor


def surface(weather: Weather, sight: Sight, noise: torch.Generator) -> Surface:
    """Return the ground of a world: land is where a smooth field is high, and its texture has the same spectrum."""
    ground, pixel_km = weather.ground, weather.view.pixel_km
    torus = torus_of(sight.y.shape[0])
    shape = amplitude(torus, 3.2, max(ground.scale_km / pixel_km, 4.0))
    fields = torch.fft.irfft2(white(3, torus, noise) * shape, s=(torus, torus), norm="ortho")
    y, x = (axis.expand(3, *axis.shape) + torus // 2 for axis in (sight.y, sight.x))
    height, texture, spots = sampled(fields, y, x)
    land = torch.sigmoid(12 * (height + float(torch.special.ndtri(torch.tensor(ground.land)))))
    soil = ground.land_albedo * torch.exp(ground.contrast * texture)
    soil = soil + (ground.bright - soil) * torch.sigmoid(8 * (spots - 1.4)) if ground.bright > 0 else soil
    albedo = ground.sea_albedo + (soil.clamp(0, 0.85) - ground.sea_albedo) * land
    colder = 0.6 * (sight.parallel.abs() - abs(weather.view.latitude))
    temperature = ground.temperature - colder - land * ground.relief * (height.clamp_min(0) + 0.3 * texture)
    return Surface(land, albedo, temperature)


def warmth(weather: Weather, sight: Sight, surface: Surface) -> Tensor:
    """Return the surface temperature in K, (D, T, Y, X): the land warms with the sun, which is felt later."""
    lag = math.exp(-weather.view.cadence / 120)
    sun = sight.sine.clamp_min(0)
    felt = sun.clone()
    for frame in range(1, sun.shape[1]):
        felt[:, frame] = lag * felt[:, frame - 1] + (1 - lag) * sun[:, frame]
    return surface.temperature + weather.ground.diurnal * (0.1 + 0.9 * surface.land) * (felt - 0.4)
