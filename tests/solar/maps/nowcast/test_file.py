"""The file of a nowcast: what it holds, and what is refused before anything is computed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
import xarray as xr

from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.nowcast.file import check_geotiff, check_nowcast_path, write_nowcast
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.nowcasting import Nowcast, nowcast_archive
from tests.solar.maps.nowcast.small import moments, nowcaster


@pytest.fixture(scope="module")
def found() -> Nowcast:
    return nowcast_archive(moments().frames, forecaster=nowcaster(), checked=2)


@pytest.mark.parametrize("name", ["forecast.nc", "forecast.zarr"])
def test_netcdf_and_zarr_have_maps_and_what_was_assumed(name: str, found: Nowcast, tmp_path: Path) -> None:
    write_nowcast(tmp_path / name, found)
    with read_forecast(tmp_path / name) as written:
        np.testing.assert_allclose(written["mean"].values[0], found.forecast.mean[0].numpy(), rtol=1e-5)
        assert written.attrs["title"].startswith("Nowcast of")
        assert "15 minutes apart" in written.attrs["comment"]
        assert written.sizes["lead_time"] == 4


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rasterio's own
def test_a_geotiff_has_a_band_for_each_map_with_the_north_on_top(found: Nowcast, tmp_path: Path) -> None:
    write_nowcast(tmp_path / "forecast.tif", found)
    place = found.moments.place
    assert place is not None
    with rasterio.open(tmp_path / "forecast.tif") as written:
        assert written.count == 16
        assert written.crs.to_epsg() == 4326
        row, column = written.index(float(place.longitude[3]), float(place.latitude[5]))
        value = written.read(1)[row, column]
        assert written.descriptions[0].startswith("mean, 2023")
    assert value == pytest.approx(float(found.forecast.mean[0, 0, 5, 3]), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rasterio's own
def test_a_geotiff_across_the_date_line_and_of_a_projection(found: Nowcast, tmp_path: Path) -> None:
    frames = found.moments.frames
    across = frames.assign_coords(longitude=("x", (np.linspace(179, 181, frames.shape[2]) + 180) % 360 - 180))
    check_geotiff(tmp_path / "a.tif", across)
    metres = {"standard_name": "projection_y_coordinate"}
    axes = {"y": ("y", 1000.0 * np.arange(frames.shape[1]), metres), "x": 1000.0 * np.arange(frames.shape[2])}
    projected = replace(found, moments=Moments(frames.drop_vars(("latitude", "longitude")).assign_coords(axes)))
    write_nowcast(tmp_path / "b.tif", projected)
    with rasterio.open(tmp_path / "b.tif") as written:
        value = written.read(1)[written.index(3000, 5000)]
    assert value == pytest.approx(float(found.forecast.mean[0, 0, 5, 3]), rel=1e-5)


def test_a_geotiff_of_uneven_places_is_refused_at_once(found: Nowcast, tmp_path: Path) -> None:
    frames = found.moments.frames
    latitude, longitude = np.meshgrid(frames.latitude, frames.longitude, indexing="ij")
    curved = frames.assign_coords(latitude=(("y", "x"), latitude), longitude=(("y", "x"), longitude))
    with pytest.raises(ValueError, match=r"ends in \.nc or \.zarr"):
        check_geotiff(tmp_path / "a.tif", curved)
    check_geotiff(tmp_path / "a.nc", curved)


def test_files_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    there = tmp_path / "there.nc"
    xr.Dataset().to_netcdf(there, engine="netcdf4")
    (tmp_path / "there.tif").touch()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        check_nowcast_path(there, None, overwrite=False)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        check_nowcast_path(tmp_path / "there.tif", None, overwrite=False)
    with pytest.raises(ValueError, match=r"must end in \.html"):
        check_nowcast_path(None, tmp_path / "page.pdf", overwrite=False)
    with pytest.raises(FileNotFoundError, match="make it first"):
        check_nowcast_path(None, tmp_path / "missing" / "page.html", overwrite=False)
    check_nowcast_path(there, tmp_path / "page.html", overwrite=True)
