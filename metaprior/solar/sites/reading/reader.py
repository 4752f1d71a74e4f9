"""Read a table of power: columns, stamps, units and plants, with everything that was detected, changed or left out."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.checks import check, tell_defects
from metaprior.solar.sites.checks.defects import CONFLICT
from metaprior.solar.sites.findings import NO_ROWS, Findings, Rows
from metaprior.solar.sites.plant import BASE, HOUR, Plant, usual_peak
from metaprior.solar.sites.reading.columns import header_unit, stated_stamps, stated_zone
from metaprior.solar.sites.reading.gridding import Entries, Gridded, Tell, hour_that_occurs_twice, on_grid
from metaprior.solar.sites.reading.long_table import LongTable, long_table
from metaprior.solar.sites.reading.site_facts import (
    SiteFacts,
    facts_of_columns,
    facts_of_table,
    merged,
    named_by_facts,
    tell_unmatched,
)
from metaprior.solar.sites.reading.source import open_source
from metaprior.solar.sites.reading.stamps import DAY, MISSING, Seconds, check_zone, normal_zone, offset_text, to_utc
from metaprior.solar.sites.reading.sunlight import compare_with_sun
from metaprior.solar.sites.reading.units import (
    ENERGY,
    WATTS,
    Scale,
    capacity_in,
    check_unit,
    contradicting_unit,
    implausible_capacity,
    scale_of,
)
from metaprior.text_table import four_digits

CAPACITY_QUANTILE = 0.999
"""Quantile of the positive usable power that stands for an unknown capacity."""
EXCEEDED = 1.4
"""Usual peak in shares of the stated capacity from which the two contradict each other."""
LONG_DAYS = 60
"""Length of a record from which the largest power is taken for the capacity."""


@dataclass(frozen=True)
class PowerTable:
    """Plants of a table, and what was found in it.

    Args:
        plants: The plants, in the order of the table.
        findings: What was detected, changed, left out or is doubtful.
        rows: Row of the table of each interval of a plant's power, -1 without any, by name.
        zones: Time zone of the stamps of each plant, a name or an offset such as "+02:00"; None if it is not known.
    """

    plants: list[Plant]
    findings: Findings
    rows: Mapping[str, Rows] = field(default_factory=dict)
    zones: Mapping[str, str | None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Plant]:
        return iter(self.plants)

    def __len__(self) -> int:
        return len(self.plants)

    def __getitem__(self, name: str) -> Plant:
        for plant in self.plants:
            if plant.name == name:
                return plant
        raise KeyError(f"there is no plant {name!r}; plants are {', '.join(plant.name for plant in self.plants)}")


def read_power(
    table: Any,
    *,
    unit: str | None = None,
    zone: str | None = None,
    stamps: Literal["auto", "begin", "end"] = "auto",
    sites: Any = None,
    columns: Mapping[str, str] | None = None,
    checked: bool = True,
) -> PowerTable:
    """Return the plants of a table of power, long or wide, on regular grids of UTC.

    Args:
        table: Path of a CSV (also .gz) or Parquet file, or a data frame of pandas or polars. It may have no rows if
            ``sites`` names the plants: plants without power start at the present hour.
        unit: W, kW, MW, Wh, kWh or MWh per interval, "share" of the capacity or "%" of it. Without it, the unit is that
            of the column's name (``power_kw``), else a share if values do not exceed 1.2, else the one that fits the
            capacity, else it is called kW.
        zone: Time zone of stamps that state no offset: a name such as "Australia/Sydney", or an offset such as
            "+08:00". Without it, such stamps are taken as they are, and plants have ``zone_known=False``.
        stamps: Whether stamps are at the "begin" or at the "end" of their intervals. "auto": as the name of the column
            says (``period_end``); else ends if the record goes from one step after midnight to a midnight, as it does
            in whole days of such stamps; else, where zone and longitude are known and intervals have half an hour or
            more, as noon fits the sun; else begins.
        sites: A second table with a row for each plant, or a mapping from names to mappings: capacity, latitude,
            longitude, tilt, azimuth, unit and zone.
        columns: Names of columns by what they are ("site", "time", "power", ...), where they are not recognised.
        checked: Whether to look for defects (``metaprior.solar.sites.checks``); doubtful power is masked by reason.

    Raises:
        ValueError: The table cannot be understood; the message says what to try.
    """
    if stamps not in ("auto", "begin", "end"):
        raise ValueError(f'stamps must be "auto", "begin" or "end", got {stamps!r}')
    unit = None if unit is None else check_unit(unit)
    if zone is not None:
        check_zone(zone)
    source = open_source(table, list((columns or {}).values()))
    findings = Findings(first_row=source.first_row, row_word=source.row_word)
    for kind, message, rows in source.remarks:
        findings.add(kind, message, None, rows)
    stated = {} if sites is None else facts_of_table(sites)
    stated = {name: replace(own, unit=unit or own.unit) for name, own in stated.items()}
    if stated and not len(source.frame):
        return _without_rows(stated, header_unit(source.frame.columns), zone, findings)
    long = named_by_facts(long_table(source, columns or {}, findings), stated, findings)
    facts = facts_of_columns(long, findings)
    facts = {name: merged(facts.get(name, SiteFacts()), stated.get(name, SiteFacts())) for name in [*facts, *stated]}
    utc, stated_zones, aware = _placed(long, facts, zone, findings)
    stamps_kind = stated_stamps(long.time_name) if stamps == "auto" else stamps
    plants: list[Plant] = []
    rows_of: dict[str, Rows] = {}
    zones: dict[str, str | None] = {}
    for number, entries in _by_plant(long, utc):
        name = long.names[number]
        tell = _teller(findings, name)
        try:
            grid = on_grid(entries, stamps_kind or "auto", tell)
            plant = _plant(name, grid, long, replace(facts[name], unit=unit or facts[name].unit), tell)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        zones[name] = stated_zones[number] or (_offset_of(entries) if aware else None)
        _tell_set_back(entries, grid, zones[name], tell)
        plants.append(replace(plant, zone_known=zones[name] is not None))
        rows_of[name] = grid.row
    if not plants:
        raise ValueError(f"the table must have rows with valid stamps, got none. {' '.join(findings.lines())}")
    tell_unmatched(long, stated, findings)
    first = plants[0]
    for name in facts:
        if name not in rows_of:
            new = _without_power(name, facts[name], first.unit, first.end)
            plants.append(replace(new, stamp=first.stamp, zone_known=first.zone_known))
            rows_of[name], zones[name] = NO_ROWS, zones[first.name]
            findings.add("no power", f"no rows; a plant without power, in {new.unit}", name)
    if checked:
        assumed = {finding.plant for finding in findings.of("stamps assumed")}
        plants = [
            _checked(plant, rows_of[plant.name], zones[plant.name], plant.name in assumed, not aware, findings)
            for plant in plants
        ]
    return PowerTable(plants, findings, rows_of, zones)


def plants_of(power: Any) -> tuple[list[Plant], Findings | None]:
    """Return the plants of whatever holds some, and the findings where a table was read.

    Args:
        power: A plant, several, a ``PowerTable``, or what ``read_power`` reads: a path or a data frame.
    """
    if isinstance(power, Plant):
        return [power], None
    if isinstance(power, list | tuple) and all(isinstance(one, Plant) for one in power):
        return list(power), None
    table = power if isinstance(power, PowerTable) else read_power(power)
    return table.plants, table.findings


def _without_rows(facts: Mapping[str, SiteFacts], unit: str | None, zone: str | None, findings: Findings) -> PowerTable:
    """Return plants without any power, which start at the present hour."""
    now = np.datetime64("now", "h")
    plants = [_without_power(name, own, unit, now) for name, own in facts.items()]
    findings.add("no power", "the table has no rows; all plants are without power", count=len(plants))
    for plant, own in zip(plants, facts.values(), strict=True):
        if not (unit or own.unit or own.capacity_unit):
            told = f"neither power nor capacity has a unit, and both are called {plant.unit}. Try unit="
            findings.add("unit unknown", told, plant.name)
        _tell_implausible(plant, findings)
    if zone is None and not all(own.zone for own in facts.values()):
        findings.add("zone", "no zone is stated, so times are in UTC. Try zone=")
    zones = {name: normal_zone(zone or own.zone or "UTC") for name, own in facts.items()}
    return PowerTable(plants, findings, dict.fromkeys(facts, NO_ROWS), zones)


def _tell_set_back(entries: Entries, grid: Gridded, zone: str | None, tell: Tell) -> None:
    """Tell of an hour that occurs twice on a clock whose zone is not known."""
    first = None if zone is not None else hour_that_occurs_twice(entries, grid.step)
    if first is not None:
        told = f"the hour of {first} occurs twice, as where a clock is set back at the end of daylight-saving time"
        tell("clock set back", f"{told}: days before it are an hour off. Try zone=")


def _offset_of(entries: Entries) -> str:
    """Return the offset from UTC of the last stamp."""
    return offset_text(int(entries.clock[-1] - entries.utc[-1]))


def _placed(
    long: LongTable, facts: Mapping[str, SiteFacts], zone: str | None, findings: Findings
) -> tuple[Seconds, list[str | None], bool]:
    """Return each entry's seconds of UTC, ``MISSING`` where it is left out, the stated zones, and if stamps have one.

    Stated zones are those of the arguments and of the tables, by plant.
    """
    invalid = (long.clock == MISSING) & (long.plant >= 0)
    _list_rows(
        findings, "no time", "have no valid time stamp and were left out", long.row[invalid], except_of="bad lines"
    )
    utc = np.where(long.plant >= 0, long.utc, MISSING)
    aware = long.utc != MISSING
    naive = ~aware & ~invalid & (long.plant >= 0)
    zones = [zone or facts[name].zone or stated_zone(long.time_name) for name in long.names]
    if aware.any():
        findings.add("zone", "stamps state their offset from UTC" + " and zone= is not needed" * (zone is not None))
    for wanted in dict.fromkeys(zones):
        of_plants = np.array([own == wanted for own in zones])
        own = naive & of_plants[long.plant]
        if not own.any():
            continue
        if wanted is not None:
            placed = to_utc(long.clock[own], long.plant[own], wanted)
            utc[own] = placed.seconds
            findings.add("zone", f"stamps are read as those of a clock in {wanted}")
            _tell_clock_changes(wanted, long.row[own], placed.skipped, placed.repeated, findings)
        elif aware.any():
            _list_rows(
                findings, "no offset", "state no offset from UTC, as others do, and were left out", long.row[own]
            )
        else:
            utc[own] = long.clock[own]
            findings.add(
                "zone unknown", "the time zone of the stamps is not stated, and they are taken as they are. Try zone="
            )
    return utc, [own and normal_zone(own) for own in zones], bool(aware.any())


def _list_rows(findings: Findings, kind: str, told: str, rows: Rows, *, except_of: str = "") -> None:
    """Tell of rows that are left out, once for each."""
    listed = [finding.rows for finding in findings.of(except_of)]
    rows = np.setdiff1d(rows, np.concatenate([NO_ROWS, *listed]))
    if len(rows):
        findings.add(kind, f"{len(rows)} rows {told}", None, rows)


def _tell_clock_changes(
    zone: str, rows: Rows, skipped: NDArray[np.bool_], repeated: NDArray[np.bool_], findings: Findings
) -> None:
    if repeated.any():
        told = f"{repeated.sum()} rows are in hours that occur twice in {zone}: the first pass, then the second"
        findings.add("repeated hour", told, None, np.unique(rows[repeated]))
    if skipped.any():
        told = f"{skipped.sum()} rows are in hours that {zone} skips when the clock is set forward, and were left out"
        hint = ". If the clock is never set forward, try an offset, as in zone='+01:00'"
        findings.add("skipped hour", told + hint, None, np.unique(rows[skipped]))


def _by_plant(long: LongTable, utc: Seconds) -> Iterator[tuple[int, Entries]]:
    """Iterate over the plants that have entries with a place in time, sorted by time."""
    use = np.flatnonzero(utc != MISSING)
    order = use[np.lexsort((utc[use], long.plant[use]))]
    plants, starts = np.unique(long.plant[order], return_index=True)
    for plant, own in zip(plants, np.split(order, starts[1:]), strict=False):  # split gives one part of nothing
        known = {name: values[own] for name, values in long.known.items()}
        yield int(plant), Entries(long.row[own], utc[own], long.clock[own], long.power[own], known)


def _plant(name: str, grid: Gridded, long: LongTable, facts: SiteFacts, tell: Tell) -> Plant:
    """Return a plant in a unit of power, with its capacity if it is stated."""
    _refuse_counter(grid)
    stated, source = (facts.unit, "as stated") if facts.unit else (long.units[name], "by the name of its column")
    if facts.unit and (told := contradicting_unit(facts.unit, long.units[name])):
        tell("unit contradicted", told)
    full = None if facts.capacity is None or facts.capacity_unit is None else (facts.capacity, facts.capacity_unit)
    scale = scale_of(stated, source, grid.power, grid.step, full)
    tell("unit" if scale.certain else "unit unknown", scale.told)
    power = grid.power * scale.factor
    capacity = 1.0 if scale.unit == "share" and facts.capacity is None else None
    if facts.capacity is not None:
        capacity, told = capacity_in(scale.unit, facts.capacity, facts.capacity_unit, usual_peak(power))
        if told and not scale.certain:
            told += ". Power in W and a capacity in kW would fit as well. Try unit="
        if told:
            tell("capacity", told)
    known = {**grid.known}
    if BASE in known:
        known[BASE] = known[BASE] * _base_factor(long.units.get("base"), scale, grid.step, capacity)
    return Plant(
        name,
        np.datetime64(grid.start, "s"),
        grid.step,
        power,
        np.where(grid.conflict, CONFLICT, 0).astype(np.uint8),
        scale.unit,
        capacity,
        latitude=facts.latitude,
        longitude=facts.longitude,
        tilt=facts.tilt,
        azimuth=facts.azimuth,
        stamp=grid.stamp,
        future=known,
    )


def _base_factor(unit: str | None, scale: Scale, step: int, capacity: float | None) -> float:
    """Return what a base forecast is multiplied by: to the plant's unit, from its own or from that of the power."""
    if unit is None:
        return scale.factor
    if unit in ("share", "%"):
        return (0.01 if unit == "%" else 1.0) * (1.0 if scale.unit == "share" else capacity or 1.0)
    per_hour = HOUR / step if unit in ENERGY else 1.0
    return per_hour if scale.unit == "share" else per_hour * WATTS[ENERGY.get(unit, unit)] / WATTS[scale.unit]


