"""The file of a nowcast: NetCDF or Zarr as ``write_forecast`` has it, or a GeoTIFF with a band for each map."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from metaprior.files import written_when_complete
from metaprior.solar.maps.forecast_file import check_forecast_path, write_forecast
from metaprior.solar.maps.nowcast.nowcasting import Nowcast
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.maps.windows import utc

GEOTIFF = (".tif", ".tiff")
BANDS = (0.05, 0.5, 0.95)
"""Quantiles that a GeoTIFF has besides the mean."""


def check_nowcast_path(out: Path | None, page: Path | None, *, overwrite: bool) -> None:
    """Raise if one of the files cannot be written there, before anything is computed."""
    if out is not None and out.suffix in GEOTIFF:
        _rasterio()
        _check(out, GEOTIFF, overwrite)
    elif out is not None:
        check_forecast_path(out, overwrite=overwrite)
    if page is not None:
        _check(page, (".html",), overwrite)


def _check(path: Path, endings: tuple[str, ...], overwrite: bool) -> None:
    if path.suffix not in endings:
        raise ValueError(f"{path}: the name must end in {' or '.join(endings)}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Give another name, or overwrite=True (--overwrite) to replace it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")


def write_nowcast(path: Path, found: Nowcast, *, overwrite: bool = False) -> None:
    """Write the forecast, with what was assumed and how far to trust it as attributes of the file."""
    if path.suffix in GEOTIFF:
        _write_geotiff(path, found)
        return
    moments = found.moments
    comment = ". ".join([*found.assumed, *found.trusted])
    write_forecast(
        path,
        found.forecast,
        issued=np.array([found.issued]),
        cadence=str(moments.frames.attrs["cadence"]),
        like=moments.frames[:1],
        attrs={"title": f"Nowcast of {moments.frames.attrs.get('long_name', 'frames')}", "comment": comment},
        overwrite=overwrite,
    )


def _write_geotiff(path: Path, found: Nowcast) -> None:
    rasterio = _rasterio()
    frames = found.moments.frames
    georeference = _georeference(frames)
    names, maps = _bands(found)
    shape = {"count": len(maps), "height": maps.shape[1], "width": maps.shape[2], "dtype": "float32"}
    how = {"driver": "GTiff", "nodata": math.nan, "compress": "deflate", **shape, **georeference}
    with written_when_complete(path) as temporary, rasterio.open(temporary, "w", **how) as target:
        target.write(maps)
        target.descriptions = names
        target.update_tags(issued=utc(found.issued), units=str(frames.attrs.get("units", "1")))


def _bands(found: Nowcast) -> tuple[list[str], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return names and maps (B, H, W) with the north on top."""
    quantiles = found.forecast.quantile(list(BANDS))[:, 0].numpy()
    mean = found.forecast.mean[0].numpy()
    names, maps = [], []
    for lead, valid in enumerate(found.valid):
        names += [f"mean, {utc(valid)}", *(f"quantile {level:g}, {utc(valid)}" for level in BANDS)]
        maps += [mean[lead], *quantiles[:, lead]]
    whole = np.stack(maps).astype(np.float32)
    place = found.moments.place
    rows = place.latitude if place is not None else found.moments.frames.coords.get("y")
    return names, whole[:, ::-1] if rows is not None and float(rows[0]) < float(rows[-1]) else whole


def check_geotiff(out: Path | None, frames: xr.DataArray) -> None:
    """Raise if the file is a GeoTIFF, which the frames are too uneven for."""
    if out is not None and out.suffix in GEOTIFF:
        _georeference(frames)


def _georeference(frames: xr.DataArray) -> dict[str, object]:
    """Return the transform where rows and columns have coordinates, and the reference system of degrees."""
    degrees = has_coordinates(frames)
    names = ("latitude", "longitude") if degrees else ("y", "x")
    if not set(names) <= set(frames.coords) or min(frames.shape[1:]) < 2:
        return {}
    rows, columns = (frames[name].values.astype(float) for name in names)
    if degrees and columns.ndim == 1:
        columns = np.unwrap(columns, period=360.0)  # across the date line
    down, right = np.diff(np.sort(rows, axis=0)[::-1], axis=0), np.diff(columns, axis=-1)
    if rows.ndim > 1 or not (np.allclose(down, down[0], rtol=1e-2) and np.allclose(right, right[0], rtol=1e-2)):
        raise ValueError(
            "a GeoTIFF needs rows and columns at even steps, and the latitudes and longitudes of these frames are "
            "not. Give --out a name that ends in .nc or .zarr"
        )
    from rasterio.transform import from_origin  # type: ignore[import-untyped,import-not-found,unused-ignore]

    transform = from_origin(columns[0] - right.mean() / 2, rows.max() - down.mean() / 2, right.mean(), -down.mean())
    return {"transform": transform, **({"crs": "EPSG:4326"} if degrees else {})}


def _rasterio() -> Any:
    try:
        import rasterio  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a GeoTIFF needs rasterio ({error}): pip install 'metaprior[geotiff]'", name=error.name
        ) from error
    return rasterio
