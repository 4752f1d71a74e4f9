r"""Elevation of the sun, irradiance under a cloudless sky, and night, on grids of latitudes and longitudes (T, Y, X).

The direction of the sun in a frame that turns with the Earth does not depend on the place (up to 0.0024 degrees, the
sun's parallax). So pvlib's solar position algorithm (SPA: Reda and Andreas 2004) is called once for each time, at
latitude and longitude zero, and the elevation at any place is

$$\sin h = \cos\varphi\,(s_x\cos\lambda + s_y\sin\lambda) + s_z\sin\varphi,$$

with $s$ that direction, $\varphi$ the latitude and $\lambda$ the longitude: as exact as SPA, at one product per pixel.
Times are UTC.
"""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pvlib.clearsky import haurwitz  # type: ignore[import-untyped]
from pvlib.solarposition import get_solarposition  # type: ignore[import-untyped]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NIGHT_ELEVATION = 5.0
"""Degrees. Below it satellites hardly see clouds, and irradiance is a few per cent of that at noon."""

DARK_SHARE = 0.04
"""Share of an archive's range, from its darkest value, that counts as dark where coordinates are not known."""


def elevation(times: ArrayLike, latitude: ArrayLike, longitude: ArrayLike) -> Floats:
    """Return the elevation of the sun's centre above the horizon in degrees, (T, Y, X), without refraction.

    The result is within 0.005 degrees of pvlib's SPA. Refraction lifts the sun by 0.5 degrees at the horizon and by
    less than 0.2 above 5 degrees. ``times`` are datetime64 in UTC (T,), ``latitude`` is in degrees north (Y,),
    ``longitude`` in degrees east (X,), of any revolution.
    """
    phi, lambda_ = _radians(latitude, "latitude", limit=90.0), _radians(longitude, "longitude", limit=360.0)
    x, y, z = direction(times).T[:, :, None]  # each (T, 1)
    meridional = x * np.cos(lambda_) + y * np.sin(lambda_)  # (T, X)
    sine = np.cos(phi)[:, None] * meridional[:, None, :] + (z * np.sin(phi))[:, :, None]
    # Rounding can carry the sine of a sun at the zenith past one.
    return np.asarray(np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0))))


def clear_sky(times: ArrayLike, latitude: ArrayLike, longitude: ArrayLike) -> Floats:
    r"""Return global horizontal irradiance under a cloudless sky in W m-2, (T, Y, X); zero when the sun is down.

    $1098\,\cos z\,e^{-0.059/\cos z}$ with the zenith angle $z$ (Haurwitz 1945, 1946; from pvlib). The model depends on
    the sun's height alone: no aerosol, water vapour, altitude or distance of the sun (3.4 % over a year), and it was
    fitted near Boston. Of the models that need only the zenith angle it has the smallest monthly error (Reno, Hansen
    and Stein 2012); expect an error of 5 to 10 %, more with the sun below 10 degrees.
    """
    zenith = 90.0 - elevation(times, latitude, longitude)
    return np.asarray(haurwitz(pd.Series(zenith.ravel()))["ghi"].to_numpy().reshape(zenith.shape))


def is_night(frames: xr.DataArray, *, min_elevation: float = NIGHT_ELEVATION) -> Bools:
    """Return where it is night in a block of frames from ``open_frames``, bool (T, Y, X).

    With coordinates, night is where the sun is not higher than ``min_elevation`` degrees, and values are not read.
    Without, it is where the frames are dark (``is_dark``). A part of the frames gives the same answer as the whole.
    """
    if "latitude" in frames.coords and "longitude" in frames.coords:
        height = elevation(frames["time"].values, frames["latitude"].values, frames["longitude"].values)
        return height <= min_elevation
    missing = [name for name in ("data_min", "data_max") if name not in frames.attrs]
    if missing:
        raise ValueError(
            "frames must have latitude and longitude, or the attributes data_min and data_max, to tell night; got "
            f"neither coordinates nor {' and '.join(missing)}. Take frames from open_frames, and keep their attributes "
            "(xr.set_options(keep_attrs=True))"
        )
    return is_dark(frames.values, frames.attrs["data_min"], frames.attrs["data_max"])


def is_dark(values: NDArray[Any], data_min: float, data_max: float) -> Bools:
    """Return which pixels are dark: those in the lowest ``DARK_SHARE`` of the archive's range.

    The rule is elementwise, so cutting out a patch changes nothing. Pixels that are never lit (space around a disc) and
    missing values (NaN) are dark. On full-disc Himawari-9 frames (uint8, 19 days) it takes 0.1 % of the pixels with a
    sun above 5 degrees for night, and 0.02 % of those with a sun below -5 degrees for day.
    """
    return ~(values > data_min + DARK_SHARE * (data_max - data_min))


_DIRECTIONS: dict[int, Floats] = {}
"""Directions by time: the algorithm takes milliseconds per call, and tasks need the same times repeatedly."""


def direction(times: ArrayLike) -> Floats:
    """Return unit vectors (T, 3) to the sun; the axes go through (0 N, 0 E), (0 N, 90 E) and the north pole."""
    moments = np.atleast_1d(np.asarray(times)).astype("datetime64[ns]").astype(np.int64).tolist()
    new = [moment for moment in dict.fromkeys(moments) if moment not in _DIRECTIONS]
    if new:
        seen = get_solarposition(pd.to_datetime(new, utc=True), 0.0, 0.0, method="nrel_numpy")
        zenith, azimuth = np.radians(seen["zenith"].to_numpy()), np.radians(seen["azimuth"].to_numpy())
        across = np.sin(zenith)
        vectors = np.stack([np.cos(zenith), across * np.sin(azimuth), across * np.cos(azimuth)], axis=1)
        _DIRECTIONS.update(zip(new, vectors, strict=True))
    return np.stack([_DIRECTIONS[moment] for moment in moments])


def _radians(values: ArrayLike, name: str, *, limit: float) -> Floats:
    degrees = np.asarray(values, dtype=np.float64)
    if degrees.ndim != 1:
        raise ValueError(f"{name} must be 1-D, one value for each row or column, got shape {degrees.shape}")
    if not (np.abs(degrees) <= limit).all():
        raise ValueError(f"{name} must lie within {-limit:g} and {limit:g} degrees, got {degrees}")
    return np.radians(degrees)
