r"""Clouds, temperature, rain and snow of many places at once, as processes in time.

The cloudiness of a place is

$$c(t) = \bar c + A\,\mathrm{season}(t) + \sigma_f\,f(t) + C\,e_d\,\mathrm{afternoon}(t),$$

with fronts $f$ (Ornstein-Uhlenbeck, hours to days) and a strength $e_d$ of convection drawn for each day. At the
events of a Poisson process the sky takes a new regime, the interval of ``EDGES`` in which $c(t)$ plus new noise lies;
it stays until the next event. A regime has a cloud cover $q$ and an optical thickness. The share of the sun that
clouds hide is $g = \mathrm{sigmoid}(s\,(z - \Phi^{-1}(1 - q)))$ with single clouds $z$ (Ornstein-Uhlenbeck, minutes to
an hour), and the clear-sky index

$$k = (1 - g)\,(1 + 4\,\epsilon\,g)\,h + g\,\tau,$$

with the transmission $\tau$ of the clouds (log-normal, slower than single clouds), the gain $\epsilon$ beside cloud
edges and the transmission $h$ of thin cloud. Fog lies over that in the morning until it burns off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri  # type: ignore[import-untyped]

from metaprior.solar.sites.simulator.climates import Climate
from metaprior.solar.sites.simulator.processes import (
    Purpose,
    Singles,
    normals,
    ornstein_uhlenbeck,
    random_of,
    smoothed,
    uniforms,
)

EDGES = np.array([-0.8, -0.45, 0.05, 0.75, 1.6], np.float32)
"""Cloudiness between the regimes clear, thin, scattered, broken, overcast and rain."""

COVER = np.array([0.01, 0.05, 0.3, 0.7, 0.985, 0.998])
"""Share of the sun that the clouds of each regime hide, on average."""

THICKNESS = np.log(np.array([1.3, 1.3, 1.4, 1.2, 1.0, 0.5], np.float32))
"""Logarithm of the transmission of each regime's clouds, relative to ``Climate.overcast``."""

THIN = np.array([0.03, 1.0, 0.15, 0.4, 0.0, 0.0], np.float32)
"""Amount of thin cloud in each regime."""

RAIN = 5
TRANSITION_HOURS = 0.35
THICKNESS_HOURS = 2.5
YEAR_DAYS = 365.25
MIDSUMMER_DAY = 172.0


@dataclass(frozen=True)
class Clock:
    """Solar time of many places, each array (plants, T)."""

    hour: Singles  # local mean solar time, 0 to 24
    day: NDArray[np.int32]  # number of the local day since the first
    season: Singles  # years since the local midsummer
    step_hours: float

    @property
    def days(self) -> int:
        """Days that a record can touch."""
        return int(self.day[:, -1].max()) + 1


@dataclass(frozen=True)
class Weather:
    """The weather of many places."""

    clear_sky_index: Singles  # (plants, T)
    temperature: Singles  # (plants, T), degrees Celsius
    turbidity: Singles  # (plants, T), Linke
    rain: NDArray[np.bool_]  # (plants, days)
    snow: NDArray[np.bool_]  # (plants, days)


def clock_of(start: NDArray[np.datetime64], longitude: Any, latitude: Any, step: float, count: int) -> Clock:
    """Return the solar time of plants whose records begin at ``start`` (plants,), in steps of ``step`` seconds.

    Times are the middles of the steps.
    """
    longitude, latitude = np.asarray(longitude), np.asarray(latitude)
    day_of_year = (start - start.astype("datetime64[Y]").astype("datetime64[s]")) / np.timedelta64(1, "D")
    within = (start - start.astype("datetime64[D]")) / np.timedelta64(1, "h")
    hours = (within + longitude / 15 + 24)[:, None] + (np.arange(count) + 0.5) * (step / 3600)
    days = np.floor(hours / 24)
    half_year = np.where(latitude >= 0, 0.0, 0.5)
    first = (np.floor(day_of_year) - MIDSUMMER_DAY) / YEAR_DAYS + half_year
    return Clock(
        hour=(hours - 24 * days).astype(np.float32),
        day=(days - days[:, :1]).astype(np.int32),
        season=(first[:, None] + hours / (24 * YEAR_DAYS)).astype(np.float32),
        step_hours=step / 3600,
    )


