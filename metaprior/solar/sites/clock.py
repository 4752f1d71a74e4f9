"""The zone of stamps that come without one, as the sun suggests it."""

from dataclasses import dataclass

import numpy as np

from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.sun_path import SunPath, estimate_sun_path

HALF_HOURS = (-9.5, -3.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75)
OFFSETS = np.array(sorted([*np.arange(-11.0, 14.5), *HALF_HOURS]))
"""Offsets from UTC that are in use, in hours."""
RARITY = 0.05
"""Plants with an offset that is not a full hour, per plant with one that is."""
LOCAL = 2.6
"""Largest distance in hours between 12 o'clock of a local clock and solar noon that is common (the west of China)."""


@dataclass(frozen=True)
class OffsetSuggestion:
    """What the sun suggests about the clock of a plant's stamps.

    Args:
        hours: Suggested offset of the clock from UTC in hours; None where the sun does not tell.
        reason: The sentences that a user is shown.
        path: The sun's path on that clock.
    """

    hours: float | None
    reason: str
    path: SunPath


def suggest_offset(plant: Plant) -> OffsetSuggestion:
    """Return the offset from UTC that fits naive stamps best: the named offset nearest to what the sun tells.

    The sun gives the solar time of the clock. With the longitude known, the rest of it is the zone:
    longitude / 15 - solar offset. Without, a noon near 12 o'clock says that the clock is local, and any other noon that
    it is probably UTC; ``hours`` is then 0. Stamps that name the end of their interval look like a clock that is ahead
    by one interval.
    """
    path = estimate_sun_path(plant.usable, plant.times, plant.step)
    if not path.lit_days:
        return OffsetSuggestion(None, str(path), path)
    offset, sd = float(path.solar_offset), float(path.solar_offset_sd)
    if plant.longitude is not None:
        raw = (plant.longitude / 15.0 - offset + 12.0) % 24.0 - 12.0
        hours = nearest_offset(raw, sd)
        return OffsetSuggestion(
            hours, f"{path}: with longitude {plant.longitude:g} the clock is {zone_name(hours)}", path
        )
    if abs(offset) <= LOCAL:
        return OffsetSuggestion(None, f"{path}: a local clock, whose zone needs the longitude", path)
    east = 15.0 * offset
    reason = f"{path}: UTC, if the plant is near longitude {abs(east):.0f} {'east' if east > 0 else 'west'}"
    return OffsetSuggestion(0.0, reason, path)


def nearest_offset(hours: float, sd: float) -> float:
    """Return the most probable offset from UTC in use, given a measured one with its standard deviation."""
    away = (OFFSETS - hours + 12.0) % 24.0 - 12.0
    rare = np.where(OFFSETS % 1.0 == 0.0, 0.0, np.log(RARITY))
    return float(OFFSETS[np.argmax(rare - 0.5 * (away / max(sd, 0.05)) ** 2)])


def zone_name(hours: float) -> str:
    """Return the name of an offset, such as UTC+05:30."""
    minutes = round(abs(hours) * 60.0)
    return f"UTC{'-' if hours < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
