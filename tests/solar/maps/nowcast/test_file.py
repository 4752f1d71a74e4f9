"""The file of a nowcast: what it holds, and what is refused before anything is computed."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
import xarray as xr

from metaprior.solar.maps.forecast_file import read_forecast
from metaprior.solar.maps.nowcast.file import check_nowcast_path, write_nowcast
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
