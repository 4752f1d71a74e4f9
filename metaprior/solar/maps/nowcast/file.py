"""The file of a nowcast: NetCDF or Zarr as ``write_forecast`` has it, or a GeoTIFF with a band for each map."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from metaprior.files import written_when_complete
from metaprior.solar.maps.forecast_file import check_forecast_path, write_forecast
from metaprior.solar.maps.nowcast.nowcasting import Nowcast
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
    names, maps = _bands(found)
    frames = found.moments.frames
    shape = {"count": len(maps), "height": maps.shape[1], "width": maps.shape[2], "dtype": "float32"}
    how = {"driver": "GTiff", "nodata": math.nan, "compress": "deflate", **shape, **_georeference(found)}
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
    upside_down = place is not None and place.latitude.ndim == 1 and place.latitude[0] < place.latitude[-1]
    return names, whole[:, ::-1] if upside_down else whole


def _georeference(found: Nowcast) -> dict[str, object]:
    """Return reference system and transform, if latitudes and longitudes are known and evenly spaced."""
    place = found.moments.place
    if place is None:
        return {}
    latitude, longitude = np.sort(place.latitude)[::-1].astype(float), place.longitude.astype(float)
    down, right = np.diff(latitude, axis=0), np.diff(longitude, axis=-1)
    if latitude.ndim > 1 or not (np.allclose(down, down[0], rtol=1e-3) and np.allclose(right, right[0], rtol=1e-3)):
        raise ValueError(
            "a GeoTIFF needs latitudes and longitudes that are evenly spaced, and these are not. Write .nc instead"
        )
    from rasterio.transform import from_origin  # type: ignore[import-untyped,import-not-found,unused-ignore]

    corner = float(longitude[0] - right[0] / 2), float(latitude[0] - down[0] / 2)
    return {"crs": "EPSG:4326", "transform": from_origin(*corner, float(right[0]), float(-down[0]))}


def _rasterio() -> Any:
    try:
        import rasterio  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a GeoTIFF needs rasterio ({error}): pip install 'metaprior[geotiff]'", name=error.name
        ) from error
    return rasterio
