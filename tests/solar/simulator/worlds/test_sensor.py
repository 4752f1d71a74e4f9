"""Signals are physical, and each property of a sensor does what it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from examples.worlds import DARK_GROUND, GROUND, LAYER, SENSOR, SIZE, VIEW, WEATHER, WHOLE, WIDE
from metaprior.solar.simulator.worlds import Sensor, Weather, World
from metaprior.solar.simulator.worlds.ground import surface, warmth
from metaprior.solar.simulator.worlds.sensor import blurred, jittered, product, signal, transmission
from metaprior.solar.simulator.worlds.view import sight, times_of
from metaprior.solar.simulator.worlds.world import observe
from metaprior.solar.sun import haurwitz

PLAIN = replace(SENSOR, blur=0.0, haze=0.0, white=1.0)


def observed(weather: Weather, sensor: Sensor, size: int = 32) -> World:
    noise = torch.Generator().manual_seed(3)
    return observe(weather, sensor, size=size, frames=3, located=True, generator=noise)


def signals(weather: Weather, sensor: Sensor, depth: float, size: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """Return the signal under a cloud of this depth everywhere, the sine of the sun's elevation, and the ground."""
    seen = sight(weather.view, times_of(weather.view, 1, 3), size)
    ground = surface(weather, seen, torch.Generator().manual_seed(0))
    warm = warmth(weather, seen, ground) if sensor.kind == "thermal" else None
    result = signal(sensor, weather, seen, [torch.full((1, 3, size, size), depth)], ground, warm)
    return result, seen.sine, ground.albedo if warm is None else warm


def made(sensor: Sensor, measured: Tensor) -> Tensor:
    return product(sensor, measured, torch.Generator().manual_seed(5))


@pytest.fixture
def ramp() -> Tensor:
    return torch.linspace(0, 1, 32).expand(2, 3, 32, 32).contiguous()


def test_transmission_is_that_of_two_streams() -> None:
    depths = [torch.tensor([0.0, 5.0]), torch.tensor([0.0, 15.0])]
    torch.testing.assert_close(transmission(depths), torch.tensor([1.0, 1 / 2.5]))


def test_irradiance_is_at_most_that_of_a_clear_sky() -> None:
    sensor = replace(PLAIN, kind="irradiance", night_sine=0.05)
    clear, sine, _ = signals(replace(WEATHER, view=WIDE), sensor, 0.0)
    expected = haurwitz(sine.numpy()) / 1100
    by_day = sine.numpy() >= 0.05
    np.testing.assert_allclose(clear.numpy()[by_day], expected[by_day], rtol=1e-5)
    assert clear.numpy()[~by_day].max(initial=0) == 0
    cloudy, _, _ = signals(replace(WEATHER, view=WIDE), sensor, 20.0)
    np.testing.assert_allclose(cloudy, clear / 2.5, rtol=1e-5)


def test_the_index_does_not_depend_on_the_sun() -> None:
    index, sine, _ = signals(replace(WEATHER, view=WIDE), replace(PLAIN, kind="index"), 20.0)
    np.testing.assert_allclose(index[sine > 0], 0.4, rtol=1e-5)


@pytest.mark.parametrize("power", [0.0, 0.7])
def test_reflectance_is_that_of_the_ground_or_of_clouds(power: float) -> None:
    sensor = replace(PLAIN, sun_exponent=power)
    clear, sine, albedo = signals(WEATHER, sensor, 0.0)
    torch.testing.assert_close(clear, albedo * sine**power, atol=1e-5, rtol=1e-4)
    bright, sine, _ = signals(WEATHER, sensor, 1e6)
    torch.testing.assert_close(bright, 0.92 * sine**power, atol=1e-3, rtol=0)
    assert 0 <= float(albedo.min()) <= float(albedo.max()) <= 0.85


