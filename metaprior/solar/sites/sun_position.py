r"""The sun over many plants at once: elevation, azimuth and mean clear-sky irradiance of intervals, (plants, T).

A place is a latitude $\varphi$ and a solar offset $o$ in hours: the mean solar time is the time of the stamps plus
$o$. For stamps in UTC the offset is the longitude divided by 15; for any other clock it is whatever the power itself
tells (``sun_path.py``), and nothing here needs to know which. With the declination $\delta$ and the equation of time
$E$ in hours of the Astronomical Almanac (0.01 degrees between 1950 and 2050) the hour angle is
$\omega = 15\,(t + o + E - 12)$ degrees, and

$$\sin h = \sin\varphi\sin\delta + \cos\varphi\cos\delta\cos\omega.$$

Everything is a few array operations: thousands of windows take milliseconds. ``solar/sun.py`` has the slower exact
algorithm, which is the reference of the tests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Times = NDArray[np.datetime64]

J2000 = np.datetime64("2000-01-01T12:00:00", "s")
PARTS = 6
"""Moments of an interval at which the irradiance of its mean is evaluated: 10 minutes apart in an hour."""


@dataclass(frozen=True)
class SunOfIntervals:
    """The sun during intervals (plants, T): elevation and azimuth at their middle, mean clear-sky irradiance.

    ``elevation`` is in degrees without refraction, ``azimuth`` in degrees clockwise from north, ``clear_sky`` the mean
    global horizontal irradiance of a cloudless sky over the interval in W m-2.
    """

    elevation: Floats
    azimuth: Floats
    clear_sky: Floats


def sun_of_intervals(times: Times, step: int, latitude: ArrayLike, solar_offset: ArrayLike) -> SunOfIntervals:
    """Return the sun during intervals for every plant.

    Args:
        times: Begins of the intervals, datetime64, (T,) for all plants or (plants, T).
        step: Length of an interval in seconds.
        latitude: Degrees north, a number or (plants,).
        solar_offset: Mean solar time minus the time of the stamps in hours, a number or (plants,); for stamps in UTC
            the longitude in degrees east divided by 15.

    Returns:
        Arrays (plants, T), or (T,) where both the place and the times are those of one plant.
    """
    middle: Times = np.add(times.astype("datetime64[s]"), np.timedelta64(step // 2, "s"))
    latitude, omega, declination = _angles(middle, latitude, solar_offset)
    constant, swing = np.sin(latitude) * np.sin(declination), np.cos(latitude) * np.cos(declination)
    sine = np.clip(constant + swing * np.cos(omega), -1.0, 1.0)
    azimuth = np.arctan2(
        -np.cos(declination) * np.sin(omega),
        np.cos(latitude) * np.sin(declination) - np.sin(latitude) * np.cos(declination) * np.cos(omega),
    )
    turn = np.radians(step / 240.0)  # the Earth turns by one degree in 240 seconds
    moments = [(part + 0.5) / PARTS - 0.5 for part in range(PARTS)]
    clear = sum(haurwitz(constant + swing * np.cos(omega + moment * turn)) for moment in moments) / PARTS
    return SunOfIntervals(np.degrees(np.arcsin(sine)), np.degrees(azimuth) % 360.0, np.asarray(clear))


def haurwitz(sine: Floats) -> Floats:
    r"""Return clear-sky irradiance $1098\,s\,e^{-0.059/s}$ in W m-2 for the sine of the elevation, 0 at night."""
    up = np.maximum(sine, 1e-3)
    return np.where(sine > 1e-3, 1098.0 * up * np.exp(-0.059 / up), 0.0)


def declination_and_equation_of_time(times: Times) -> tuple[Floats, Floats]:
    """Return the sun's declination in radians and the equation of time (true minus mean solar time) in hours."""
    days = (times.astype("datetime64[s]") - J2000) / np.timedelta64(86400, "s")
    mean_longitude = np.radians((280.460 + 0.9856474 * days) % 360.0)
    anomaly = np.radians((357.528 + 0.9856003 * days) % 360.0)
    longitude = mean_longitude + np.radians(1.915 * np.sin(anomaly) + 0.020 * np.sin(2.0 * anomaly))
    obliquity = np.radians(23.439 - 4e-7 * days)
    ascension = np.arctan2(np.cos(obliquity) * np.sin(longitude), np.cos(longitude))
    ahead = (mean_longitude - ascension + np.pi) % (2.0 * np.pi) - np.pi
    return np.arcsin(np.sin(obliquity) * np.sin(longitude)), ahead * 12.0 / np.pi


def hours_of_day(times: Times) -> Floats:
    """Return the hours since midnight of the stamps' clock."""
    seconds = times.astype("datetime64[s]").astype(np.int64) % 86400
    return np.asarray(seconds / 3600.0)


def _angles(moments: Times, latitude: ArrayLike, solar_offset: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return latitude (plants, 1), hour angle (plants, T) and declination (T,) or (plants, T), in radians."""
    phi, offset = np.asarray(latitude, np.float64)[..., None], np.asarray(solar_offset, np.float64)[..., None]
    if not (np.abs(phi) <= 90.0).all():
        raise ValueError(f"latitude must lie within -90 and 90 degrees, got {np.asarray(latitude)}. Try degrees north.")
    declination, equation = declination_and_equation_of_time(moments)
    omega = np.radians(15.0 * (hours_of_day(moments) + equation + offset - 12.0))
    return np.radians(phi), omega, declination
