"""Plants that are forecast: those of the data folder, a simulated fleet, and real plants with a base forecast."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from benchmarks.sites.settings import Settings
from metaprior.solar.sites.plant import BASE, HOUR, Plant
from metaprior.solar.sites.reading.reader import read_power
from metaprior.solar.sites.simulator.base import BaseQuality, base_forecast
from metaprior.solar.sites.simulator.fleet import simulate_fleet
from metaprior.solar.sites.sun_path import plant_sun_path
from metaprior.solar.sites.sun_position import sun_of_intervals

POWER = Path("pv_sites") / "pv_power.csv.gz"
PANELS = Path("pv_sites") / "us_12_horizontal_panels.csv.gz"
WEATHER = ("Humidity", "AmbientTemp", "Visibility", "Pressure", "Cloud.Ceiling", "Wind.Speed")
"""Columns of the table of panels that a weather service forecasts."""
HELD_OUT, VALIDATION = 2021, 2022
"""Seeds of the simulated fleets; trainings have small ones."""
NO_BASE = "none"
QUALITIES = {
    "good": BaseQuality(skill=0.9, factor=1.2),
    "fair, biased": BaseQuality(skill=0.7, factor=0.6, smoothing_hours=5.0),
    "useless": BaseQuality(skill=0.0),
    "good, half of the days missing": BaseQuality(skill=0.9, factor=1.2, missing=0.5),
}
"""Base forecasts with errors of known size."""


def real_plants(data: Path) -> list[Plant]:
    """Return the plants of the data folder with what their table says, in hours; none without a table.

    Power is checked by ``read_power``, and capacities that the table lacks are those that it estimates.
    """
    table = data / POWER
    return [plant.share().hourly() for plant in read_power(table)] if table.is_file() else []


def weather_panels(data: Path) -> list[Plant]:
    """Return the 12 US panels with their weather, in hours of their local mean time; none without a table.

    They have five to seven readings a day between 10 and 16 h; clocks are taken for those of the longitudes.
    """
    table = data / PANELS
    if not table.is_file():
        return []
    frame = pd.read_csv(table)
    clock = frame["Date"].astype(str) + frame["Time"].astype(str).str.zfill(4)
    frame = frame.rename(columns={"Location": "site", "PolyPwr": "power"})
    frame["time"] = pd.to_datetime(clock, format="%Y%m%d%H%M")
    made: list[Plant] = []
    for _, own in frame.groupby("site"):
        zone = f"{round(own['Longitude'].iloc[0] / 15):+03d}:00"
        columns = ["site", "time", "power", "Latitude", "Longitude", *WEATHER]
        made += [plant.share().hourly() for plant in read_power(own[columns], zone=zone, unit="W")]
    return made


def simulated_plants(settings: Settings) -> list[Plant]:
    """Return a fleet that no training has seen."""
    return simulate_fleet(settings.simulated_plants, settings.simulated_days, seed=HELD_OUT).plants


def validation_plants(settings: Settings) -> list[Plant]:
    """Return the plants on which the settings of fine-tuning are chosen."""
    return simulate_fleet(settings.validation_plants, 60, seed=VALIDATION).plants


def with_base(plants: Sequence[Plant], quality: BaseQuality, *, seed: int = 0) -> list[Plant]:
    """Return the plants with base forecasts made from their own true power: smoothed, noisy, with a factor.

    The index that is smoothed and disturbed is the power divided by the clear-sky irradiance at the plant.
    """
    made = []
    for number, plant in enumerate(plants):
        hours = plant.share().hourly()
        path = plant_sun_path(plant)
        clear = sun_of_intervals(hours.times, HOUR, path.latitude, path.solar_offset).clear_sky / 1000.0
        truth, sky = (np.atleast_2d(values).astype(np.float32) for values in (hours.usable, clear))
        base = base_forecast(truth, sky, quality, seed=seed, numbers=[number])[0]
        made.append(replace(hours, future={BASE: base.astype(np.float64)}))
    return made
