"""From light on the panels to what the meter of a plant records."""

import numpy as np
from numpy.typing import NDArray
from pvlib import inverter, pvsystem, temperature  # type: ignore[import-untyped]

from metaprior.solar.sites.simulator.parameters import PlantParameters
from metaprior.solar.sites.simulator.processes import Purpose, Singles, normals, random_of
from metaprior.solar.sites.simulator.weather import Clock, Columns, Weather

MOST_SOILING = 0.35


def panel_condition(plants: list[PlantParameters], weather: Weather, clock: Clock, *, seed: int) -> Singles:
    """Return the share of the light that age, dirt and snow leave to the cells, (plants, T).

    Dirt grows by a constant amount a day until rain washes it off. Snow hides a share of the light that is drawn
    for each snowfall, and slides off in proportion to time.
    """
    of = Columns(plants)
    chances = _daily(plants, weather.rain.shape[1], seed)
    day = np.arange(weather.rain.shape[1], dtype=np.float32)
    dry = day - _latest(weather.rain, day, before=-30 * chances[0, :, :1])
    dirt = np.minimum(of.soiling * dry, MOST_SOILING)
    fell = _latest(weather.snow, day, before=np.full((len(plants), 1), -np.inf, np.float32))
    event = np.maximum(fell, 0).astype(np.int32)
    hidden = np.take_along_axis(chances[2], event, axis=1)
    lasting = np.take_along_axis(-np.log1p(-chances[1]) * of.snow_days, event, axis=1)
    snow = hidden * np.clip(1 - (day - fell) / np.maximum(lasting, 0.01), 0, 1)
    left = (1 - of.degradation * of.age) * (1 - dirt) * (1 - snow)
    return np.take_along_axis(left.astype(np.float32), clock.day, axis=1)


def _latest(events: NDArray[np.bool_], day: Singles, before: Singles) -> Singles:
    """Return the day of the latest event up to each day, ``before`` (plants, 1) where there was none."""
    return np.maximum.accumulate(np.where(events, day, before), axis=1)


def _daily(plants: list[PlantParameters], days: int, seed: int) -> Singles:
    """Return four uniform random numbers for each plant and day, (4, plants, days)."""
    drawn = [random_of(seed, plant.number, Purpose.OPERATION).random((days, 4), np.float32).T for plant in plants]
    return np.stack(drawn, axis=1)


def dc_power(
    plants: list[PlantParameters], row: NDArray[np.int32], light: Singles, heating: Singles, air: Singles
) -> Singles:
    """Return DC power as a share of the peak.

    Args:
        plants: The plants.
        row: The plant of each value.
        light: Irradiance that reaches the cells, W/m2.
        heating: Irradiance that heats the panels, W/m2.
        air: Temperature of the air, degrees Celsius.
    """
    of = Columns(plants)
    cells = temperature.ross(heating, air, k=of.heat[row, 0])
    peak = (1 - of.system_losses)[row, 0]
    power = pvsystem.pvwatts_dc(light, cells, peak, of.temperature_coefficient[row, 0])
    return np.asarray(np.maximum(power, 0), np.float32)


def ac_power(plants: list[PlantParameters], row: NDArray[np.int32], dc: Singles) -> Singles:
    """Return AC power after inverter and export limit, as a share of the DC peak."""
    of = Columns(plants)
    efficiency, limit = of.inverter_efficiency[row, 0], of.ac_limit[row, 0]
    converted = inverter.pvwatts(dc, limit / efficiency, efficiency)
    return np.asarray(np.minimum(converted, of.export_limit[row, 0]), np.float32)


def curtail(plants: list[PlantParameters], power: Singles, clock: Clock, *, seed: int) -> None:
    """Limit the power (plants, T) in place around noon of the days on which the grid asks for it."""
    asked = np.flatnonzero([plant.curtailment > 0 for plant in plants])
    if not asked.size:
        return
    some = [plants[index] for index in asked]
    of = Columns(some)
    day = clock.day[asked]
    chances = _daily(some, int(day.max()) + 1, seed)
    limited, level, width = (np.take_along_axis(values, day, axis=1) for values in chances[1:])
    noon = np.abs(clock.hour[asked] - 12.5) < 1 + 4 * width
    ceiling = np.where((limited < of.curtailment) & noon, 0.7 * level * of.ac_limit, np.inf)
    power[asked] = np.minimum(power[asked], ceiling)


def metered(plants: list[PlantParameters], power: Singles, *, seed: int) -> Singles:
    """Return the power (plants, T) as the meter records it: with noise, standby losses and its resolution."""
    of = Columns(plants)
    numbers = [plant.number for plant in plants]
    noise = normals(seed, numbers, Purpose.METER, power.shape[1])
    recorded = power * (1 + of.meter_noise * noise)
    recorded = np.where(power <= 0, -of.standby, recorded)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.rint(recorded / of.meter_resolution) * of.meter_resolution
    return np.asarray(np.where(of.meter_resolution > 0, rounded, recorded), np.float32) + 0.0  # no -0.0