def _refuse_counter(grid: Gridded) -> None:
    """Raise ValueError if power never decreases over two days or more, as the counter of a meter does."""
    values = grid.power[np.isfinite(grid.power)]
    if len(values) * grid.step >= 2 * DAY and values[-1] > values[0] and (np.diff(values) >= 0).all():
        raise ValueError(
            "power must rise and fall, got a column that never decreases, a meter's counter. Try its .diff()."
        )


def _without_power(name: str, facts: SiteFacts, unit: str | None, start: np.datetime64) -> Plant:
    """Return a plant without any power, in the unit of its facts, else in ``unit``, else in that of its capacity."""
    unit = facts.unit or unit or facts.capacity_unit or "kW"
    unit = ENERGY.get(unit, "share" if unit == "%" else unit)
    capacity = None if facts.capacity is None else capacity_in(unit, facts.capacity, facts.capacity_unit, 0.0)[0]
    place = {role: getattr(facts, role) for role in ("latitude", "longitude", "tilt", "azimuth")}
    nothing = np.zeros(0)
    return Plant(name, start, HOUR, nothing, nothing.astype(np.uint8), unit, capacity, **place)


def _checked(
    plant: Plant, rows: Rows, zone: str | None, begins_assumed: bool, zone_stated: bool, findings: Findings
) -> Plant:
    """Return the plant with doubtful power masked and its capacity estimated if it is unknown."""
    plant = check(plant)
    tell, stated_zone = _teller(findings, plant.name), zone if zone_stated else None
    plant = compare_with_sun(plant, tell, begins_assumed=begins_assumed, stated_zone=stated_zone)
    tell_defects(plant, rows, findings, zone)
    usable = plant.usable[plant.usable > 0]
    if plant.capacity is not None and usual_peak(usable) > EXCEEDED * plant.capacity:
        told = (
            f"power of {four_digits(usual_peak(usable))} {plant.unit} is far above the stated capacity of "
            f"{four_digits(plant.capacity)}"
        )
        findings.add("capacity exceeded", f"{told}: one of the two has another unit or is wrong", plant.name)
    if plant.capacity is None and len(usable):
        days = len(plant) * plant.step / DAY
        capacity = float(np.quantile(usable, CAPACITY_QUANTILE)) * capacity_margin(days)
        estimate = f"{four_digits(capacity)} {plant.unit}"
        told = f"the capacity is not stated and was estimated from the largest power as {estimate}"
        if days < LONG_DAYS:
            told += f", {100 * (capacity_margin(days) - 1):.0f} % above it, as {days:.3g} days seldom show the most"
        findings.add("capacity estimated", told, plant.name)
        plant = replace(plant, capacity=capacity, capacity_estimated=True)
    _tell_implausible(plant, findings)
    return plant


def _tell_implausible(plant: Plant, findings: Findings) -> None:
    if plant.capacity is not None and (told := implausible_capacity(plant.capacity, plant.unit)):
        findings.add("capacity implausible", told, plant.name)


def capacity_margin(days: float) -> float:
    """Return the usual capacity divided by the largest power of so many days, by simulated plants: 1.35 after one."""
    return 1.0 + 0.4 * (1.0 / math.sqrt(min(max(days, 1.0), LONG_DAYS)) - 1.0 / math.sqrt(LONG_DAYS))


def _teller(findings: Findings, plant: str) -> Tell:
    def tell(kind: str, message: str, rows: Rows = NO_ROWS, count: int = 0) -> None:
        findings.add(kind, message, plant, rows, count)

    return tell
