"""Worlds as a whole: functions of their seed, in the stated units, and archives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metaprior.solar.simulator.worlds import CADENCES, KINDS, draw_world, world
from metaprior.solar.simulator.worlds.wording import in_words

SMALL = {"size": 24, "days": 2, "frames": 4}
UNITS = {
    "reflectance": {"1", "percent", "count"},
    "irradiance": {"W m-2", "1", "count"},
    "index": {"1", "percent", "count"},
    "thermal": {"K", "1", "count"},
}


@pytest.fixture(scope="module")
def worlds() -> list[world.World]:
    return [draw_world(seed, **SMALL) for seed in range(30)]


def test_a_world_is_a_bitwise_function_of_its_seed(worlds: list[world.World]) -> None:
    for seed in (0, 4):
        torch.manual_seed(99)  # nothing else is drawn from
        np.random.seed(99)
        again = draw_world(seed, **SMALL)
        for name in ("values", "sine", "times", "latitude", "longitude"):
            np.testing.assert_array_equal(getattr(again, name), getattr(worlds[seed], name))
        assert (again.weather, again.sensor, again.located) == (
            worlds[seed].weather,
            worlds[seed].sensor,
            worlds[seed].located,
        )
    assert len({one.values.tobytes() for one in worlds}) == len(worlds)


def test_what_is_drawn_does_not_change_between_versions() -> None:
    one = draw_world(7, **SMALL)  # networks were trained on these worlds
    view, layer = one.weather.view, one.weather.layers[0]
    assert (one.kind, view.cadence, layer.texture, len(one.weather.layers)) == ("thermal", 30, "cellular", 2)
    assert view.pixel_km == pytest.approx(38.051, abs=1e-3)
    assert layer.lifetime == pytest.approx(9.840, abs=1e-3)
    assert float(one.values.mean()) == pytest.approx(131.98, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_kind_and_cadence_are_those_asked_for(kind: str) -> None:
    for cadence in (CADENCES[0], CADENCES[-1]):
        one = draw_world(3, kind=kind, cadence=cadence, **SMALL)
        assert (one.kind, one.cadence) == (kind, cadence)
        assert one.values.shape == one.sine.shape == (2, 4, 24, 24)
        assert one.values.dtype == one.sine.dtype == np.float32
        steps = np.diff(one.times, axis=1)
        assert (steps == np.timedelta64(cadence, "m")).all()
        assert (np.diff(one.times, axis=0) == np.timedelta64(1, "D")).all()


def test_units_and_ranges_are_the_stated_ones(worlds: list[world.World]) -> None:
    for one in worlds:
        sensor = one.sensor
        assert sensor.units in UNITS[one.kind]
        low, high = np.nanmin(one.values), np.nanmax(one.values)
        slack = 1e-5 * (abs(sensor.offset) + sensor.gain)
        assert sensor.offset - slack <= low < high <= sensor.offset + sensor.gain + slack
        assert not np.isinf(one.values).any()
        if sensor.bits:
            steps = (one.values[np.isfinite(one.values)] - sensor.offset) / sensor.gain * (2**sensor.bits - 1)
            np.testing.assert_allclose(steps, steps.round(), atol=1e-2)


def test_values_are_missing_only_where_the_sensor_says_so(worlds: list[world.World]) -> None:
    for one in worlds:
        sensor = one.sensor
        nothing_by_night = sensor.night == "missing" and sensor.kind != "thermal"
        if not (sensor.lines or sensor.holes or nothing_by_night):
            assert np.isfinite(one.values).all()


def test_every_day_shows_something(worlds: list[world.World]) -> None:
    assert all(world.is_varied(one) for one in worlds)
    still = replace(worlds[0], values=np.repeat(worlds[0].values[:, :1], 4, axis=1))
    assert not world.is_varied(still)
    assert not world.is_varied(replace(worlds[0], values=np.zeros_like(worlds[0].values)))
    assert not world.is_varied(replace(worlds[0], values=np.full_like(worlds[0].values, np.nan)))


def test_a_seed_without_a_world_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "is_varied", lambda _: False)
    monkeypatch.setattr(world, "ATTEMPTS", 2)
    with pytest.raises(RuntimeError, match="no world of seed 0 with visible clouds in 2 draws"):
        draw_world(0, size=16, days=1, frames=2)


def test_frames_are_those_of_an_archive(worlds: list[world.World]) -> None:
    assert {one.located for one in worlds} == {True, False}
    for one in worlds:
        frames = one.to_frames()
        assert frames.dims == ("time", "y", "x")
        assert (np.diff(frames["time"].values) > np.timedelta64(0)).all()
        np.testing.assert_array_equal(frames.values.reshape(one.values.shape), one.values)
        assert (frames.attrs["units"], frames.attrs["cadence"]) == (one.sensor.units, f"{one.cadence}min")
        assert frames.name == one.kind
        assert ("latitude" in frames.coords) == ("longitude" in frames.coords) == one.located
        if one.located:
            assert (np.diff(frames["latitude"].values) < 0).all() == one.weather.view.north_up


def test_a_world_is_told_in_words(worlds: list[world.World]) -> None:
    for one in worlds:
        product, *clouds, sensor = in_words(one)
        assert product.startswith(f"{one.kind} in {one.sensor.units}, ")
        assert f"every {one.cadence} minutes" in product
        assert len(clouds) == len(one.weather.layers)
        assert all(layer.texture in text for layer, text in zip(one.weather.layers, clouds, strict=True))
        assert ("inverted" in sensor) == one.sensor.inverted
        assert ("8 bits" in sensor) == (one.sensor.bits == 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 8}, "size must be an integer of at least 16, got 8"),
        ({"days": 0}, "days must be"),
        ({"frames": 1}, "frames must be an integer of at least 2"),
        ({"cadence": 7}, r"cadence must be 5, 10, 15, 20, 30, 60 \(minutes\) or None, got 7"),
        ({"kind": "radar"}, "kind must be reflectance, irradiance, index, thermal or None, got 'radar'"),
        ({"frames": 25}, "frames must be at most 24 with 60 minutes between them, or days overlap, got 25"),
        ({"frames": 97, "cadence": 15}, "frames must be at most 96 with 15 minutes"),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_world(0, **arguments)  # type: ignore[arg-type]


def test_a_single_day_may_be_long() -> None:
    assert draw_world(0, size=16, days=1, frames=30, cadence=60).times.shape == (1, 30)