def weather_of(climates: list[Climate], latitude: Any, clock: Clock, *, seed: int, plants: Sequence[int]) -> Weather:
    """Return the weather of these plants' places, a function of seed and plant number alone.

    Args:
        climates: The climate of each place.
        latitude: Degrees north, (plants,).
        clock: Solar time of each place.
        seed: Seed of the fleet.
        plants: Numbers of the plants in the fleet.
    """
    count = clock.hour.shape[1]
    of = Columns(climates)
    days = _Days.draw(seed, plants, clock.days)
    fronts = ornstein_uhlenbeck(normals(seed, plants, Purpose.FRONTS, count), of.front_hours[:, 0] / clock.step_hours)
    regime = _regimes(of, clock, fronts, days, seed=seed, plants=plants)
    index = _cloudy(of, clock, regime, seed=seed, plants=plants)
    _add_fog(index, of, clock, days)
    temperature = _temperature(of, np.asarray(latitude), clock, fronts, index)
    rain, snow = _rain_and_snow(regime, temperature, clock, days)
    season = 1 + of.turbidity_season * np.cos(2 * np.pi * clock.season)
    haze = np.exp(of.turbidity_spread * _by_day(days.haze, clock))
    turbidity = np.clip(of.turbidity * season * haze, 1.2, 12).astype(np.float32)
    return Weather(index, temperature, turbidity, rain, snow)