def test_thermal_signals_are_those_of_ground_or_tops() -> None:
    sensor = replace(PLAIN, kind="thermal")
    clear, _, warm = signals(WEATHER, sensor, 0.0)
    torch.testing.assert_close(clear, (warm - 190) / 130)
    assert 240 < float(warm.min()) < float(warm.max()) < 330
    thick, _, _ = signals(replace(WEATHER, layers=(replace(LAYER, cooling=70.0),)), sensor, 1e3)
    assert float(thick.max()) < float(clear.min())
    assert float(thick.min()) >= 0
    half, _, _ = signals(WEATHER, sensor, 2 * math.log(2))  # opacity 1/2
    below, _, _ = signals(WEATHER, sensor, 1e3)
    torch.testing.assert_close(half, (clear + torch.minimum(below, clear)) / 2)


def test_land_warms_with_the_sun_and_the_sea_hardly() -> None:
    morning = replace(VIEW, start_minute=360, cadence=60)
    land, sea = (
        signals(
            replace(WEATHER, view=morning, ground=replace(GROUND, land=share, diurnal=30.0)),
            replace(PLAIN, kind="thermal"),
            0.0,
        )[2]
        for share in (1 - 1e-9, 1e-9)
    )
    gain = [float((warm[0, -1] - warm[0, 0]).mean()) for warm in (land, sea)]
    assert gain[0] > 2
    assert 0 < gain[1] < 0.2 * gain[0]


@pytest.mark.parametrize(("night", "value"), [("missing", math.nan), ("dark", 0.0)])
def test_the_terminator_is_where_the_sun_says(night: str, value: float) -> None:
    sensor = replace(PLAIN, kind="index", night=night, night_sine=0.15)
    world = observed(replace(WEATHER, view=WIDE), sensor)
    by_night = world.sine < 0.15
    assert 0.05 < by_night.mean() < 0.95
    np.testing.assert_array_equal(world.values[by_night], np.float32(value))
    assert (world.values[~by_night] > 0).all()
    reflectance = observed(replace(WEATHER, view=WIDE), replace(PLAIN, sun_exponent=0.5, night=night, night_sine=0.15))
    assert (reflectance.values[by_night & (world.sine > 0.05)] > 0).any()  # it follows the sun down to the horizon


def test_space_around_a_disk_is_dark_and_the_limb_darker() -> None:
    disk = replace(WEATHER, view=WHOLE)
    plain, darker = (observed(disk, replace(PLAIN, limb=limb), size=SIZE) for limb in (0.0, 0.4))
    space = (plain.sine == -1).all((0, 1))
    assert 0.1 < space.mean() < 0.9
    assert plain.values[..., space].max() == 0
    assert (darker.values <= plain.values + 1e-6).all()
    assert darker.values[0, 0, 40, 40] == pytest.approx(plain.values[0, 0, 40, 40], rel=0.01)


def test_shading_lights_one_side_and_keeps_the_range() -> None:
    weather = replace(WEATHER, view=replace(VIEW, start_minute=1090))
    plain, shaded = (observed(weather, replace(PLAIN, shading=share)).values for share in (0.0, 1.0))
    assert np.abs(shaded - plain).mean() > 0.01
    assert shaded.min() >= 0
    assert shaded.max() <= 1


def test_a_plain_sensor_gives_the_signal_in_its_units(ramp: Tensor) -> None:
    sensor = replace(PLAIN, gain=255.0, offset=10.0)
    torch.testing.assert_close(made(sensor, ramp), 255 * ramp + 10)
    torch.testing.assert_close(made(replace(sensor, inverted=True), ramp), 255 * (1 - ramp) + 10)


def test_black_white_and_gamma(ramp: Tensor) -> None:
    clipped = made(replace(PLAIN, black=0.1, white=0.6), ramp)
    torch.testing.assert_close(clipped, ((ramp - 0.1) / 0.5).clamp(0, 1))
    torch.testing.assert_close(made(replace(PLAIN, gamma=2.2), ramp), ramp**2.2)


@pytest.mark.parametrize("bits", [8, 10])
def test_bits_are_levels(bits: int) -> None:
    levels = 2**bits - 1
    values = made(replace(PLAIN, bits=bits, gain=float(levels)), torch.rand(1, 2, 64, 64))
    assert (values == values.round()).all()
    assert (float(values.min()), float(values.max())) == (0, levels)


