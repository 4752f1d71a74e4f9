r"""Weather that is known in advance, as a base forecast of the power.

Irradiance in kW/m2 is a base forecast as it is, and so is, where the place is known, the clear-sky irradiance $g$ under
a cloud cover $n$ (Kasten and Czeplak 1980), $g\,(1 - 0.75\,n^{3.4})$: the support days show their scale. What any other
column (humidity, temperature, ceiling, ...) says about the power is learned from the support days in closed form,

$$p_h = c_h\,(w_0 + w^\top z_h) + \varepsilon_h,\qquad w_j \sim N(0, \tau^2),\qquad \varepsilon_h \sim N(0, \sigma^2),$$

where $c$ is the clear-sky irradiance, or the mean profile of the support days if the place is not known, and $z$ the
columns, standardised over the support days. Support hours get the forecast of the other support days, so that their
errors are those of a forecast, and the network can judge it as it judges every base forecast.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.column_names import IRRADIANCE, Kind, weather_kind, words
from metaprior.solar.sites.plant import BASE, HOUR, Plant, usual_peak
from metaprior.solar.sites.sun_position import Floats, sun_of_intervals

Use = Literal["auto", "always", "never"]
"""Whether weather is read: columns that go on after the power as forecasts do, all of them, or none."""
GOES_ON = 6
"""Hours after the last power for which a column must have values to count as a forecast."""

TAU, SIGMA = 0.3, 0.42
"""Standard deviations of what a standardised column changes in $p / c$, and of the errors of $p$. Errors are about 0.3,
and neighbouring hours are so much alike that two count as one: 0.3 times the square root of two."""
FEWEST_DAYS = 2
"""Support days with power and weather from which a forecast is learned."""
FARTHEST = 3.0
"""Standard deviations at which weather that is unlike the support days is cut off."""
HIGHEST = 1.5
LEAST_CLEAR = 0.02
PEAKS = (0.1, 1.6)
"""Range of the usual peak of irradiance in kW/m2, by which its unit is recognised."""
UNITS = (1.0, 1e-3, 1 / 3600, 1 / 3.6, 1 / 3.6e6)
"""To kW/m2 from kW/m2, W/m2 and, of an hour, kJ/m2, MJ/m2 and J/m2."""


@dataclass(frozen=True)
class WeatherSource:
    """The columns from which a plant's base forecast comes, all of one kind; ``names`` has one unless that is other."""

    kind: Kind
    names: tuple[str, ...]

    def __str__(self) -> str:
        """Return how they are used, for the user."""
        listed = ", ".join(map(repr, self.names))
        if self.kind == "other":
            return f"a base forecast is learned from {listed}, from {FEWEST_DAYS} days of power on"
        return f"{listed}{' times the clear sky' * (self.kind == 'clouds')} is used as a base forecast"


def weather_source(plant: Plant) -> WeatherSource | None:
    """Return which columns of weather a plant's base forecast comes from; None with a base forecast, or without any.

    Irradiance is preferred to cloud cover, which needs a place, and that to other weather. Of several columns of
    irradiance or cloud cover, the one with the most values counts, then the one whose name says more.
    """
    if BASE in plant.future:
        return None
    kinds = {name: weather_kind(name) for name in plant.future if np.isfinite(plant.future[name]).any()}
    bright = [name for name, kind in kinds.items() if kind == "irradiance" and not _accumulates(plant.future[name])]
    clouds = [name for name, kind in kinds.items() if kind == "clouds"]
    others = [name for name, kind in kinds.items() if kind is not None and kind != "irradiance"]
    if bright:
        return WeatherSource("irradiance", (max(bright, key=lambda name: _preference(plant, name)),))
    if clouds and plant.place is not None:
        return WeatherSource("clouds", (max(clouds, key=lambda name: _preference(plant, name)),))
    return WeatherSource("other", tuple(others)) if others else None


def _preference(plant: Plant, name: str) -> tuple[int, int, int]:
    """Return what is larger for the better of two columns of one kind."""
    known = int(np.isfinite(plant.future[name]).sum())
    rank = min((IRRADIANCE.index(word) for word in words(name) if word in IRRADIANCE), default=0)
    return known, -rank, -len(name)


