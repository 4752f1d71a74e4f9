"""Latitudes and longitudes of every pixel: reduced to rows and columns where these suffice, else kept."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from metaprior.forecasts import GaussianForecast
from metaprior.solar import sun
from metaprior.solar.maps import MetaSolarPredictionDataset, WindowReader, read_forecast, write_forecast
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.archives.geostationary import degrees_of_angles
from metaprior.solar.maps.units import ClearSkyIndex, has_coordinates
from metaprior.solar.maps.windows import Window, lowest_sun
from metaprior.solar.sun import Place
from tests.solar.maps.archives.test_frames import half_hours, ramp

GEOSTATIONARY = {"grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0}
LATITUDE, LONGITUDE = 50 - 0.1 * np.arange(3), 8 + 0.1 * np.arange(4)


def curved(latitude: np.ndarray, longitude: np.ndarray, count: int = 5, *, stated: bool = True) -> xr.Dataset:
    places = {"lat": (("y", "x"), latitude, {"units": "degrees_north"}), "lon": (("y", "x"), longitude)}
    frames = {"ghi": (("time", "y", "x"), ramp(count, *latitude.shape), {"units": "W m-2"})}
    metres = {"y": ("y", 1000.0 * np.arange(len(latitude))[::-1], {"units": "m"})}
    if stated:
        return xr.Dataset(frames, {"time": half_hours(count), **places, **metres})
    return xr.Dataset({**frames, **places}, {"time": half_hours(count), **metres})


@pytest.mark.parametrize("stated", [True, False])
def test_a_regular_grid_stays_one_and_is_turned_to_the_north(stated: bool, tmp_path: Path) -> None:
    latitude, longitude = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    curved(latitude + 1e-5 * np.arange(4), longitude, stated=stated).to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    assert (frames.latitude.dims, frames.longitude.dims) == (("y",), ("x",))
    np.testing.assert_allclose(frames.latitude, LATITUDE[::-1], atol=1e-4)
    np.testing.assert_array_equal(frames.values, ramp(5)[:, ::-1])
    assert "latitude and longitude of every pixel are those of its row and its column" in frames.attrs["findings"]


def tilted(rows: int = 3, columns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of a grid that is not along parallels."""
    y, x = np.mgrid[:rows, :columns]
    return 50 - 0.1 * y + 0.02 * x, 8 + 0.1 * x + 0.03 * y


def test_other_grids_keep_the_coordinates_of_every_pixel(tmp_path: Path) -> None:
    latitude, longitude = tilted()
    latitude[0, 3] = longitude[0, 3] = -999.0  # it sees no place
    curved(latitude, longitude).to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    latitude[0, 3] = longitude[0, 3] = np.nan
    assert frames.latitude.dims == frames.longitude.dims == ("y", "x")
    np.testing.assert_array_equal(frames.latitude, latitude[::-1])
    np.testing.assert_array_equal(frames.longitude, longitude[::-1])
    np.testing.assert_array_equal(frames.y, [0, 1000, 2000])
    np.testing.assert_array_equal(frames.values, ramp(5)[:, ::-1])
    assert has_coordinates(frames)
    assert sun.is_night(frames[:2])[:, -1, 3].all(), "space is night"
    assert not sun.is_night(frames[:2])[:, :2].any()


@pytest.mark.parametrize(
    ("sweep", "centre", "x", "y", "latitude", "longitude"),
    [
        ("x", -75.0, -0.024052, 0.095340, 33.846162, -84.690932),  # the example of the GOES-R users' guide
        ("y", 0.0, 0.0, 0.0, 0.0, 0.0),
        ("y", 140.7, 0.151, 0.151, np.nan, np.nan),  # space
    ],
)
def test_scan_angles_are_degrees(
    sweep: str, centre: float, x: float, y: float, latitude: float, longitude: float
) -> None:
    about = {"longitude_of_projection_origin": centre, "sweep_angle_axis": sweep, **GEOSTATIONARY}
    for scale in (1.0, 35786023.0):  # radians, and metres
        if scale > 1 and x == 0:
            continue
        found = degrees_of_angles(np.array([scale * x]), np.array([scale * y]), about)
        np.testing.assert_allclose(np.ravel(found), [latitude, longitude], atol=2e-5)


