r"""Elevation of the sun, irradiance under a cloudless sky, and night, on grids of latitudes and longitudes (T, Y, X).

The direction of the sun in a frame that turns with the Earth does not depend on the place (up to 0.0024 degrees, the
sun's parallax). So pvlib's solar position algorithm (SPA: Reda and Andreas 2004) is called once for each time, at
latitude and longitude zero, and the elevation at any place is

$$\sin h = \cos\varphi\,(s_x\cos\lambda + s_y\sin\lambda) + s_z\sin\varphi,$$

with $s$ that direction, $\varphi$ the latitude and $\lambda$ the longitude: as exact as SPA, at one product per pixel.
This sine is what irradiance and networks need, so it is computed once (``sine_of_elevation``) and passed on. Times are
UTC.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pvlib.solarposition import get_solarposition  # type: ignore[import-untyped]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NIGHT_ELEVATION = 5.0
"""Degrees. Below it satellites hardly see clouds, and irradiance is a few per cent of that at noon."""

DARK_SHARE = 0.04
"""Share of an archive's range, from its darkest value, that counts as dark where coordinates are not known."""


class Place(NamedTuple):
    """Latitudes and longitudes of pixels in degrees, with the trigonometry that the sun's elevation needs.

    They are those of rows and columns, (Y,) and (X,), or both of every pixel, (Y, X), as satellites' own projections
    have them; NaN is a pixel that sees no place. ``Place.of`` computes a place, ``part`` cuts one out.
    """

    latitude: NDArray[np.floating]
    """Degrees north, (Y,) or (Y, X)."""
    longitude: NDArray[np.floating]
    """Degrees east, of any revolution, (X,) or (Y, X)."""
    of_rows: Floats
    """Cosine and sine of the latitude, (2, Y) or (2, Y, X)."""
    of_columns: Floats
    """Cosine and sine of the longitude, (2, X) or (2, Y, X)."""

    @classmethod
    def of(cls, latitude: ArrayLike, longitude: ArrayLike) -> "Place":
        """Return the place with these coordinates; raise ValueError unless they fit each other and their limits."""
        if np.ndim(latitude) == 2 and np.shape(latitude) != np.shape(longitude):
            raise ValueError(
                "latitude and longitude must have the same shape if they are of every pixel, got "
                f"{np.shape(latitude)} and {np.shape(longitude)}"
            )
        pixels = np.ndim(latitude) == 2
        phi = _radians(latitude, "latitude", limit=90.0, pixels=pixels)
        lambda_ = _radians(longitude, "longitude", limit=360.0, pixels=pixels)
        of_rows, of_columns = (np.stack([np.cos(angle), np.sin(angle)]) for angle in (phi, lambda_))
        return cls(np.asarray(latitude), np.asarray(longitude), of_rows, of_columns)

    @property
    def of_pixels(self) -> bool:
        """Whether every pixel has coordinates of its own."""
        return self.latitude.ndim == 2

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.latitude.shape[0], self.longitude.shape[-1]

    def part(self, rows: slice | list[int], columns: slice | list[int] = slice(None)) -> "Place":
        """Return the place of some rows and columns."""
        if not self.of_pixels:
            of_rows, of_columns = self.of_rows[:, rows], self.of_columns[:, columns]
            return Place(self.latitude[rows], self.longitude[columns], of_rows, of_columns)
        return Place(
            self.latitude[rows][:, columns],
            self.longitude[rows][:, columns],
            self.of_rows[:, rows][:, :, columns],
            self.of_columns[:, rows][:, :, columns],
        )

    def thinned(self, most: int) -> "Place":
        """Return the place of at most so many rows and columns, evenly spread, the first and the last among them."""
        rows, columns = (np.unique(np.linspace(0, size - 1, most).astype(int)).tolist() for size in self.shape)
        return self.part(rows, columns)


def sine_of_elevation(times: ArrayLike, place: Place) -> Floats:
    """Return the sine of the elevation of the sun's centre above the horizon, (T, Y, X), without refraction.

    ``times`` are datetime64 in UTC, (T,). Rounding can carry the sine of a sun at the zenith past one.
    """
    (cos_phi, sin_phi), (cos_lambda, sin_lambda) = place.of_rows, place.of_columns
    if place.of_pixels:
        x, y, z = direction(times).T[:, :, None, None]  # each (T, 1, 1)
        return np.asarray(cos_phi * (x * cos_lambda + y * sin_lambda) + z * sin_phi)
    x, y, z = direction(times).T[:, :, None]  # each (T, 1)
    meridional = x * cos_lambda + y * sin_lambda  # (T, X)
    sine: Floats = cos_phi[:, None] * meridional[:, None, :]
    sine += (z * sin_phi)[:, :, None]
    return sine


