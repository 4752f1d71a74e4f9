"""Clouds move with the wind by the promised pixels, and cover the promised share."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from examples.worlds import DAY, HIGH, LAYER, VIEW, WEATHER
from metaprior.solar.simulator.worlds.clouds import MOST_PIXELS, mean_displacements, optical_depths, torus_of
from metaprior.solar.simulator.worlds.parameters import Weather
from metaprior.solar.simulator.worlds.texture import amplitude, white
from metaprior.solar.simulator.worlds.view import sight, times_of
from metaprior.solar.simulator.worlds.wind import NODES, at_places, displacements, disturbance, nodes, sampled


def depths(weather: Weather, size: int = 32, frames: int = 4) -> list[Tensor]:
    seen = sight(weather.view, times_of(weather.view, len(weather.days), frames), size)
    return optical_depths(weather, seen, frames, torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("wind", "north_up", "pixels"),
    [((10.0, 0.0), True, (0.0, 1.0)), ((0.0, 20.0), True, (-2.0, 0.0)), ((0.0, 20.0), False, (2.0, 0.0))],
)
def test_mean_wind_moves_clouds_by_its_pixels(
    wind: tuple[float, float], north_up: bool, pixels: tuple[float, float]
) -> None:
    layer = replace(LAYER, wind=wind, lifetime=math.inf)
    weather = replace(WEATHER, view=replace(VIEW, north_up=north_up), layers=(layer,))  # 10 minutes, pixels of 6 km
    step = mean_displacements(weather, layer, 3)
    torch.testing.assert_close(step, torch.tensor(pixels).expand(1, 3, 2), atol=1e-5, rtol=0)
    (depth,) = depths(weather)
    moved = depth[0, 0].roll(tuple(round(2 * part) for part in pixels), (0, 1))
    inner = slice(4, -4)
    torch.testing.assert_close(depth[0, 2, inner, inner], moved[inner, inner], atol=2e-3, rtol=2e-3)


def test_wind_turns_during_the_day_is_limited_and_may_stand_still() -> None:
    turning = replace(WEATHER, days=(replace(DAY, turning=1.0),))
    step = mean_displacements(turning, LAYER, 5)[0]
    angles = torch.atan2(-step[:, 0], step[:, 1])
    torch.testing.assert_close(angles, torch.linspace(-0.5, 0.5, 5))
    fast = mean_displacements(WEATHER, replace(LAYER, wind=(300.0, 400.0)), 2)
    torch.testing.assert_close(fast.norm(dim=-1), torch.full((1, 2), MOST_PIXELS))
    windy = replace(WEATHER, days=(replace(DAY, wind=(5.0, 5.0)),))
    assert mean_displacements(windy, replace(LAYER, wind=(0.0, 0.0)), 2).abs().max() == 0


@pytest.mark.parametrize("cover", [0.15, 0.5, 0.85])
def test_clouds_cover_the_stated_share(cover: float) -> None:
    layer = replace(LAYER, cover=cover, plateau=1.0, outer_km=30.0, slope=4.2)
    (depth,) = depths(replace(WEATHER, layers=(layer,), days=(DAY,) * 60), frames=2)
    share = float((depth > 0.5 * layer.depth).float().mean())  # sigmoid(0) = 1/2 at the edge
    assert share == pytest.approx(cover, abs=0.03)


def test_flat_decks_are_no_thicker_than_their_depth_and_heaps_are() -> None:
    deck, heap = (depths(replace(WEATHER, layers=(replace(LAYER, plateau=p),)))[0] for p in (1.0, 0.0))
    assert float(deck.min()) >= 0
    assert float(deck.max()) <= LAYER.depth
    assert float(heap.max()) > LAYER.depth


def test_each_layer_has_its_depths_and_the_first_is_not_changed_by_others() -> None:
    one, two = depths(WEATHER), depths(replace(WEATHER, layers=(LAYER, HIGH)))
    assert (len(one), len(two)) == (1, 2)
    torch.testing.assert_close(one[0], two[0], rtol=0, atol=0)


def test_growth_fronts_cells_and_patches_change_clouds_as_stated() -> None:
    (growing,) = depths(replace(WEATHER, days=(replace(DAY, growth=2.0),)))
    assert float(growing[0, -1].mean()) > 1.5 * float(growing[0, 0].mean())
    front = replace(DAY, front=5.0, front_angle=0.0)  # cloudy below the middle, clear above
    (divided,) = depths(replace(WEATHER, days=(front,)))
    assert float(divided[0, :, 24:].mean()) > 100 * float(divided[0, :, :8].mean())
    moving = replace(front, front_speed=1.0)  # a map's side an hour, so half of it in four frames of 10 minutes
    (later,) = depths(replace(WEATHER, days=(moving,)))
    cloudy_rows = (later[0].mean(-1) > 1).float().sum(-1)
    assert float(cloudy_rows[0] - cloudy_rows[-1]) == pytest.approx(16, abs=4)
    plain = depths(WEATHER)[0]
    (heaps,) = depths(replace(WEATHER, layers=(replace(LAYER, cells=50, cell_km=30.0),)))
    assert float((heaps - plain).min()) >= 0
    assert float(heaps.mean()) > float(plain.mean())
    (patchy,) = depths(replace(WEATHER, layers=(replace(LAYER, patchiness=0.9),)))
    assert float((patchy / plain).log().std()) == pytest.approx(0.9, abs=0.3)


def test_a_swirl_displaces_without_changing_how_much_there_is() -> None:
    plain, curled = (depths(replace(WEATHER, layers=(replace(LAYER, swirl=s),)), size=48)[0] for s in (0.0, 0.15))
    assert float((plain - curled).abs().mean()) > 1
    assert float(curled.mean()) == pytest.approx(float(plain.mean()), rel=0.25)


def test_constant_wind_displaces_by_its_multiples_and_a_wind_of_places_follows_the_air() -> None:
    torus, frames = 56, 5
    constant = torch.tensor([0.5, -1.0]).expand(1, NODES, NODES, 2)
    found = displacements(constant, torch.zeros(1, frames, 2), torus)
    for frame in range(frames):
        expected = (frame - frames // 2) * torch.tensor([0.5, -1.0])
        torch.testing.assert_close(found[0, frame], expected[:, None, None].expand(2, NODES, NODES))
    rotation = disturbance(replace(DAY, rotation=1.0), torch.Generator())
    found = displacements(rotation[None], torch.zeros(1, frames, 2), torus)
    y, x = nodes()
    there = torch.stack([y, x], -1)
    for _ in range(2):  # by hand: V is linear in the place, and moves by V pixels
        velocity = torch.stack([there[..., 1], -there[..., 0]], -1)
        there = there - velocity * 2 / torus
    home = torch.stack([y, x], -1)
    by_hand = (home - there) * torus / 2
    inner = slice(6, -6)
    torch.testing.assert_close(found[0, -1].permute(1, 2, 0)[inner, inner], by_hand[inner, inner], atol=1e-4, rtol=1e-4)


def test_fields_of_the_torus_are_read_at_pixels_and_beyond_its_edge() -> None:
    fields = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    y, x = torch.meshgrid(torch.arange(-4.0, 20.0), torch.arange(-3.0, 30.0), indexing="ij")
    read = sampled(fields, y.expand(2, -1, -1), x.expand(2, -1, -1))
    torch.testing.assert_close(read, fields[:, y.long() % 16, x.long() % 16], atol=1e-4, rtol=0)
    maps = nodes()[0].expand(1, 2, NODES, NODES)
    torch.testing.assert_close(at_places(maps, y, x, 56)[0, 0], y * 2 / 56, atol=1e-5, rtol=0)


def test_reading_between_pixels_smooths_only_the_finest_textures() -> None:
    y, x = torch.meshgrid(torch.arange(32) + 0.5, torch.arange(32) + 0.5, indexing="ij")
    for slope, outer, least, most in ((2.2, 3.0, 0.78, 0.88), (3.2, 25.0, 0.95, 1.0)):
        noise = white(200, 32, torch.Generator().manual_seed(0))
        fields = torch.fft.irfft2(noise * amplitude(32, slope, outer), s=(32, 32), norm="ortho")
        between = sampled(fields, y.expand(200, -1, -1), x.expand(200, -1, -1))
        assert least < float(between.std() / fields.std()) < most


@pytest.mark.parametrize(("size", "torus"), [(16, 32), (128, 224), (100, 176)])
def test_the_torus_is_larger_than_the_map(size: int, torus: int) -> None:
    assert torus_of(size) == torus
