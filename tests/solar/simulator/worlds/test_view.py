"""Sun and coordinates of a world are those of the sun's module, on maps and on disks."""

import math
from dataclasses import replace

import numpy as np
import pytest

from examples.worlds import VIEW
from metaprior.solar.simulator.worlds import draw_world
from metaprior.solar.simulator.worlds.view import coordinates, sight, times_of
from metaprior.solar.sun import Place, elevation, sine_of_elevation


@pytest.mark.parametrize("kind", ["reflectance", "thermal"])
def test_the_sun_of_a_map_is_that_of_its_coordinates(kind: str) -> None:
    maps = [draw_world(seed, size=16, days=2, frames=3, kind=kind) for seed in range(6)]
    for one in [one for one in maps if not one.weather.view.disk]:
        place = Place.of(one.latitude, one.longitude)
        expected = sine_of_elevation(one.times.ravel(), place).reshape(one.sine.shape)
        np.testing.assert_allclose(one.sine, expected, atol=1e-6)


def test_pixels_have_the_stated_size_in_the_middle() -> None:
    for north_up in (True, False):
        latitude, longitude = coordinates(replace(VIEW, north_up=north_up), 33)
        assert (latitude[16], longitude[16]) == (45.0, 10.0)
        assert np.diff(latitude) == pytest.approx((-1 if north_up else 1) * 6.0 / 111.195)
        assert np.diff(longitude) * math.cos(math.radians(45)) == pytest.approx(6.0 / 111.195)


def test_days_follow_each_other_at_the_same_times() -> None:
    times = times_of(replace(VIEW, day_of_year=365, start_minute=1430), days=2, frames=3)
    assert times[0, 0] == np.datetime64("2023-12-31T23:50")
    assert times[1, 2] == np.datetime64("2024-01-02T00:10")


def disk(pixels: int = 33) -> tuple[object, np.ndarray]:
    view = replace(VIEW, disk=True, latitude=0.0, pixel_km=12000 / pixels, off_centre=(0.0, 0.0), start_minute=480)
    times = times_of(view, 1, 3)
    return sight(view, times, pixels), times


def test_a_disk_has_the_sun_of_its_places_and_space_around_it() -> None:
    seen, times = disk()
    centre = 16
    for row in range(33):
        if seen.slant[row, centre] > 0:  # on the meridian of the satellite
            expected = np.sin(np.radians(elevation(times[0], [float(seen.parallel[row, centre])], [10.0])))[:, 0, 0]
            np.testing.assert_allclose(seen.sine[0, :, row, centre], expected, atol=1e-5)
    assert float(seen.parallel[0:centre, centre].min()) > 0  # north is up
    space = seen.slant == 0
    assert bool(space[0, 0])
    assert not bool(space[centre, centre])
    assert float((~space).float().mean()) == pytest.approx(math.pi * (5428 / 12000) ** 2, abs=0.02)
    assert float(seen.sine[:, :, space].max()) == -1
    assert np.isnan(seen.latitude).all()
    assert np.isnan(seen.longitude).all()
    west, east = seen.sine[0, 0, centre, 6], seen.sine[0, 0, centre, -7]
    assert float(east) > float(west)  # morning: the sun is in the east


def test_clouds_of_a_disk_are_foreshortened_towards_its_limb() -> None:
    seen, _ = disk()
    steps = seen.x[16].diff()
    assert float(steps[16]) == pytest.approx(1.0, abs=0.01)
    inside = seen.slant[16] > 0
    assert float(steps[inside[1:] & inside[:-1]][-1]) > 1.5
    assert float(seen.slant[16, 16]) == pytest.approx(1.0)
