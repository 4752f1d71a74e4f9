"""Recognise what the columns of a table are, by their names, and the units that the names state."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metaprior.solar.sites.column_names import is_weather_or_calendar, weather_kind, words

UNIT_WORDS = {
    word: unit
    for unit, own in {
        "W": "w wp watt watts",
        "kW": "kw kwp",
        "MW": "mw mwp",
        "Wh": "wh",
        "kWh": "kwh",
        "MWh": "mwh",
        "share": "share fraction pu",
        "%": "percent pct %",
    }.items()
    for word in own.split()
}
"""Words of a column's name that state a unit."""

NAMES: dict[str, tuple[str, ...]] = {
    role: (*own.split(), *[""] * (role == "power"))
    for role, own in {
        "time": (
            "time timestamp datetime date_time ds valid_time measured_on measured_at stamp time_stamp "
            "period_end interval_end end end_time time_end hour_ending period_start interval_start start "
            "begin start_time time_start time_begin period zeit zeitstempel uhrzeit"
        ),
        "date": "date day datum",
        "site": (
            "site site_id plant plant_id plant_name site_name system system_id station station_id pv_id ss_id "
            "inverter inverter_id source_key unique_id location name id anlage anlagenname anlagen_id standort "
            "wechselrichter"
        ),
        "power": (
            "power ac_power power_ac pac active_power generation solar_generation generation_power pv_power "
            "solar_power pv production output power_output energy yield value y p leistung erzeugung "
            "load_factor capacity_factor"
        ),
        "capacity": (
            "capacity nameplate nameplate_capacity installed_capacity peak_power ac_capacity dc_capacity "
            "capacity_ac capacity_dc rated_power nominal_power installed nennleistung"
        ),
        "latitude": "latitude lat",
        "longitude": "longitude lon lng long",
        "tilt": "tilt slope inclination surface_tilt",
        "azimuth": "azimuth orientation aspect surface_azimuth",
        "base": (
            "base base_forecast forecast forecast_power power_forecast predicted_power prediction pv_estimate "
            "day_ahead_forecast"
        ),
        "unit": "unit units",
        "zone": "zone timezone time_zone tz",
    }.items()
}
"""Names of columns by what they are, in order of preference, without words that state a unit; "" is a unit alone."""

CONSTANTS = ("capacity", "latitude", "longitude", "tilt", "azimuth")

OTHER_POWER = re.compile(r"(^|_)(dc|daily|total|cumulative|reactive|voltage|current|apparent|frequency)(_|$)|yield")
"""Names of measurements that come with the power and are not known in advance."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table by what they are.

    Args:
        roles: Name of the column for each role that the table has.
        plants: Columns of a wide table, one for each plant; empty for a long one.
        known: Other columns, which may be known in advance.
        unused: Columns that are measurements beside the power.
    """

    roles: Mapping[str, str]
    plants: Sequence[str] = ()
    known: Sequence[str] = ()
    unused: Sequence[str] = field(default_factory=tuple)


def unit_of(name: str) -> str | None:
    """Return the unit that a column's name states, or None."""
    return next((UNIT_WORDS[word] for word in reversed(words(name)) if word in UNIT_WORDS), None)


def header_unit(names: Iterable[str]) -> str | None:
    """Return the unit that the first column of power states, or None."""
    return next((unit_of(name) for name in names if role_of(name) == "power" and unit_of(name)), None)


def role_of(name: str) -> str | None:
    """Return what a column is by its name, or None."""
    plain = _plain(name)
    if not plain and unit_of(name) is None:
        return "time" if words(name) else None  # "UTC"
    return next((role for role, names in NAMES.items() if plain in names), None)


def _plain(name: str) -> str:
    """Return a column's name in lower case without the words that state a unit or a kind of time."""
    return "_".join(word for word in words(name) if word not in UNIT_WORDS and word not in ("utc", "gmt", "local"))


def stated_zone(name: str) -> str | None:
    """Return "UTC" if the name of the column of times states it."""
    return "UTC" if {"utc", "gmt"} & set(words(name)) else None


def stated_stamps(name: str) -> str | None:
    """Return "begin" or "end" if the name of the column of times states it."""
    stated = set(words(name))
    if stated & {"end", "ending"}:
        return "end"
    return "begin" if stated & {"start", "begin", "starting", "beginning"} else None


def find_columns(names: Sequence[str], numeric: Sequence[str], given: Mapping[str, str]) -> Columns:
    """Return what the columns are: by ``given`` first, else by their names.

    Args:
        names: Names of all columns.
        numeric: Those of columns of numbers.
        given: Names of columns by role, as the user states them.

    Raises:
        ValueError: A column for time or power is missing, or ``given`` names something unknown.
    """
    for role, name in given.items():
        if role not in NAMES:
            raise ValueError(f"columns must be for {', '.join(NAMES)}, got {role!r}")
        if name not in names:
            raise ValueError(f"columns[{role!r}] must be a column of the table, got {name!r}. {_listed(names)}")
    roles = dict(given)
    free = [name for name in names if name not in given.values()]
    found = {name: role_of(name) for name in free}
    for role in NAMES:
        candidates = [name for name in free if found.get(name) == role]
        if role not in roles and candidates:
            roles[role] = min(candidates, key=lambda name: _preference(role, name))
    others = [name for name in numeric if name not in roles.values()]
    beside = [name for name in others if OTHER_POWER.search("_".join(words(name))) and weather_kind(name) is None]
    unused = [name for name in others if found.get(name) == "power" or name in beside]
    known = [name for name in others if name not in unused]
    if "time" not in roles and "date" in roles:
        roles["time"] = roles.pop("date")
    if "time" not in roles:
        raise ValueError(
            f"the table must have a column of times. {_listed(names)} Try columns={{'time': '...'}}; in a "
            "file, delete lines above the header."
        )
    if "power" in roles:
        return Columns(roles, (), known, unused)
    plants = [name for name in others if not is_weather_or_calendar(name) and name not in unused]
    if "site" in roles and len(plants) == 1:
        return Columns({**roles, "power": plants[0]}, (), [name for name in known if name != plants[0]], unused)
    if "site" in roles or not plants:
        raise ValueError(f"the table must have a column of power. {_listed(names)} Try columns={{'power': '...'}}.")
    return Columns(roles, plants, [name for name in known if name not in plants], unused)


def _preference(role: str, name: str) -> int:
    plain = _plain(name)
    return NAMES[role].index(plain) if plain in NAMES[role] else 0


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20])) + ", ..." * (len(names) > 20)
    return f"Columns are {shown}."
