"""What the sun says about the clock of a plant: the zone of naive stamps, ends of intervals, a wrong zone."""

from dataclasses import replace

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.clock import suggest_offset
from metaprior.solar.sites.plant import HOUR, Plant
from metaprior.solar.sites.reading.gridding import Tell
from metaprior.solar.sites.reading.stamps import offset_text
from metaprior.solar.sites.sun_path import estimate_sun_path

LEAST_DAYS = 5
"""Days with light from which the noon of a plant is trusted."""
SURE = 0.5
"""Standard deviation of the noon in hours up to which a zone is recommended."""
WRONG, IMPOSSIBLE = 0.75, 2.5
"""Hours between the sun's noon and the plant's from which a zone or longitude is called wrong, and is not used."""
NOT_LOCAL = 3.0
"""Hours between noon and 12 o'clock from which a clock is not that of its zone."""


def compare_with_sun(plant: Plant, tell: Tell, *, begins_assumed: bool, stated_zone: str | None = None) -> Plant:
    """Return the plant, with intervals that begin one step earlier if the sun says that stamps are their ends.

    Args:
        plant: A checked plant.
        tell: Called with what the sun says.
        begins_assumed: Whether stamps were taken as begins of intervals without evidence.
        stated_zone: Zone that the user states of stamps that have none.
    """
    if not np.isfinite(plant.usable).any():
        return plant
    if not plant.zone_known:
        suggestion = suggest_offset(plant)
        hours, sure = suggestion.hours, float(suggestion.path.solar_offset_sd) < SURE
        remedy = f". Try zone={offset_text(round(3600 * hours))!r}" if hours is not None and sure else ""
        tell("zone suggested", f"the sun says about the clock: {suggestion.reason}{remedy}")
        return plant
    if plant.longitude is None:
        if stated_zone is not None:
            _compare_zone(plant, stated_zone, tell, begins_assumed=begins_assumed)
        return plant
    path = estimate_sun_path(plant.usable, plant.times, plant.step)
    if path.lit_days < LEAST_DAYS:
        return plant
    late = (plant.longitude / 15 - float(path.solar_offset) + 12) % 24 - 12
    spread = float(path.solar_offset_sd)
    step = plant.step / HOUR
    if begins_assumed and step >= 0.5 and abs(late - step) < 0.4 * step and spread < 0.25 * step:
        tell("stamps", f"stamps are ends of intervals: taken as begins, noon would be {60 * late:.0f} minutes late")
        return replace(plant, start=plant.start - np.timedelta64(plant.step, "s"), stamp="end")
    if abs(late) > WRONG + 2 * spread:
        told = f"noon is {abs(late):.1f} h {'late' if late > 0 else 'early'} for longitude {plant.longitude:g}"
        told += ": the longitude, the zone or the clock is wrong"
        if abs(late) > IMPOSSIBLE:
            tell("noon", f"{told}, so the place is not used")
            return replace(plant, latitude=None, longitude=None)
        tell("noon", told)
    return plant


def _compare_zone(plant: Plant, zone: str, tell: Tell, *, begins_assumed: bool) -> None:
    """Tell where a stated zone puts a plant whose place is not known, or that noon is far from 12 o'clock in it."""
    path = estimate_sun_path(plant.usable, plant.times, plant.step)
    spread = float(path.solar_offset_sd)
    if path.lit_days < LEAST_DAYS or spread > SURE:
        return
    middle = pd.Timestamp(plant.times[len(plant) // 2], tz="UTC").tz_convert(zone)
    offset = middle.utcoffset().total_seconds() / HOUR
    noon = (12.0 - float(path.solar_offset) + offset) % 24.0
    told = f"the sun is highest at {_time_of_day(noon)} by a clock in {zone}"
    if offset and abs(noon - 12.0) > NOT_LOCAL + 2 * spread:
        tell("zone contradicted", f"{told}: the zone is wrong. Try zone='UTC' if the stamps are in UTC")
        return
    east, step = 15.0 * float(path.solar_offset), plant.step / HOUR
    where = _longitude(east)
    if begins_assumed and step >= 0.5:
        where += f" ({_longitude(east + 15.0 * step)} if stamps are ends of intervals)"
    tell("zone implied", f"{told}, so the plant is near longitude {where}. If it is not, the zone is wrong")


def _longitude(east: float) -> str:
    east = (east + 180.0) % 360.0 - 180.0
    return f"{abs(east):.0f} {'east' if east > 0 else 'west'}"


def _time_of_day(hours: float) -> str:
    minutes = round(60 * hours) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