class Columns:
    """The fields of many dataclasses as arrays (plants, 1), by attribute."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __getattr__(self, name: str) -> Any:
        column = np.array([getattr(item, name) for item in self._items], np.float32)[:, None]
        setattr(self, name, column)
        return column


@dataclass(frozen=True)
class _Days:
    """Random numbers of each local day, (plants, days); ``haze`` and ``damp`` last for some days."""

    convection: Singles
    haze: Singles
    damp: Singles
    burn_off: Singles
    fog: Singles
    chance: Singles

    @classmethod
    def draw(cls, seed: int, plants: Sequence[int], days: int) -> "_Days":
        white = np.empty((6, len(plants), days), np.float32)
        for row, plant in enumerate(plants):
            white[:, row] = random_of(seed, plant, Purpose.DAYS).standard_normal((days, 6), np.float32).T
        lasting = np.full(len(plants), 2.5)
        white[1], white[2] = ornstein_uhlenbeck(white[1], lasting), ornstein_uhlenbeck(white[2], lasting)
        white[0] = np.exp(0.6 * white[0] - 0.18)
        return cls(*white)


def _by_day(values: Singles, clock: Clock) -> Singles:
    """Return the values (plants, days) at each step, (plants, T)."""
    return np.take_along_axis(values, clock.day, axis=1)


def _regimes(
    of: Columns, clock: Clock, fronts: Singles, days: _Days, *, seed: int, plants: Sequence[int]
) -> NDArray[np.int8]:
    """Return the number of the regime, (plants, T)."""
    phase = np.cos(2 * np.pi * (clock.season - of.cloudy_season))
    season = np.tanh(of.sharpness * phase) / np.tanh(of.sharpness)
    summer = 0.5 + 0.5 * np.cos(2 * np.pi * clock.season)
    after = (clock.hour - of.convection_hour) / 2.2
    afternoon = np.exp(-0.5 * after**2) * (0.3 + 0.7 * summer)
    cloudiness = of.cloudiness + of.season * season + of.fronts * fronts
    cloudiness += of.convection * _by_day(days.convection, clock) * afternoon
    cloudiness += of.regime_spread * normals(seed, plants, Purpose.REGIMES, clock.hour.shape[1])
    jumps = uniforms(seed, plants, Purpose.JUMPS, clock.hour.shape[1]) < -np.expm1(-clock.step_hours / of.regime_hours)
    jumps[:, 0] = True
    latest = np.maximum.accumulate(np.where(jumps, np.arange(jumps.shape[1], dtype=np.int32), 0), axis=1)
    drawn = np.searchsorted(EDGES, cloudiness.ravel()).astype(np.int8).reshape(cloudiness.shape)
    return np.take_along_axis(drawn, latest, axis=1)


def _cloudy(of: Columns, clock: Clock, regime: NDArray[np.int8], *, seed: int, plants: Sequence[int]) -> Singles:
    """Return the clear-sky index without fog, (plants, T)."""
    count = regime.shape[1]
    transition = np.full(len(plants), TRANSITION_HOURS / clock.step_hours)
    threshold = smoothed(ndtri(1 - COVER).astype(np.float32)[regime], transition)
    clouds = ornstein_uhlenbeck(normals(seed, plants, Purpose.CLOUDS, count), of.cumulus_hours[:, 0] / clock.step_hours)
    hidden = 1 / (1 + np.exp(-of.contrast * (clouds - threshold)))
    thickness = ornstein_uhlenbeck(
        normals(seed, plants, Purpose.THICKNESS, count), np.full(len(plants), THICKNESS_HOURS / clock.step_hours)
    )
    through = np.log(of.overcast) + smoothed(THICKNESS[regime], transition) + of.thickness_spread * thickness
    through = np.minimum(np.exp(through), 0.9)
    thin = smoothed(THIN[regime], transition) * of.thin * np.exp(0.5 * thickness)
    veiled = np.maximum(1 - thin, 0.4)
    return np.asarray((1 - hidden) * (1 + 4 * of.enhancement * hidden) * veiled + hidden * through, np.float32)


def _add_fog(index: Singles, of: Columns, clock: Clock, days: _Days) -> None:
    """Lay fog over the clear-sky index, in place."""
    season = 0.5 + 0.5 * np.cos(2 * np.pi * (clock.season - of.fog_season))
    foggy = _by_day(days.damp, clock) < ndtri(np.clip(of.fog * season, 1e-6, 0.95))
    burn_off = of.burn_off + of.burn_off_spread * _by_day(days.burn_off, clock)
    hidden = foggy / (1 + np.exp((clock.hour - burn_off) / 0.4))
    through = np.clip(0.3 * np.exp(0.3 * _by_day(days.fog, clock)), 0.1, 0.7)
    index += hidden * (np.minimum(index, through) - index)


def _temperature(of: Columns, latitude: NDArray[np.float64], clock: Clock, fronts: Singles, index: Singles) -> Singles:
    """Return the temperature of the air in degrees Celsius, (plants, T)."""
    far = np.maximum(np.abs(latitude) - 12, 0)[:, None].astype(np.float32)
    mean = 27 - 0.5 * far + of.warmth
    season = of.temperature_season * np.abs(latitude)[:, None] * np.cos(2 * np.pi * (clock.season - 0.07))
    day = of.temperature_day * (0.3 + 0.7 * index) * np.cos(2 * np.pi * (clock.hour - 15) / 24)
    return np.asarray(mean + season + day - 0.06 * far * fronts, np.float32)


def _rain_and_snow(
    regime: NDArray[np.int8], temperature: Singles, clock: Clock, days: _Days
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the days on which it rains and those on which it snows, each (plants, days)."""
    plants, length = days.chance.shape
    cell = (clock.day + length * np.arange(plants, dtype=np.int32)[:, None]).ravel()
    steps = np.maximum(np.bincount(cell, minlength=plants * length), 1)
    wet = np.bincount(cell, (regime.ravel() == RAIN).astype(np.float32), plants * length) / steps
    warmth = np.bincount(cell, temperature.ravel(), plants * length) / steps
    falls = (wet.reshape(days.chance.shape) > 0.15) & (days.chance > -0.5)
    cold = warmth.reshape(days.chance.shape) < 0.5
    return falls & ~cold, falls & cold
