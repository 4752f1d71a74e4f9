r"""Weather that is known in advance, as a base forecast of the power.

Irradiance in kW/m2 is a base forecast as it is, and so is, where the place is known, the clear-sky irradiance $g$ under
a cloud cover $n$ (Kasten and Czeplak 1980), $g\,(1 - 0.75\,n^{3.4})$: the support days show their scale. What any other
column (humidity, temperature, ceiling, ...) says about the power is learned from the support days in closed form,

$$p_h = c_h\,(w_0 + w^\top z_h) + \varepsilon_h,\qquad w_j \sim N(0, \tau^2),\qquad \varepsilon_h \sim N(0, \sigma^2),$$

where $c$ is the clear-sky irradiance, or the mean profile of the support days if the place is not known, and $z$ the
columns, standardised over the support days. Support hours get the forecast of the other support days, so that their
errors are those of a forecast, and the network can judge it as it judges every base forecast.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import BASE, HOUR, Plant
from metaprior.solar.sites.sun_position import Floats, sun_of_intervals

IRRADIANCE = re.compile(r"gti|poa|tilted|ghi|global|shortwave|short_wave|ssrd|irradi|radiation")
"""Names of irradiance, the best first: on the modules, horizontal, unspecified."""
NOT_IRRADIANCE = re.compile(r"dni|dhi|direct|diffuse|beam|long|clear|net|extra|terrestrial|uv|index")
CLOUD_COVER = re.compile(r"cloud_?(cover|fraction|amount|area)|cloudiness|total_cloud|(^|_)(tcc|clouds)($|_)")
OTHER_WEATHER = re.compile(
    r"temp|humid|dew|wind|pressure|precip|rain|snow|visib|ceiling|cloud|(^|_)(t2m|rh|uv)($|_)|irradi|radiation|dni|dhi"
)
MEASURED = re.compile(r"module|panel|cell|inverter|measured|back")
"""Names of what is measured at the plant, and of which there is no forecast."""
NOT_WEATHER = re.compile(r"clear_?sky|extra|zenith|altitude|azimuth")

Use = Literal["auto", "always", "never"]
"""Whether a backtest reads weather: if it goes on after the power as forecasts do, always, or never."""

TAU, SIGMA = 0.3, 0.42
"""Standard deviations of what a standardised column changes in the index, and of its errors; hours of a day are alike,
so that an error of 0.3 counts as one of 0.42."""
FEWEST_DAYS = 2
"""Support days with power and weather from which a forecast is learned."""
FARTHEST = 3.0
"""Standard deviations at which weather that is unlike the support days is cut off."""
HIGHEST = 1.5
LEAST_CLEAR = 0.02


class Weather(NamedTuple):
    """The columns of a plant that tell of its future power, by what they are; "" where there is none."""

    irradiance: str
    clouds: str
    others: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for name in (self.irradiance, self.clouds, *self.others) if name))


def weather_columns(names: Mapping[str, object]) -> Weather:
    """Return which columns are irradiance, cloud cover and other weather, by their names."""
    plain = {name: re.sub(r"[^0-9a-z]+", "_", name.lower()) for name in names if name != BASE}
    plain = {name: text for name, text in plain.items() if not MEASURED.search(text) and not NOT_WEATHER.search(text)}
    bright = [name for name, text in plain.items() if IRRADIANCE.search(text) and not NOT_IRRADIANCE.search(text)]
    order = IRRADIANCE.pattern.split("|")
    bright.sort(key=lambda name: next(i for i, word in enumerate(order) if word in plain[name]))
    clouds = [name for name, text in plain.items() if CLOUD_COVER.search(text)]
    others = [name for name, text in plain.items() if OTHER_WEATHER.search(text)]
    return Weather(bright[0] if bright else "", clouds[0] if clouds else "", tuple(others))


def with_base(plant: Plant) -> Plant:
    """Return an hourly plant in shares of its capacity with irradiance or cloud cover as its base forecast.

    A base forecast that the plant has is kept, and a plant without such columns is returned as it is.
    """
    if BASE in plant.future:
        return plant
    irradiance, clouds, _ = weather_columns(plant.future)
    if irradiance:
        base = _kilowatts(plant.future[irradiance])
    elif clouds and plant.place is not None:
        latitude, longitude = plant.place
        times = plant.times_until(len(plant.future[clouds]))
        seen = sun_of_intervals(times, HOUR, latitude, longitude / 15.0)
        base = seen.clear_sky / 1000.0 * (1.0 - 0.75 * _share(plant.future[clouds]) ** 3.4)
    else:
        return plant
    return replace(plant, future={**plant.future, BASE: base})


def other_weather(plant: Plant) -> NDArray[np.float32] | None:
    """Return what a base forecast can be learned from, (T or more, columns); None if there is none, or no need."""
    if BASE in plant.future:
        return None
    names = weather_columns(plant.future).others
    if not names:
        return None
    given = [plant.future[name] for name in names]
    rows = max(map(len, given))
    columns = [np.pad(column, (0, rows - len(column)), constant_values=np.nan) for column in given]
    return np.stack(columns, 1).astype(np.float32)


def weather_in_words(plant: Plant) -> str | None:
    """Return how the weather of a plant's table is used, or None without any."""
    irradiance, clouds, others = weather_columns(plant.future)
    if not (irradiance or clouds or others):
        return None
    named = ", ".join(map(repr, weather_columns(plant.future).names))
    if BASE in plant.future:
        return f"weather ({named}) is not used, as there is a base forecast"
    if irradiance:
        return f"{irradiance!r} is used as a base forecast"
    if clouds and plant.place is not None:
        return f"{clouds!r} times the clear sky is used as a base forecast"
    return f"a base forecast is learned from {named}, from {FEWEST_DAYS} days of power on"


