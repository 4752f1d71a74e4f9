"""A table of power as arrays, one entry for each plant and row, whatever the layout of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from metaprior.solar.sites.findings import NO_ROWS, Findings, Rows
from metaprior.solar.sites.plant import BASE, Floats
from metaprior.solar.sites.reading.columns import CONSTANTS, Columns, find_columns, role_of, unit_of
from metaprior.solar.sites.reading.number_texts import numbers
from metaprior.solar.sites.reading.source import Source
from metaprior.solar.sites.reading.stamps import Seconds, is_time_of_day, joined, parse

TRIED = 200
"""Entries of a column of texts that are looked at to see whether they are numbers."""


@dataclass(frozen=True)
class LongTable:
    """Power by plant and row, in the order of the table.

    Args:
        names: Names of the plants.
        plant: Number of the plant of each entry.
        row: Row of the table of each entry.
        clock: Seconds of the clock since 1970; ``stamps.MISSING`` where the stamp is invalid.
        utc: Seconds of UTC since 1970; ``stamps.MISSING`` where the stamp does not state its offset, too.
        power: Power, NaN where it is missing or not a number.
        known: Columns that may be known in advance.
        constants: Columns about the plants: capacity, latitude, longitude, tilt, azimuth.
        units: Units that the names of columns state, by the name of the plant (power), "base" and "capacity".
        time_name: Name of the column of times.
        named: Whether the table names its plants; else a single one has the name of the file.
    """

    names: list[str]
    plant: NDArray[np.int64]
    row: Rows
    clock: Seconds
    utc: Seconds
    power: Floats
    known: Mapping[str, Floats]
    constants: Mapping[str, Floats]
    units: Mapping[str, str | None]
    time_name: str
    named: bool


def long_table(source: Source, given: Mapping[str, str], findings: Findings) -> LongTable:
    """Return the entries of a table, and tell what its columns were taken for.

    Raises:
        ValueError: The table has no rows, or columns for time or power are missing.
    """
    frame = source.frame
    if not len(frame):
        raise ValueError(
            "the table must have rows below its header, got none. A plant without power yet is given by sites=, a "
            "table with its name, capacity, latitude and longitude."
        )
    layout = find_columns(list(frame.columns), _numeric(source), given)
    _tell(layout, findings)
    time = _times(frame, layout)
    parsed = parse(time)
    if parsed.style:
        findings.add("time format", f"stamps were read as {parsed.style}")
    if parsed.zone:
        findings.add("zone", f"stamps are in the time zone {parsed.zone}")
    power_columns = list(layout.plants) or [layout.roles["power"]]
    power = np.concatenate([_numbers(source, name, findings) for name in power_columns])
    names, plant = _plants(source, layout, findings)
    copies = len(power_columns)
    known = {name: name for name in layout.known} | ({BASE: layout.roles["base"]} if "base" in layout.roles else {})
    constants = {role: layout.roles[role] for role in CONSTANTS if role in layout.roles}
    read = {name: np.tile(_numbers(source, name, findings), copies) for name in [*known.values(), *constants.values()]}
    stated = dict(zip(names, map(unit_of, power_columns), strict=True)) if layout.plants else {}
    return LongTable(
        names,
        plant,
        np.tile(np.arange(len(frame)), copies),
        np.tile(parsed.clock, copies),
        np.tile(parsed.utc, copies),
        power,
        {role: read[name] for role, name in known.items()},
        {role: read[name] for role, name in constants.items()},
        {name: unit_of(power_columns[0]) for name in names}
        | stated
        | {role: unit_of(layout.roles[role]) for role in ("base", "capacity") if role in layout.roles},
        layout.roles["time"],
        bool(layout.plants) or "site" in layout.roles,
    )


def _numeric(source: Source) -> list[str]:
    """Return the columns whose entries are mostly numbers."""

    def is_numeric(name: str) -> bool:
        column = source.frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype | pd.DatetimeTZDtype) or column.dtype.kind in "Mmb":
            return False
        if role_of(name) in ("site", "time", "date", "unit", "zone"):
            return False
        if column.dtype.kind in "iuf":
            return True
        filled = column.dropna()
        filled = filled[filled.astype(str).str.strip() != ""].iloc[:: max(1, len(filled) // TRIED)]
        values = numbers(filled, decimal_comma=source.decimal_comma).values
        return len(values) > 0 and bool(np.isfinite(values).mean() >= 0.5)

    return [name for name in source.frame.columns if is_numeric(name)]


def _tell(layout: Columns, findings: Findings) -> None:
    roles = ", ".join(f"{role} is {name!r}" for role, name in layout.roles.items())
    kind = f"wide, with {len(layout.plants)} columns of power" if layout.plants else "long"
    findings.add("columns", f"the table is {kind}; {roles}")
    if layout.known:
        findings.add("known columns", f"taken as known in advance: {_listed(layout.known)}")
    if layout.unused:
        findings.add("unused columns", f"not used, as measured together with the power: {_listed(layout.unused)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _times(frame: pd.DataFrame, layout: Columns) -> pd.Series:
    time = frame[layout.roles["time"]]
    if "date" in layout.roles and is_time_of_day(time):
        return joined(frame[layout.roles["date"]], time)
    return time


def _numbers(source: Source, name: str, findings: Findings) -> Floats:
    column = source.frame[name]
    found = numbers(column, decimal_comma=source.decimal_comma)

    def tell(kind: str, rows: Rows, told: str, named: Rows = NO_ROWS) -> None:
        if len(rows):
            example = str(column.iloc[rows[0]]).strip()
            findings.add(kind, f"{len(rows)} entries of {name!r} {told.format(repr(example))}", None, named)

    tell("not a number", found.bad, "are not finite numbers, as {}, and are missing", found.bad)
    tell("decimal comma", found.commas, "have a decimal comma")
    tell("thousands", found.thousands, "have thousands that are separated, as {}, and were read without the sign")
    tell(
        "ambiguous numbers",
        found.ambiguous,
        "may have decimals or separated thousands, as {} beside integers, and were read as decimals. If that is wrong, "
        "write the file without signs between thousands",
    )
    return found.values


def _plants(source: Source, layout: Columns, findings: Findings) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the plants and the plant of each entry; -1 for rows that name none."""
    rows = len(source.frame)
    if layout.plants:
        return list(layout.plants), np.repeat(np.arange(len(layout.plants)), rows)
    if "site" not in layout.roles:
        return [source.name], np.zeros(rows, np.int64)
    column = source.frame[layout.roles["site"]]
    codes, labels = pd.factorize(column)
    texts = [str(label).strip() for label in labels]
    names = list(dict.fromkeys(text for text in texts if text))
    number = {name: i for i, name in enumerate(names)}
    codes = np.array([*(number.get(text, -1) for text in texts), -1], np.int64)[codes]
    nameless = np.flatnonzero(codes < 0)
    if len(nameless):
        findings.add("no plant", f"{len(nameless)} rows name no plant and were left out", None, nameless)
    if not names:
        raise ValueError(f"the column {layout.roles['site']!r} must name plants, and it is empty")
    return names, codes