def test_noise_has_its_spread_and_stripes_are_the_same_in_all_frames(ramp: Tensor) -> None:
    middle = 0.2 + 0.6 * ramp
    noisy = made(replace(PLAIN, noise=0.03), middle) - middle
    assert float(noisy.std()) == pytest.approx(0.03, rel=0.05)
    striped = made(replace(PLAIN, striping=0.01), middle) - middle
    torch.testing.assert_close(striped, striped[:1, :1, :, :1].expand_as(striped), atol=1e-6, rtol=0)
    assert float(striped.std()) == pytest.approx(0.01, rel=0.5)
    flickering = made(replace(PLAIN, flicker=0.04), middle) / middle
    torch.testing.assert_close(flickering, flickering[..., :1, :1].expand_as(flickering))
    assert float(flickering.std()) > 0.01


def test_lines_and_parts_are_missing_and_nothing_else(ramp: Tensor) -> None:
    lines = made(replace(PLAIN, lines=0.2), ramp).isnan()
    assert (lines.all(-1) == lines.any(-1)).all()
    assert 0.1 < float(lines.float().mean()) < 0.3
    part = made(replace(PLAIN, holes=1.0), ramp).isnan()
    for one in part.flatten(0, 1):
        assert int(one.sum()) == int(one.any(1).sum()) * int(one.any(0).sum()) > 0
        assert int(one.any(1).sum()) <= 8
    whole = made(replace(PLAIN, holes=1e-9, lines=1e-9), ramp)
    torch.testing.assert_close(whole, ramp)


def test_missing_values_stay_missing_in_a_picture_with_flaws() -> None:
    measured = torch.rand(1, 2, 32, 32)
    measured[..., :10] = math.nan
    flaws = replace(PLAIN, night="missing", blur=0.6, jitter=0.3, noise=0.01, blocks=0.3, overlay=1.0, bits=8)
    found = made(flaws, measured)
    assert bool((found.isnan() == measured.isnan()).all())


def test_blocks_and_lines_over_the_picture() -> None:
    picture = torch.rand(1, 2, 30, 30)  # no multiple of 8
    flat = made(replace(PLAIN, blocks=1.0), picture)
    torch.testing.assert_close(flat[0, 0, :8, :8], picture[0, 0, :8, :8].mean().expand(8, 8))
    assert float(flat[0, 0, 24:, 24:].std()) < 1e-6
    grid = made(replace(PLAIN, overlay=1.0), torch.zeros(1, 3, 64, 64))
    assert 0 < float(grid.mean()) < 0.2
    torch.testing.assert_close(grid, grid[:, :1].expand_as(grid))


def test_blur_and_jitter_keep_what_is_constant() -> None:
    constant = torch.full((1, 2, 16, 16), 0.4)
    torch.testing.assert_close(blurred(constant, 0.7), constant)
    torch.testing.assert_close(jittered(constant, 0.5, torch.Generator().manual_seed(0)), constant)
    point = torch.zeros(1, 1, 15, 15)
    point[0, 0, 7, 7] = 1
    spread = blurred(point, 1.0)
    assert float(spread.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(spread[0, 0, 7, 7] / spread[0, 0, 7, 8]) == pytest.approx(math.exp(0.5), rel=1e-4)


def test_jitter_shifts_frames_by_parts_of_pixels() -> None:
    slope = torch.arange(64.0).expand(1, 40, 64, 64) / 64
    shifts = 64 * (jittered(slope, 0.3, torch.Generator().manual_seed(0)) - slope)[0, :, 32, 32]
    assert float(shifts.std()) == pytest.approx(0.3, rel=0.3)


def test_dark_ground_shows_few_levels_in_eight_bits() -> None:
    world = observed(DARK_GROUND, replace(PLAIN, gamma=2.2, bits=8))
    assert len(np.unique(world.values[0, 0, :8, :8])) < 5
