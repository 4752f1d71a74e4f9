"""What is drawn follows the laws of docs/solar/worlds.md."""

import math

import numpy as np
import pytest

from metaprior.solar.simulator.worlds.drawing import draw_kind, draw_sensor, draw_weather, log_uniform, sometimes
from metaprior.solar.simulator.worlds.parameters import CADENCES, KINDS, TEXTURES, Sensor, Weather

SIZE, FRAMES = 64, 6


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Weather, Sensor]]:
    found = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        kind = draw_kind(rng)
        weather = draw_weather(rng, kind, None, SIZE, 2, FRAMES)
        found.append((weather, draw_sensor(rng, kind, weather.view.disk)))
    return found


def share(values: list[bool]) -> float:
    return sum(values) / len(values)


def test_shares_of_kinds_disks_and_layers(drawn: list[tuple[Weather, Sensor]]) -> None:
    kinds = [sensor.kind for _, sensor in drawn]
    assert [kinds.count(kind) / len(kinds) for kind in KINDS] == pytest.approx([0.5, 0.25, 0.1, 0.15], abs=0.06)
    assert share([weather.view.disk for weather, _ in drawn]) == pytest.approx(0.15, abs=0.05)
    counts = [len(weather.layers) for weather, _ in drawn]
    assert [counts.count(n) / len(counts) for n in (1, 2, 3)] == pytest.approx([0.45, 0.4, 0.15], abs=0.07)
    assert {weather.view.cadence for weather, _ in drawn} == set(CADENCES)
    assert {layer.texture for weather, _ in drawn for layer in weather.layers} == set(TEXTURES)


def test_views_are_on_the_earth_and_clouds_cross_few_pixels(drawn: list[tuple[Weather, Sensor]]) -> None:
    moved = []
    for weather, _ in drawn:
        view = weather.view
        assert abs(view.latitude) + view.pixel_km * SIZE / 111.2 / 2 <= 78.01 or view.latitude == 0
        assert abs(view.latitude) <= 60
        assert view.pixel_km * SIZE <= (13057 if view.disk else 9501)
        assert 1 <= view.day_of_year <= 365
        assert view.start_minute % 5 == 0
        assert 0 <= view.start_minute < 1440
        moved.append(math.hypot(*weather.layers[0].wind) * view.cadence * 0.06 / view.pixel_km)
    assert max(moved) <= 6.0
    assert share([0.05 <= pixels <= 3 or pixels == 0 for pixels in moved]) > 0.85


def test_layers_days_and_ground_are_within_their_ranges(drawn: list[tuple[Weather, Sensor]]) -> None:
    for weather, _ in drawn:
        width = weather.view.pixel_km * SIZE
        for number, layer in enumerate(weather.layers):
            thin = number > 0
            assert 2.2 + 0.7 * thin <= layer.slope <= 4.2
            assert 0.08 * width <= layer.outer_km <= 1.2 * width
            assert 1 <= layer.stretch <= 2
            assert 0 <= layer.swirl <= 0.25
            assert 0.02 < layer.cover <= 0.96
            assert 0.3 <= layer.lifetime <= 10
            assert 1.6 <= layer.depth <= 40
            assert layer.cells == 0 or (5 <= layer.cells < 60 and not weather.view.disk)
            assert layer.cell_km >= 1.2 * weather.view.pixel_km
        for day in weather.days:
            assert 0.02 <= day.front_width <= 0.4
            assert abs(day.front_place) <= 0.4
            assert 0 <= day.waviness <= 0.6
            assert abs(day.jet) <= 1.2
        ground = weather.ground
        assert 0.02 <= ground.sea_albedo <= ground.land_albedo <= 0.35
        assert ground.bright == 0 or 0.35 <= ground.bright <= 0.8
    assert len({day.cloudiness for weather, _ in drawn for day in weather.days}) == 2 * len(drawn)


def test_sensors_are_within_their_ranges(drawn: list[tuple[Weather, Sensor]]) -> None:
    for weather, sensor in drawn:
        assert sensor.bits in (0, 8, 10)
        assert 0.4 <= sensor.gamma <= 2.2
        assert 0 <= sensor.black < 0.5 < sensor.white <= 1.3
        assert 0 <= sensor.noise <= 0.03
        assert 0.35 <= sensor.blur <= 1.2
        assert sensor.jitter == 0 or 0.05 <= sensor.jitter <= 1.0
        assert sensor.gain > 0
        assert sensor.limb == 0 or (weather.view.disk and sensor.kind == "reflectance")
        assert sensor.kind == "reflectance" or sensor.sun_exponent == sensor.shading == 0
        assert not (sensor.inverted and sensor.kind in ("irradiance", "index"))
    thermal = [sensor.inverted for _, sensor in drawn if sensor.kind == "thermal"]
    assert share(thermal) == pytest.approx(0.5, abs=0.2)
    assert share([sensor.jitter > 0 for _, sensor in drawn]) == pytest.approx(0.424, abs=0.08)


def test_windows_begin_by_day_but_for_low_suns_and_thermal_products() -> None:
    from metaprior.solar.simulator.worlds.view import sight, times_of

    least = []
    for seed in range(60):
        weather = draw_weather(np.random.default_rng(seed), "index", 15, 16, 1, 4)
        sine = sight(weather.view, times_of(weather.view, 1, 4), 16).sine
        if not weather.view.disk:
            least.append(float(sine[0, :, 8, 8].min()))
    assert share([value > 0.17 for value in least]) > 0.55
    assert 0.1 < share([value < 0.15 for value in least]) < 0.45


def test_laws() -> None:
    rng = np.random.default_rng(0)
    values = np.array([log_uniform(rng, 1.0, 100.0) for _ in range(2000)])
    assert 1 <= values.min() < values.max() <= 100
    assert np.median(values) == pytest.approx(10, rel=0.15)
    rare = np.array([sometimes(rng, 0.2, 2.0, 3.0) for _ in range(2000)])
    assert (rare > 0).mean() == pytest.approx(0.2, abs=0.04)
    assert rare[rare > 0].min() >= 2