def test_files_with_scan_angles_get_degrees(tmp_path: Path) -> None:
    about = {"longitude_of_projection_origin": 0.0, "sweep_angle_axis": "y", **GEOSTATIONARY}
    y, x = ("y", np.linspace(0.14, 0.12, 5), {"units": "rad"}), ("x", np.linspace(0.0, 0.01, 6), {"units": "rad"})
    frames = (("time", "y", "x"), ramp(4, 5, 6), {"units": "W m-2", "grid_mapping": "fixed_grid"})
    content = xr.Dataset({"dsr": frames, "fixed_grid": ((), 0, about)}, {"time": half_hours(4), "y": y, "x": x})
    content.to_netcdf(tmp_path / "a.nc")
    opened = open_frames(tmp_path / "a.nc")
    assert "latitude and longitude computed from the satellite's scan angles" in opened.attrs["findings"]
    assert opened.latitude.dims == ("y", "x")
    assert 40 < float(opened.latitude[0, 0]) < float(opened.latitude[-1, 0]) < 65
    np.testing.assert_array_equal(opened.values, ramp(4, 5, 6)[:, ::-1])


def test_scenes_that_move_are_refused(tmp_path: Path) -> None:
    for moved in (0.0, 0.5):
        latitude, longitude = tilted()
        content = curved(latitude + moved, longitude, count=8)
        for number in range(8):
            content.isel(time=[number]).to_netcdf(tmp_path / f"{number}.nc")
            content["lat"] = content["lat"] + moved
        if moved:
            with pytest.raises(ValueError, match="latitude and longitude of the pixels differ between files"):
                open_frames(tmp_path)
        else:
            assert open_frames(tmp_path).latitude.dims == ("y", "x")


def test_the_sun_over_pixels_is_that_over_rows_and_columns() -> None:
    latitude, longitude = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    pixels, axes = Place.of(latitude, longitude), Place.of(LATITUDE, LONGITUDE)
    assert pixels.shape == axes.shape == (3, 4)
    expected = sun.sine_of_elevation(half_hours(3), axes)
    np.testing.assert_allclose(sun.sine_of_elevation(half_hours(3), pixels), expected, atol=1e-14)
    part = sun.sine_of_elevation(half_hours(3), pixels.part(slice(1, 3), slice(0, 2)))
    np.testing.assert_allclose(part, expected[:, 1:, :2], atol=1e-14)
    wide = Place.of(*np.meshgrid(np.linspace(40, 60, 300), np.linspace(0, 40, 400), indexing="ij"))
    assert wide.thinned(128).shape == (128, 128)
    corners = wide.part([0, -1], [0, -1])
    assert lowest_sun(half_hours(5), wide) == lowest_sun(half_hours(5), corners)
    with pytest.raises(ValueError, match="must have the same shape if they are of every pixel"):
        Place.of(latitude, LONGITUDE)
    with pytest.raises(ValueError, match="latitude must be 1-D"):
        Place.of(latitude[None], longitude[None])


def test_tasks_and_forecasts_of_a_tilted_grid(tmp_path: Path) -> None:
    curved(*tilted(8, 9), count=14).to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    tasks = MetaSolarPredictionDataset(
        frames, input_len=2, target_len=1, k_shot=1, k_query=2, patch=4, units=ClearSkyIndex(), by="time"
    )
    task = tasks[0]
    assert task.support.x.shape == (1, 3, 4, 4)  # type: ignore[union-attr]
    reader = WindowReader(frames, 2, 1, ClearSkyIndex(), 4)
    place = reader.place(Window(0, 2, 3))
    assert place is not None
    np.testing.assert_array_equal(place.latitude, frames.latitude.values[2:6, 3:7])
    means = xr.DataArray(np.ones((2, 1, 1, 4, 4), np.float32)).values
    import torch

    forecast = GaussianForecast(torch.from_numpy(means), torch.ones(2, 1, 1, 4, 4))
    like = reader.block(Window(0, 2, 3))
    write_forecast(
        tmp_path / "f.nc", forecast, issued=frames.time.values[1:2], cadence="30min", like=like, progress=False
    )
    with read_forecast(tmp_path / "f.nc") as back:
        assert back["mean"].dims[-2:] == ("y", "x")
        np.testing.assert_allclose(back["latitude"].values, like.latitude.values)