def degrees_of(sine: Floats | np.float64) -> Floats:
    """Return elevations in degrees from their sines."""
    return np.asarray(np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0))))


def elevation(times: ArrayLike, latitude: ArrayLike, longitude: ArrayLike) -> Floats:
    """Return the elevation of the sun's centre above the horizon in degrees, (T, Y, X), without refraction.

    The result is within 0.005 degrees of pvlib's SPA. Refraction lifts the sun by 0.5 degrees at the horizon and by
    less than 0.2 above 5 degrees. ``times`` are datetime64 in UTC (T,), ``latitude`` is in degrees north (Y,),
    ``longitude`` in degrees east (X,), of any revolution; both may be those of every pixel (Y, X).
    """
    return degrees_of(sine_of_elevation(times, Place.of(latitude, longitude)))


def clear_sky(times: ArrayLike, latitude: ArrayLike, longitude: ArrayLike) -> Floats:
    """Return global horizontal irradiance under a cloudless sky in W m-2, (T, Y, X), as ``haurwitz`` has it."""
    return haurwitz(sine_of_elevation(times, Place.of(latitude, longitude)))


def haurwitz(sine: Floats) -> Floats:
    r"""Return global horizontal irradiance under a cloudless sky in W m-2, of the sine's shape; zero at night.

    $1098\,s\,e^{-0.059/s}$ with the sine $s$ of the sun's elevation (Haurwitz 1945, 1946). The model depends on the
    sun's height alone: no aerosol, water vapour, altitude or distance of the sun (3.4 % over a year), and it was
    fitted near Boston. Of the models that need only the zenith angle it has the smallest monthly error (Reno, Hansen
    and Stein 2012); expect an error of 5 to 10 %, more with the sun below 10 degrees.
    """
    above = np.maximum(sine, 1e-5)  # where the exponential is zero in float64 already
    return np.asarray(1098.0 * above * np.exp(-0.059 / above))


def is_night(frames: xr.DataArray, *, min_elevation: float = NIGHT_ELEVATION) -> Bools:
    """Return where it is night in a block of frames from ``open_frames``, bool (T, Y, X).

    With coordinates, night is where the sun is not higher than ``min_elevation`` degrees, and values are not read.
    Without, it is where the frames are dark (``is_dark``). A part of the frames gives the same answer as the whole.
    """
    if "latitude" in frames.coords and "longitude" in frames.coords:
        height = elevation(frames["time"].values, frames["latitude"].values, frames["longitude"].values)
        return ~(height > min_elevation)  # also where a pixel sees no place
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


_DIRECTIONS: dict[int, tuple[float, ...]] = {}
"""Directions by time: the algorithm takes milliseconds per call, and tasks need the same times repeatedly."""


def direction(times: ArrayLike) -> Floats:
    """Return unit vectors (T, 3) to the sun; the axes go through (0 N, 0 E), (0 N, 90 E) and the north pole."""
    moments = np.atleast_1d(np.asarray(times)).astype("datetime64[ns]").astype(np.int64).tolist()
    if any(moment not in _DIRECTIONS for moment in moments):
        new = [moment for moment in dict.fromkeys(moments) if moment not in _DIRECTIONS]
        seen = get_solarposition(pd.to_datetime(new, utc=True), 0.0, 0.0, method="nrel_numpy")
        zenith, azimuth = np.radians(seen["zenith"].to_numpy()), np.radians(seen["azimuth"].to_numpy())
        across = np.sin(zenith)
        vectors = np.stack([np.cos(zenith), across * np.sin(azimuth), across * np.cos(azimuth)], axis=1)
        _DIRECTIONS.update(zip(new, map(tuple, vectors.tolist()), strict=True))
    return np.array([_DIRECTIONS[moment] for moment in moments])


def _radians(values: ArrayLike, name: str, *, limit: float, pixels: bool) -> Floats:
    degrees = np.asarray(values, dtype=np.float64)
    if degrees.ndim != 1 + pixels:
        raise ValueError(
            f"{name} must be 1-D, one value for each row or column (or both 2-D, one for each pixel), got shape "
            f"{degrees.shape}"
        )
    if not ((np.abs(degrees) <= limit) | (np.isnan(degrees) if pixels else False)).all():
        raise ValueError(f"{name} must lie within {-limit:g} and {limit:g} degrees, got {degrees}")
    return np.radians(degrees)
