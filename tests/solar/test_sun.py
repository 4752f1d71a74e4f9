import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pvlib import clearsky
from pvlib.solarposition import get_solarposition

from benchmarks.common.data_folder import data_folder
from metaprior.solar import sun
from metaprior.solar.sun import Place, clear_sky, elevation, haurwitz, is_dark, is_night, sine_of_elevation

LATITUDE = np.array([-65.0, -20.0, 0.0, 35.5, 80.0])
LONGITUDE = np.array([-170.0, -3.0, 0.0, 140.7])
TIMES = np.arange("2023-01-03T01:17", "2026-12-20", 41 * 24 * 60 + 311, dtype="datetime64[m]")


def test_elevation_is_that_of_the_solar_position_algorithm_at_every_place() -> None:
    stamps = pd.DatetimeIndex(TIMES).tz_localize("UTC")
    found = elevation(TIMES, LATITUDE, LONGITUDE)
    assert found.shape == (len(TIMES), 5, 4)
    for row, latitude in enumerate(LATITUDE):
        for column, longitude in enumerate(LONGITUDE):
            expected = get_solarposition(stamps, latitude, longitude)["elevation"].to_numpy()
            np.testing.assert_allclose(found[:, row, column], expected, atol=0.005, rtol=0)


def test_the_sun_of_an_equinox_noon_stands_over_the_equator_and_longitudes_may_count_to_360() -> None:
    times = np.array(["2024-03-20T03:06"], dtype="datetime64[m]")  # the equinox; the sun is over 135.3 E
    height = elevation(times, [0.0, 60.0, -60.0], [135.35, 135.35 - 360.0])
    np.testing.assert_allclose(height[0], [[90, 90], [30, 30], [30, 30]], atol=0.1)


def test_clear_sky_is_the_formula_and_zero_at_night() -> None:
    sky = clear_sky(TIMES, LATITUDE, LONGITUDE)
    sine = np.sin(np.radians(elevation(TIMES, LATITUDE, LONGITUDE)))
    up = sine > 0
    np.testing.assert_allclose(sky[up], 1098.0 * sine[up] * np.exp(-0.059 / sine[up]), rtol=1e-10)
    assert (sky[~up] == 0).all()
    assert sky.max() > 900


def test_haurwitz_is_that_of_pvlib_but_for_rounding() -> None:
    zenith = np.concatenate([np.linspace(0.0, 180.0, 7201), [89.9999, 90.0001]])
    expected = clearsky.haurwitz(pd.Series(zenith))["ghi"].to_numpy()
    found = haurwitz(np.cos(np.radians(zenith)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert (found[zenith >= 90] == 0).all()


def test_the_sine_is_that_of_the_elevation_and_a_part_of_a_place_has_a_part_of_it() -> None:
    place = Place.of(LATITUDE, LONGITUDE)
    sine = sine_of_elevation(TIMES, place)
    np.testing.assert_allclose(np.degrees(np.arcsin(sine)), elevation(TIMES, LATITUDE, LONGITUDE), rtol=0, atol=1e-9)
    part = place.part(slice(1, 4), slice(2, 4))
    np.testing.assert_array_equal(sine_of_elevation(TIMES, part), sine[:, 1:4, 2:4])
    np.testing.assert_array_equal(part.latitude, LATITUDE[1:4])
    np.testing.assert_array_equal(place.part([0, -1]).longitude, LONGITUDE)
    np.testing.assert_array_equal(sine_of_elevation(TIMES, place.part([0, -1])), sine[:, [0, -1]])


def test_a_sun_at_the_zenith_has_an_elevation_whatever_the_rounding() -> None:
    assert sun.degrees_of(np.array([1.0 + 1e-15, -1.0 - 1e-15])).tolist() == [90.0, -90.0]


def test_the_position_of_the_sun_is_computed_once_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    compute = sun.get_solarposition
    monkeypatch.setattr(sun, "_DIRECTIONS", {})
    monkeypatch.setattr(
        sun, "get_solarposition", lambda times, *a, **k: asked.append(len(times)) or compute(times, *a, **k)
    )
    times = TIMES[:6]
    first, again = sun.direction(np.concatenate([times[:4], times[:4]])), sun.direction(times)
    assert asked == [4, 2]
    np.testing.assert_array_equal(first, np.concatenate([again[:4], again[:4]]))
    np.testing.assert_array_equal(sun.direction(times[::-1]), again[::-1])
    assert asked == [4, 2]
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("latitude", "longitude", "message"),
    [
        ([[1.0]], [1.0], r"must have the same shape if they are of every pixel, got \(1, 1\) and \(1,\)"),
        ([[[1.0]]], [1.0], r"latitude must be 1-D, .* got shape \(1, 1, 1\)"),
        ([[91.0]], [[1.0]], "latitude must lie within -90 and 90"),
        ([91.0], [1.0], "latitude must lie within -90 and 90"),
        ([1.0], [np.nan], "longitude must lie within -360 and 360"),
    ],
)
def test_invalid_coordinates_are_refused(latitude: list[float], longitude: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        elevation(TIMES[:1], latitude, longitude)


def frames(values: np.ndarray, **coords: tuple[str, np.ndarray]) -> xr.DataArray:
    times = np.datetime64("2024-03-20T03:00", "ns") + np.arange(len(values)) * np.timedelta64(6, "h")
    return xr.DataArray(values, dims=("time", "y", "x"), coords={"time": times, **coords})


def test_night_is_where_the_sun_is_low_when_coordinates_are_known_whatever_the_values() -> None:
    known = frames(np.full((3, 2, 2), np.nan), latitude=("y", [0.0, 40.0]), longitude=("x", [135.0, 315.0]))
    height = elevation(known.time.values, [0.0, 40.0], [135.0, 315.0])
    np.testing.assert_array_equal(is_night(known)[0], [[False, True]] * 2)  # noon at 135 E
    np.testing.assert_array_equal(is_night(known)[2], [[True, False]] * 2)  # midnight
    np.testing.assert_array_equal(is_night(known, min_elevation=70.0), height <= 70.0)


def test_night_is_what_is_dark_when_they_are_not_and_a_patch_gets_the_answer_of_the_whole() -> None:
    values = np.array([[[10.0, 14.0, 14.1], [60.0, 110.0, np.nan]]])
    unknown = frames(values).assign_attrs(data_min=10.0, data_max=110.0)
    expected = np.array([[[True, True, False], [False, False, True]]])
    np.testing.assert_array_equal(is_night(unknown), expected)
    np.testing.assert_array_equal(is_night(unknown[:, :1, 1:]), expected[:, :1, 1:])


def test_without_coordinates_and_range_night_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="neither coordinates nor data_min and data_max"):
        is_night(frames(np.zeros((1, 2, 2))))


def test_the_brightness_rule_finds_night_and_space_on_himawari() -> None:
    path = data_folder() / "himawari9" / "himawari9_lum_30min_256.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there (METAPRIOR_DATA names the folder)")
    archive = np.load(path)
    hours = archive["time"].astype("datetime64[h]").astype(int) % 24
    values = archive["lum"][:48]
    noon, midnight = values[hours[:48] == 3], values[hours[:48] == 15]  # 140.7 E is 9.4 hours ahead
    assert is_dark(noon, 0, 255)[:, 118:138, 118:138].sum() == 0
    assert is_dark(midnight, 0, 255)[:, 118:138, 118:138].all()
    assert is_dark(noon, 0, 255)[:, :20, :20].all()