def with_base(plant: Plant) -> Plant:
    """Return an hourly plant in shares of its capacity with irradiance or cloud cover as its base forecast.

    A base forecast that the plant has is kept, and a plant without such columns is returned as it is.
    """
    source = weather_source(plant)
    if source is None or source.kind == "other":
        return plant
    column = plant.future[source.names[0]]
    if source.kind == "irradiance":
        base = _kilowatts(column)
    else:
        assert plant.place is not None
        latitude, longitude = plant.place
        seen = sun_of_intervals(plant.times_until(len(column)), HOUR, latitude, longitude / 15.0)
        base = seen.clear_sky / 1000.0 * (1.0 - 0.75 * _share(column) ** 3.4)
    return replace(plant, future={**plant.future, BASE: base})


def other_weather(plant: Plant) -> NDArray[np.float32] | None:
    """Return what a base forecast can be learned from, (T or more, columns); None if there is none, or no need."""
    source = weather_source(plant)
    if source is None or source.kind != "other":
        return None
    given = [plant.future[name] for name in source.names]
    rows = max(map(len, given))
    columns = [np.pad(column, (0, rows - len(column)), constant_values=np.nan) for column in given]
    return np.stack(columns, 1).astype(np.float32)


def usable_weather(plant: Plant, use: Use) -> Plant:
    """Return the plant without the weather that a forecast cannot know: by default, what ends with the power."""
    after = GOES_ON * HOUR // plant.step

    def goes_on(column: Floats) -> bool:
        return int(np.isfinite(column[len(plant) :]).sum()) >= after

    kept = {
        name: column
        for name, column in plant.future.items()
        if weather_kind(name) is None or use == "always" or (use == "auto" and goes_on(column))
    }
    return plant if len(kept) == len(plant.future) else replace(plant, future=kept)


def used_weather(plant: Plant, use: Use) -> WeatherSource | None:
    """Return the columns from which the base forecast comes, of those that a forecast can know; None without any."""
    return weather_source(usable_weather(plant, use))


def weather_notes(plant: Plant, use: Use) -> list[str]:
    """Return how the weather of a plant's table is used, and which of it is not."""
    kept = usable_weather(plant, use)
    lost = ", ".join(repr(name) for name in plant.future if name not in kept.future)
    told = f"weather ({lost}) ends with the power, as measurements do, and is not used (weather='always' uses it)"
    sums = [name for name, column in kept.future.items() if weather_kind(name) == "irradiance" and _accumulates(column)]
    source = used_weather(plant, use)
    return [
        *([told] if lost and use == "auto" else []),
        *(f"{name!r} accumulates over the day and is not used. Try its differences" for name in sums),
        *([] if source is None else [str(source)]),
    ]


def learned_base(
    power: NDArray[np.floating], sky: NDArray[np.floating], weather: NDArray[np.floating], begin: int, end: int
) -> NDArray[np.float32]:
    """Return a base forecast of all hours with weather from ``begin`` on, NaN elsewhere and with too few support days.

    Columns that are missing in most support hours, or in most hours ahead that others have, are left out.

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
    ahead = np.isfinite(weather[end:]).sum(0)
    given = (np.isfinite(weather[hours]).sum(0) > 0.5 * len(hours)) & (2 * ahead >= ahead.max(initial=0))
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
    """Return the posterior mean of $w_0$, whose prior is nearly flat, and of w."""
    precision = np.full(inputs.shape[1], (SIGMA / TAU) ** 2)
    precision[0] = 1e-3
    return np.asarray(np.linalg.solve(inputs.T @ inputs + np.diag(precision), inputs.T @ power), np.float64)


def _accumulates(irradiance: Floats) -> bool:
    """Return whether a column hardly ever falls, as one that is summed up over each day does."""
    changes = np.diff(irradiance[np.isfinite(irradiance)])
    changes = changes[changes != 0]
    return len(changes) >= 24 and bool((changes < 0).mean() < 0.2)


def _kilowatts(irradiance: Floats) -> Floats:
    """Return irradiance in kW/m2, whose unit its usual peak tells; NaN where it is far above that peak."""
    peak = usual_peak(irradiance[np.isfinite(irradiance)])
    factors = [factor for factor in UNITS if PEAKS[0] <= factor * peak <= PEAKS[1]]
    factor = factors[0] if factors else 1.0 / max(peak, 1e-9)
    return np.where(irradiance <= 3.0 * peak, np.maximum(irradiance, 0.0) * factor, np.nan)


def _share(clouds: Floats) -> Floats:
    """Return cloud cover between 0 and 1 from shares, eighths (9 is a hidden sky) or per cent, by its largest value."""
    largest = np.nanmax(clouds, initial=0.0)
    return np.clip(clouds / (1.0 if largest <= 1.0 else 8.0 if largest <= 9.0 else 100.0), 0.0, 1.0)
