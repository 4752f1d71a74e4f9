"""What is known about plants: constant columns of the table of power, or a second table with a row for each plant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.findings import Findings
from metaprior.solar.sites.reading.columns import CONSTANTS, role_of, unit_of
from metaprior.solar.sites.reading.long_table import LongTable
from metaprior.solar.sites.reading.number_texts import numbers
from metaprior.solar.sites.reading.source import open_source
from metaprior.solar.sites.reading.stamps import check_zone
from metaprior.solar.sites.reading.units import WATTS, check_unit

LIMITS = {
    "capacity": (0.0, np.inf),
    "latitude": (-90.0, 90.0),
    "longitude": (-180.0, 360.0),
    "tilt": (0.0, 90.0),
    "azimuth": (-180.0, 360.0),
}
"""Range of each fact; azimuth is clockwise from north."""


@dataclass(frozen=True)
class SiteFacts:
    """What is stated about a plant; None where nothing is."""

    capacity: float | None = None
    capacity_unit: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    tilt: float | None = None
    azimuth: float | None = None
    unit: str | None = None
    zone: str | None = None


def facts_of_columns(table: LongTable, findings: Findings) -> dict[str, SiteFacts]:
    """Return the facts that constant columns of the table of power state, by plant."""
    facts = {name: SiteFacts(capacity_unit=table.units.get("capacity")) for name in table.names}
    for role, values in table.constants.items():
        for number, name in enumerate(table.names):
            own = values[table.plant == number]
            own = own[np.isfinite(own)]
            if not len(own):
                continue
            middle = float(np.median(own))
            if np.ptp(own) > 1e-6 * max(abs(middle), 1):
                told = f"{role} varies from {own.min():g} to {own.max():g}, and its median {middle:g} is used"
                findings.add("varying fact", told, name)
            facts[name] = _with(facts[name], name, role, middle)
    return facts


def facts_of_table(sites: Any) -> dict[str, SiteFacts]:
    """Return the facts of a second table, or of a mapping from names to mappings, by plant.

    Raises:
        ValueError: A column of names is missing, a name occurs twice, or a fact is out of its range.
    """
    if isinstance(sites, Mapping) and all(isinstance(entry, Mapping) for entry in sites.values()):
        sites = pd.DataFrame([{"site": name, **entry} for name, entry in sites.items()])
    source = open_source(sites)
    roles = {role: name for name in source.frame.columns if (role := role_of(name)) is not None}
    if "site" not in roles:
        raise ValueError(f"sites must have a column with the names of plants, got {', '.join(source.frame.columns)}")
    names = [str(name).strip() for name in source.frame[roles["site"]]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"sites must have one row for each plant, got several for {', '.join(twice)}")
    facts = {name: SiteFacts(capacity_unit=_power_unit(roles.get("capacity"))) for name in names}
    for role in (*CONSTANTS, "unit", "zone"):
        if role not in roles:
            continue
        column = source.frame[roles[role]]
        entries = column if role in ("unit", "zone") else numbers(column, decimal_comma=source.decimal_comma).values
        for name, entry in zip(names, entries, strict=True):
            if not pd.isna(entry):
                facts[name] = _with(facts[name], name, role, entry)
    return facts


def _power_unit(column: str | None) -> str | None:
    unit = None if column is None else unit_of(column)
    return unit if unit in WATTS else None


def _with(facts: SiteFacts, plant: str, role: str, value: Any) -> SiteFacts:
    """Return the facts with one more, checked."""
    if role == "unit":
        return replace(facts, unit=check_unit(str(value).strip()))
    if role == "zone":
        check_zone(str(value).strip())
        return replace(facts, zone=str(value).strip())
    low, high = LIMITS[role]
    if not low <= value <= high or (role == "capacity" and value == 0):
        wanted = "positive" if role == "capacity" else f"between {low:g} and {high:g}"
        raise ValueError(f"{role} of {plant} must be {wanted}, got {value:g}")
    number: dict[str, Any] = {role: float(value)}
    return replace(facts, **number)


def merged(first: SiteFacts, second: SiteFacts) -> SiteFacts:
    """Return all facts of both; where both state one, that of the second."""
    stated = {name: value for name, value in vars(second).items() if value is not None}
    if second.capacity is not None:
        stated["capacity_unit"] = second.capacity_unit
    return replace(first, **stated)


def named_by_facts(table: LongTable, stated: Mapping[str, SiteFacts], findings: Findings) -> LongTable:
    """Return the table with its single plant, which it does not name, under the name of the single row of facts."""
    if table.named or len(stated) != 1 or table.names[0] in stated:
        return table
    (own,), (name,) = table.names, stated
    findings.add("facts matched", f"the table does not name its plant, which is taken for {name!r} of sites=")
    return replace(table, names=[name], units={name if key == own else key: unit for key, unit in table.units.items()})


def tell_unmatched(table: LongTable, stated: Mapping[str, SiteFacts], findings: Findings) -> None:
    """Tell if no row of facts is about a plant of the table."""
    if stated and not set(stated) & set(table.names):
        told = f"no row of sites= is about a plant of the table: it has {_listed(table.names)}, and sites= has "
        told += f"{_listed(list(stated))}, which become plants without power. Use the same names if they are the same"
        findings.add("facts unmatched", told)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
