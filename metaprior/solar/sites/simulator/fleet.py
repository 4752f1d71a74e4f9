"""Fleets of simulated plants: arrays for training, and plants as a user's table would have them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metaprior.checks import check_integer
from metaprior.solar.sites.plant import HOUR, Plant
from metaprior.solar.sites.simulator.climates import CLIMATES, climates_at
from metaprior.solar.sites.simulator.conversion import ac_power, curtail, dc_power, metered, panel_condition
from metaprior.solar.sites.simulator.light import Daylight, daylight_of, light_on_panels, sun_of
from metaprior.solar.sites.simulator.parameters import PlantParameters, draw_parameters
from metaprior.solar.sites.simulator.processes import Purpose, Singles, random_of, smoothed
from metaprior.solar.sites.simulator.weather import Clock, clock_of, weather_of

FINE_STEP = 900
"""Seconds. Weather and power are computed in steps of at most this length, then averaged."""

STEPS_AT_ONCE = 500_000
"""Steps (of all plants) that are computed together, in about 200 MB."""

DIM = 4.0
"""Degrees of elevation below which missing irradiance counts as none."""

YEAR = np.datetime64("2023-01-01", "D")
"""Records begin on random days of this year unless a start is given."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """Simulated plants as arrays, (plants, T) unless said otherwise. Plants do not share their weather.

    ``elevation`` is what follows from place and stamps; where the clock of a plant is wrong the true sun is elsewhere.
    """

    parameters: list[PlantParameters]
    start: NDArray[np.datetime64]  # (plants,), begin of the first interval, UTC
    step: int  # seconds
    power: Singles  # share of the nameplate as reported, as the meter recorded it
    clear_power: Singles  # the same under a cloudless sky, without meter and curtailment; (plants, 0) if not asked for
    ghi: Singles  # global horizontal irradiance, W/m2
    clear_ghi: Singles  # the same under a cloudless sky
    temperature: Singles  # of the air, degrees Celsius
    elevation: Singles  # of the sun in the middle of each interval, degrees

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def times(self) -> NDArray[np.datetime64]:
        """Begins of the intervals, UTC, (plants, T)."""
        return self.start[:, None] + np.arange(self.power.shape[1]) * np.timedelta64(self.step, "s")

    @cached_property
    def plants(self) -> list[Plant]:
        """The plants as values for ``metaprior.solar.sites``, in kW."""
        return [
            Plant(
                name=f"plant_{truth.number}",
                start=start,
                step=self.step,
                power=power.astype(np.float64) * truth.nameplate,
                doubt=np.zeros(len(power), np.uint8),
                capacity=truth.nameplate,
                latitude=truth.latitude,
                longitude=truth.longitude,
            )
            for truth, start, power in zip(self.parameters, self.start, self.power, strict=True)
        ]


def simulate_fleet(
    count: int,
    days: int,
    *,
    seed: int = 0,
    step: int = HOUR,
    climates: Sequence[str] = tuple(CLIMATES),
    start: str | None = None,
    first: int = 0,
    clear_power: bool = False,
) -> Fleet:
    """Return a fleet of plants with power of their own weather.

    Plant number n is a function of the seed, n and the start alone: ``first=20, count=5`` gives plants 20 to 24 of any
    larger fleet, and a longer record begins with the shorter one.

    Args:
        count: Number of plants.
        days: Length of the records.
        seed: Seed of everything.
        step: Seconds of an interval, 60 to 3600 and a divisor of 3600.
        climates: Names of ``CLIMATES`` from which each plant's is drawn.
        start: First day of all records (UTC); a random day of a year for each plant if not given.
        first: Number of the first plant.
        clear_power: Whether to compute the power under a cloudless sky too, which takes half as long again.

    Raises:
        ValueError: An argument is out of its range.
    """
    check_integer("count", count, 1)
    check_integer("days", days, 1)
    check_integer("first", first, 0)
    if not 60 <= step <= HOUR or HOUR % step:
        raise ValueError(f"step must be 60 to 3600 seconds and divide 3600, got {step}")
    names = list(climates)
    parameters, starts = [], []
    for number in range(first, first + count):
        parameters.append(draw_parameters(number, names, random_of(seed, number, Purpose.PARAMETERS)))
        later = np.timedelta64(int(random_of(seed, number, Purpose.START).integers(365)), "D")
        starts.append(YEAR + later if start is None else np.datetime64(start, "D"))
    begin = np.array(starts).astype("datetime64[s]")
    intervals = days * 24 * HOUR // step
    at_once = max(1, STEPS_AT_ONCE // (intervals * math.ceil(step / FINE_STEP)))
    blocks = [
        _block(parameters[some : some + at_once], begin[some : some + at_once], step, intervals, seed, clear_power)
        for some in range(0, count, at_once)
    ]
    return _joined(blocks)


def plants_under(
    ghi: ArrayLike,
    times: ArrayLike,
    latitude: ArrayLike,
    longitude: ArrayLike,
    *,
    count: int,
    seed: int = 0,
    step: int = HOUR,
    clear_power: bool = False,
) -> Fleet:
    """Return simulated plants under measured irradiance.

    Plant number n stands at place n modulo the number of places. Its clock is right; temperature, rain and snow are
    those of a climate of that latitude. Power is NaN in intervals in which irradiance is missing by day.

    Args:
        ghi: Global horizontal irradiance in W/m2, (T,) or (places, T), NaN where it is missing.
        times: Begins of the intervals of ``ghi``, UTC, ascending, (T,). Intervals are as long as the smallest
            difference; times may be left out (nights).
        latitude: Degrees north, a number or (places,).
        longitude: Degrees east, a number or (places,).
        count: Number of plants.
        seed: Seed of the plants.
        step: Seconds of an interval of power, a multiple of the length of intervals of ``ghi``.
        clear_power: Whether to compute the power under a cloudless sky too.

    Raises:
        ValueError: Shapes differ, times are not ascending, or the length of intervals does not divide ``step``.
    """
    series = np.atleast_2d(np.asarray(ghi, np.float32))
    stamps = np.asarray(times).astype("datetime64[s]")
    spacings = np.diff(stamps).astype(np.int64)
    if stamps.shape != series.shape[1:] or len(stamps) < 2 or spacings.min() <= 0:
        raise ValueError(
            f"times must be ascending, one for each value of ghi, got {stamps.shape} times for ghi of {series.shape}"
        )
    fine = int(spacings.min())
    if step % fine or not 60 <= step <= HOUR or HOUR % step or (spacings % fine).any():
        raise ValueError(f"step must be a multiple of the intervals of ghi ({fine} s) that divides 3600, got {step}")
    places = np.broadcast_to(np.stack(np.broadcast_arrays(latitude, longitude), -1), (len(series), 2))
    start = stamps[0].astype("datetime64[D]").astype("datetime64[s]")
    position = (stamps - start).astype(np.int64) // fine
    days = -(-(int(position[-1]) + 1) * fine // (24 * HOUR))
    given = np.full((len(series), days * 24 * HOUR // fine), np.nan, np.float32)
    given[:, position] = series
    blocks = []
    for number in range(count):
        place = (float(places[number % len(series), 0]), float(places[number % len(series), 1]))
        random = random_of(seed, number, Purpose.PARAMETERS)
        plant = replace(draw_parameters(number, climates_at(place[0]), random, place), clock_error=0.0)
        measured = given[number % len(series)][None]
        blocks.append(_block([plant], start[None], step, days * 24 * HOUR // step, seed, clear_power, measured))
    return _joined(blocks)


def _block(
    plants: list[PlantParameters],
    start: NDArray[np.datetime64],
    step: int,
    intervals: int,
    seed: int,
    clear_power: bool,
    measured: Singles | None = None,
) -> Fleet:
    """Return the fleet of a few plants, under measured irradiance (plants, steps) if given."""
    finer = math.ceil(step / FINE_STEP) if measured is None else measured.shape[1] // intervals
    fine, count = step / finer, intervals * finer
    latitude = np.array([plant.latitude for plant in plants])
    longitude = np.array([plant.longitude for plant in plants])
    # A clock that is behind by an hour shows the sun as it is 15 degrees further east.
    true_longitude = longitude + np.array([plant.clock_error for plant in plants]) / 240
    climates = [plant.climate for plant in plants]
    clock = clock_of(start, true_longitude, latitude, fine, count)
    weather = weather_of(climates, latitude, clock, seed=seed, plants=[plant.number for plant in plants])
    sun = sun_of(start, fine, count, latitude, true_longitude)
    day = daylight_of(sun, weather.turbidity, np.array([climate.altitude for climate in climates]))
    crossing = np.array([plant.extent_minutes for plant in plants]) * 60 / fine
    if measured is None:
        ghi = day.clear * smoothed(weather.clear_sky_index, crossing)[day.lit]
    else:  # sources leave out the times around sunrise and sunset
        ghi = np.where((day.zenith > 90 - DIM) & np.isnan(measured[day.lit]), 0, measured[day.lit])
    condition = panel_condition(plants, weather, clock, seed=seed)[day.lit]
    air = weather.temperature[day.lit]
    nameplate = np.array([plant.nameplate / plant.kilowatts for plant in plants], np.float32)[:, None]

    def produced(irradiance: Singles) -> Singles:
        light, heating = light_on_panels(plants, day, irradiance, _leaves(clock)[day.lit])
        ac = ac_power(plants, day.plant, dc_power(plants, day.plant, light * condition, heating, air))
        return _spread(ac, day)

    power = produced(ghi)
    curtail(plants, power, clock, seed=seed)
    mean_power = metered(plants, _means(power, finer), seed=seed) / nameplate
    clear = _means(produced(day.clear), finer) / nameplate if clear_power else mean_power[:, :0]
    return Fleet(
        parameters=plants,
        start=start,
        step=step,
        power=mean_power,
        clear_power=clear,
        ghi=_means(_spread(ghi, day), finer),
        clear_ghi=_means(_spread(day.clear, day), finer),
        temperature=_means(weather.temperature, finer),
        elevation=sun_of(start, step, intervals, latitude, longitude).elevation,
    )


def _leaves(clock: Clock) -> Singles:
    """Return the share of the leaves that trees have in this season, (plants, T)."""
    return np.asarray(np.clip(0.5 + 1.5 * np.cos(2 * np.pi * (clock.season - 0.05)), 0, 1), np.float32)


def _spread(values: Singles, day: Daylight) -> Singles:
    """Return the values of daylight steps as (plants, T), zero at night."""
    everything = np.zeros(day.lit.shape, np.float32)
    everything[day.lit] = values
    return everything


def _means(values: Singles, finer: int) -> Singles:
    """Return the means of groups of ``finer`` steps."""
    return np.asarray(values.reshape(len(values), -1, finer).mean(axis=2))


def _joined(blocks: list[Fleet]) -> Fleet:
    """Return the plants of several fleets of the same step as one fleet."""
    if len(blocks) == 1:
        return blocks[0]
    joined: dict[str, Any] = {
        field.name: np.concatenate([getattr(block, field.name) for block in blocks])
        for field in fields(Fleet)
        if field.name not in ("parameters", "step")
    }
    return Fleet(parameters=[plant for block in blocks for plant in block.parameters], step=blocks[0].step, **joined)
