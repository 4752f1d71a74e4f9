"""Textures have unit variance and the stated lifetimes, and are shifted exactly."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from examples.worlds import LAYER
from metaprior.solar.simulator.worlds.texture import LIFETIME_KM, amplitude, evolution, textures, white


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("slope", "outer", "stretch"), [(2.2, 4.0, 1.0), (3.2, 4.0, 1.8), (4.2, 3.0, 1.2)])
def test_fields_have_unit_variance_at_every_pixel(slope: float, outer: float, stretch: float) -> None:
    shape = amplitude(32, slope, outer, stretch, 0.7)
    fields = torch.fft.irfft2(white(1500, 32, generator()) * shape, s=(32, 32), norm="ortho")
    assert float(fields.square().mean()) == pytest.approx(1.0, abs=0.02)
    assert float(fields.mean((1, 2)).abs().max()) < 1e-5
    by_pixel = fields.square().mean(0)
    assert float(by_pixel.min()) > 0.8
    assert float(by_pixel.max()) < 1.2


def test_stretch_makes_clouds_longer_along_the_direction() -> None:
    shape = amplitude(64, 3.0, 8.0, stretch=1.6, direction=0.0)  # short waves along x are weaker
    z = torch.fft.irfft2(white(60, 64, generator()) * shape, s=(64, 64), norm="ortho")
    along_x, along_y = ((z - z.roll(1, axis)).square().mean() for axis in (2, 1))
    assert float(along_y) > 2 * float(along_x)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_waves_forget_at_their_lifetime(smooth: bool, power: float) -> None:
    layer = replace(LAYER, lifetime=2.0, lifetime_power=power, smooth_in_time=smooth)
    hours, pixel_km = 0.5, 10.0
    steps = list(itertools.islice(evolution(layer, hours, pixel_km, (3000, 16), generator()), 5))
    for kx, wavelength in ((1, 16), (2, 8), (4, 4)):
        tau = 2.0 * (wavelength * pixel_km / LIFETIME_KM) ** power
        first = steps[0][:, 0, kx]
        for number, later in enumerate(steps):
            assert float(later[:, 0, kx].abs().square().mean()) == pytest.approx(1.0, abs=0.08)
            found = float((first.conj() * later[:, 0, kx]).real.mean())
            r = math.exp(-2 * hours / tau)
            twice = (1 + number * (1 - r**2) / (1 + r**2)) * r**number  # both roots of the autoregression are r
            once = math.exp(-number * hours / tau)
            assert found == pytest.approx(twice if smooth else once, abs=0.06)


def test_textures_that_live_forever_only_move() -> None:
    layer = replace(LAYER, lifetime=math.inf, slope=2.2)
    shifts = torch.tensor([[[0.0, 0.0], [3.0, -2.0], [0.5, 0.5], [1.0, 1.0]]])
    z, patches = textures(layer, 0.25, 6.0, shifts, 32, generator())
    assert patches is None
    torch.testing.assert_close(z[0, 1], z[0, 0].roll((3, -2), (0, 1)), atol=1e-5, rtol=0)
    torch.testing.assert_close(z[0, 3], z[0, 0].roll((1, 1), (0, 1)), atol=1e-5, rtol=0)
    assert float(z[0, 2].square().mean()) == pytest.approx(float(z[0, 0].square().mean()), rel=1e-4)  # nothing is lost


@pytest.mark.parametrize(("texture", "sign"), [("ridged", -1), ("cellular", 1)])
def test_folded_textures_are_skewed_and_patches_are_separate(texture: str, sign: int) -> None:
    layer = replace(LAYER, texture=texture, outer_km=18.0, patchiness=0.4)
    z, patches = textures(layer, 0.25, 6.0, torch.zeros(40, 1, 2), 32, generator())
    centred = z - z.mean()
    assert sign * float(centred.pow(3).mean() / centred.square().mean() ** 1.5) > 0.2
    assert float(z.square().mean()) == pytest.approx(1.0, abs=0.15)
    assert patches is not None
    assert float(patches.square().mean()) == pytest.approx(1.0, abs=0.15)