def usable_weather(plant: Plant, use: Use) -> tuple[Plant, str | None]:
    """Return the plant with the weather that a backtest may read, and what the user should know about it."""
    names = weather_columns(plant.future).names
    if not names:
        return plant, None
    listed = ", ".join(map(repr, names))
    goes_on = any(np.isfinite(plant.future[name][len(plant) :]).any() for name in names)
    if use == "always" or (use == "auto" and goes_on):
        return plant, f"weather ({listed}) counts as forecast in time; if it was measured, these scores are too good"
    kept = {name: column for name, column in plant.future.items() if name not in names}
    ends = f"weather ({listed}) ends with the power, as measurements do, and is not used. Try weather='always' if not"
    return replace(plant, future=kept), ends if use == "auto" else None


def learned_base(
    power: NDArray[np.floating], sky: NDArray[np.floating], weather: NDArray[np.floating], begin: int, end: int
) -> NDArray[np.float32]:
    """Return a base forecast of all hours with weather from ``begin`` on, NaN elsewhere and with too few support days.

    Args:
        power: Share of capacity, (T,), of which only hours from ``begin`` to before ``end`` are read.
        sky: Clear-sky irradiance in kW/m2, or a mean profile, at least as long as ``weather``.
        weather: (T or more, columns).
        begin: First support hour.
        end: The hour after the last support hour.
    """
    base = np.full(len(weather), np.nan, np.float32)
    hours = np.arange(begin, min(end, len(weather)))
    hours = hours[np.isfinite(power[hours]) & (sky[hours] > LEAST_CLEAR)]
    given = np.isfinite(weather[hours]).sum(0) > 0.5 * len(hours)
    weather = weather[:, given].astype(np.float64)
    there = np.isfinite(weather).all(1)
    hours = hours[there[hours]]
    day = (end - 1 - hours) // 24
    if not given.any() or len(np.unique(day)) < FEWEST_DAYS:
        return base
    inputs = _inputs(weather, hours) * sky[: len(weather), None]
    base[begin:] = np.where(there, inputs @ _weights(inputs[hours], power[hours]), np.nan)[begin:]
    for left_out in np.unique(day):
        others, own = hours[day != left_out], hours[day == left_out]
        base[own] = inputs[own] @ _weights(inputs[others], power[others])
    return np.clip(base, 0.0, HIGHEST)


def _inputs(weather: NDArray[np.floating], hours: NDArray[np.int64]) -> Floats:
    """Return ones and the columns, standardised over some hours, (T, 1 + columns); constant columns are zero."""
    mean, spread = weather[hours].mean(0), weather[hours].std(0)
    steady = spread <= 1e-6 * (np.abs(mean) + 1e-6)
    standard = np.where(steady, 0.0, (weather - mean) / np.where(steady, 1.0, spread))
    return np.concatenate([np.ones((len(weather), 1)), np.clip(standard, -FARTHEST, FARTHEST)], 1, dtype=np.float64)


def _weights(inputs: NDArray[np.floating], power: NDArray[np.floating]) -> Floats:
    """Return the posterior mean of $w_0$, whose prior is flat, and of w."""
    precision = np.full(inputs.shape[1], (SIGMA / TAU) ** 2)
    precision[0] = 1e-3
    return np.asarray(np.linalg.solve(inputs.T @ inputs + np.diag(precision), inputs.T @ power), np.float64)


def _kilowatts(irradiance: Floats) -> Floats:
    """Return irradiance in kW/m2 from that in W/m2, kW/m2, or J/m2 in an hour, whichever its largest value is."""
    largest = np.nanmax(irradiance, initial=0.0)
    factor = 1.0 if largest <= 2.0 else 1e-3 if largest <= 3000.0 else 1.0 / 3.6e6
    return np.maximum(irradiance, 0.0) * factor


def _share(clouds: Floats) -> Floats:
    """Return cloud cover between 0 and 1 from shares, eighths or per cent, whichever its largest value is."""
    largest = np.nanmax(clouds, initial=0.0)
    return np.clip(clouds / (1.0 if largest <= 1.0 else 8.0 if largest <= 8.0 else 100.0), 0.0, 1.0)
