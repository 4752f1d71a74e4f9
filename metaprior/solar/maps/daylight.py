"""Windows in daylight without missing values: those that tasks are made of, and at which forecasts are issued."""

import numpy as np
import xarray as xr

from metaprior.solar import sun
from metaprior.solar.maps.archives.archive import Times, Values
from metaprior.solar.maps.units import Place
from metaprior.solar.maps.windows import Window, WindowReader

MIN_ELEVATION = 10.0
"""Default elevation of the sun in degrees above which a window counts as daylight."""
MIN_BRIGHTNESS = 0.08
"""Mean brightness of a patch in daylight, as a share of the archive's range, where the sun's position is not known."""


class UnusableWindow(ValueError):
    """A window is not in daylight, or values are missing; the message says which."""


def read_in_daylight(reader: WindowReader, window: Window, min_elevation: float, count: int | None = None) -> Values:
    """Read a window, or its first ``count`` frames, if all its times are in daylight and no value is missing.

    Daylight is told by the sun where coordinates are known, otherwise by the mean brightness of the frames read.

    Raises:
        UnusableWindow: If the window is dark or values are missing. Nothing is read if the sun is too low.
    """
    times, place = reader.times(window), reader.place(window)
    if place is not None and (lowest := lowest_sun(times, place)) < min_elevation:
        raise UnusableWindow(
            f"from {utc(times[0])} to {utc(times[-1])}, the frames to see and to forecast, the sun goes down to "
            f"{lowest:.1f} degrees, and windows must have at least {min_elevation:g} (tasks.min_elevation)"
        )
    values = reader.read(window, count)
    span = f"in the {len(values)} frames from {utc(times[0])} to {utc(times[len(values) - 1])}"
    if not np.isfinite(values).all():
        raise UnusableWindow(f"values are missing {span}")
    if place is None and not is_bright(values, reader.frames):
        raise UnusableWindow(f"it is dark {span}")
    return values


def lowest_sun(times: Times, place: Place) -> float:
    """Return the sun's lowest elevation in degrees over these times and this place."""
    # Along a column the sun is lowest at an end; along a row that holds for patches, but not around the Earth.
    return float(sun.elevation(times, place.latitude[[0, -1]], place.longitude).min())


def is_bright(values: Values, frames: xr.DataArray) -> bool:
    """Return whether each of some frames (T, H, W) is bright enough for daylight, by the range of their archive."""
    low, high = frames.attrs["data_min"], frames.attrs["data_max"]
    return bool(values.mean((1, 2)).min() >= low + MIN_BRIGHTNESS * (high - low))


def utc(time: np.datetime64) -> str:
    """Return a time to the minute, for messages."""
    return f"{str(time.astype('datetime64[m]')).replace('T', ' ')} UTC"
