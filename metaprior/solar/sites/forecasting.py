"""The forecast of a whole table: every plant at one time of issue, in its own unit and on the clock of its stamps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.checks import count_doubts
from metaprior.solar.sites.findings import Findings
from metaprior.solar.sites.forecaster import (
    JUDGED_AFTER,
    LEVELS,
    MOST_DAYS,
    MOST_HOURS,
    AdaptedPlant,
    Known,
    SiteForecaster,
    full_hour,
    quantile_name,
)
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.reading.reader import PowerTable
from metaprior.solar.sites.sun_path import plant_sun_path
from metaprior.solar.sites.weather import weather_notes
from metaprior.text_table import Row

WITHOUT_BASE = 6
"""Hours that are forecast without a base forecast."""
UNKNOWN = "the base forecast has no values for the days with power, so nothing tells its quality, and is not used"
USELESS = "the base forecast had no skill on the last days and is not used"
STALE_HOURS = 24
"""Hours between the end of a record and the issue from which the user is told."""
SHOWN_LEADS = (1, 3, 6, 12, 24, 48)
"""Leads of the table that is printed."""
RECOGNISED = (
    *("columns", "zone", "zone unknown", "zone suggested", "stamps", "stamps assumed", "cadence", "irregular"),
    *("unit", "unit unknown", "capacity", "capacity estimated", "capacity exceeded", "no power", "noon"),
)
"""Kinds of findings that say what a table was taken for."""


@dataclass(frozen=True, eq=False)
class TableForecast:
    """The forecast of a table.

    Args:
        frame: A row for each plant and hour: ``site, issued, time, lead_hours, mean, q05, ..., unit``. Times are begins
            of hours in the zone of the table; in UTC if its plants have several, and without a zone if it is not known.
        plants: The forecasters, with records that end at the time of issue at the earliest.
        issue: Time of issue, in UTC or on the clock of stamps without a zone.
        zone: Zone of the times of ``frame``; None if it is not known.
        levels: Of the quantiles.
        table: What was read.
        notes: What the user should know about the forecast.
    """

    frame: pd.DataFrame
    plants: Mapping[str, AdaptedPlant]
    issue: np.datetime64
    zone: str | None
    levels: Sequence[float]
    table: PowerTable
    notes: list[str] = field(default_factory=list)

    def of(self, name: str) -> pd.DataFrame:
        """Return the rows of one plant."""
        return self.frame[self.frame["site"] == name]

    def shown(self, time: np.datetime64) -> pd.Timestamp:
        """Return a time of the plants' records as the frame has it."""
        stamp = pd.Timestamp(time)
        return stamp if self.zone is None else stamp.tz_localize("UTC").tz_convert(self.zone)


def forecast_table(
    forecaster: SiteForecaster,
    table: PowerTable,
    *,
    at: str | None = None,
    hours: int = WITHOUT_BASE,
    levels: Sequence[float] = LEVELS,
) -> TableForecast:
    """Return the forecast of all plants of a table, issued at the same time.

    Args:
        forecaster: The prior.
        table: As ``read_power`` returns it.
        at: Time of issue in the zone of the table unless it states one; by default the end of the longest record.
        hours: Hours to forecast: up to 6, or up to 48 where the table has a base forecast or weather for them.
        levels: Increasing levels of the quantiles.

    Raises:
        ValueError: A level or ``at`` is invalid, or a base forecast is needed for so many hours.
    """
    _check_levels(levels)
    if not 1 <= hours <= MOST_HOURS:
        raise ValueError(f"hours must be 1 to {MOST_HOURS}, got {hours}")
    zone = _common_zone(table)
    issue = _issue(table, at, zone)
    late = [plant for plant in table if len(plant) and issue - plant.end > np.timedelta64(MOST_DAYS, "D")]
    notes = [
        f"{one.name} is not forecast: its record ends at {one.end}, more than {MOST_DAYS} days ago" for one in late
    ]
    notes += [
        f"{one.name}: its record ends {(issue - one.end) / np.timedelta64(1, 'h'):.0f} hours before the issue"
        for one in table
        if len(one) and np.timedelta64(STALE_HOURS, "h") < issue - one.end and one not in late
    ]
    kept = [plant.until(issue) for plant in table if plant not in late]
    adapted = forecaster.adapt(kept).plants
    if not adapted:
        raise ValueError(f"plants must have power in the {MOST_DAYS} days before {issue}, got none. Try an earlier at.")
    _check_base(adapted, issue, hours)
    notes += base_notes(adapted, issue)
    frames = [one.predict(issue, hours=hours, levels=levels).assign(unit=one.plant.unit) for one in adapted.values()]
    frame = pd.concat(frames, ignore_index=True)
    for name in ("issued", "time"):
        frame[name] = frame[name].dt.tz_convert(zone) if zone else frame[name].dt.tz_localize(None)
    return TableForecast(frame, adapted, issue, zone, tuple(levels), table, notes)


def base_notes(adapted: Mapping[str, AdaptedPlant], issue: np.datetime64) -> list[str]:
    """Return how weather is used, and which base forecasts are not; a line for all plants with the same."""
    plants: dict[str, list[str]] = {}
    for name, one in adapted.items():
        known = one.known_at(one.index(issue))
        for line in [*weather_notes(one.plant, one.weather), *_trust_in_words(known)]:
            plants.setdefault(line, []).append(name)
    return [told if len(names) == len(adapted) else f"{', '.join(names)}: {told}" for told, names in plants.items()]


def _trust_in_words(known: Known) -> list[str]:
    """Return how far a base forecast is trusted, and whether it was scaled; nothing without one."""
    if not np.isfinite(known.hours.base).any():
        return []
    if known.trust == 0.0:
        return [UNKNOWN if known.days < 1 else USELESS]
    scaled = f", times {known.factor:.3g} to fit the power" if known.factor != 1.0 else ""
    why = "by its skill on the last days" if known.days > JUDGED_AFTER else "until there are days to judge it by"
    return [f"the base forecast counts for {known.trust:.0%}, {why}{scaled}"]


def adapted_days(adapted: AdaptedPlant, issue: np.datetime64) -> int:
    """Return on how many of the last 30 days before the time of issue the plant has usable power."""
    index = adapted.index(issue)
    known = np.isfinite(adapted.hours.power[0, max(0, index - 24 * adapted.days) : index])
    return int(np.pad(known, (-len(known) % 24, 0)).reshape(-1, 24).any(axis=1).sum())


def place_in_words(plant: Plant) -> str:
    """Return where a plant is: as given, or as its power tells, with the uncertainty."""
    if plant.place is not None:
        return "given, {:.4g} {:.4g}".format(*plant.place)
    if not np.isfinite(plant.usable).any():
        return "unknown"
    told = f"estimated, {plant_sun_path(plant)}"
    return told.replace("of the stamps", "UTC") if plant.zone_known else told


def plant_rows(found: TableForecast) -> list[Row]:
    """Return a row for each plant: capacity, days that it was adapted to, mean and 90 % interval at some leads."""
    low, high = quantile_name(found.levels[0]), quantile_name(found.levels[-1])
    rows: list[Row] = []
    for name, adapted in found.plants.items():
        own, plant = found.of(name).set_index("lead_hours"), adapted.plant
        leads = {
            f"+{lead} h": f"{_number(own['mean'][lead])} ({_number(own[low][lead])} to {_number(own[high][lead])})"
            for lead in SHOWN_LEADS
            if lead in own.index
        }
        capacity = f"{_number(plant.capacity or 1.0)}{' (estimated)' if plant.capacity_estimated else ''}"
        rows.append(
            {
                "plant": name,
                "capacity": capacity,
                "unit": plant.unit,
                "days": adapted_days(adapted, found.issue),
                "place": place_in_words(plant).partition(",")[0],
                **leads,
            }
        )
    return rows


def _number(value: float) -> str:
    """Return a number with four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def short_findings(findings: Findings, plants: Sequence[Plant]) -> list[str]:
    """Return what a table was taken for, and how much of it is masked; a line for each kind of finding."""
    lines = []
    for kind in dict.fromkeys(entry.kind for entry in findings):
        own = findings.of(kind)
        messages = list(dict.fromkeys(entry.message for entry in own))
        if kind in RECOGNISED:
            single = len({entry.plant for entry in own}) < len(plants)
            which = f"{own[0].plant}: " if (len(messages) > 1 or single) and own[0].plant else ""
            more = f" (and {len(messages) - 1} more plants with others)" if len(messages) > 1 else ""
            lines.append(f"{which}{messages[0]}{more}")
    total = sum(len(plant) for plant in plants)
    masked: dict[str, int] = {}
    for plant in plants:
        for name, count in count_doubts(plant).items():
            masked[name] = masked.get(name, 0) + count
    if masked:
        counts = ", ".join(f"{name} {count:,}" for name, count in masked.items())
        lines.append(f"masked as doubtful: {sum(masked.values()) / total:.2%} of the intervals ({counts})")
    lines += [entry.message for entry in findings.of("not a number")]
    left_out = sum(len(entry.rows) for entry in findings if "left out" in entry.message)
    return [*lines, f"{left_out:,} rows were left out"] if left_out else lines


def _check_levels(levels: Sequence[float]) -> None:
    if not levels or not all(0 < level < 1 for level in levels) or not (np.diff(levels) > 0).all():
        raise ValueError(f"levels must increase and lie strictly between 0 and 1, got {', '.join(map(str, levels))}")


def _common_zone(table: PowerTable) -> str | None:
    """Return the zone of all plants, UTC if there are several; None if that of any plant is not known."""
    zones = {table.zones.get(plant.name, "UTC") if plant.zone_known else None for plant in table}
    return None if None in zones else zones.pop() if len(zones) == 1 else "UTC"


def _issue(table: PowerTable, at: str | None, zone: str | None) -> np.datetime64:
    """Return the time of issue in UTC, or on the clock of stamps whose zone is not known."""
    if at is None:
        ends = [plant.end for plant in table if len(plant)]
        return full_hour(max(ends or [plant.end for plant in table]))
    try:
        moment = pd.Timestamp(at)
    except ValueError as error:
        raise ValueError(f"at must be a time such as 2025-06-01T12:00, got {at!r}") from error
    if moment.tz is None and zone is not None:
        moment = moment.tz_localize(zone)
    elif moment.tz is not None and zone is None:
        raise ValueError(
            f"at must have no zone, as the stamps of the table have none, got {at!r}. Try zone= to state theirs."
        )
    return full_hour(moment)


def _check_base(adapted: Mapping[str, AdaptedPlant], issue: np.datetime64, hours: int) -> None:
    """Raise ValueError if hours beyond the sixth have no base forecast."""
    if hours <= WITHOUT_BASE:
        return
    reach = {name: _reach_of_base(one, issue, hours) for name, one in adapted.items()}
    short = [name for name, count in reach.items() if count < hours]
    if short:
        named = ", ".join(f"{name} ({reach[name]} h)" for name in short[:5]) + ", ..." * (len(short) > 5)
        raise ValueError(
            f"hours must be at most {WITHOUT_BASE} where there is no base forecast for them, got {hours}. Base "
            f"forecasts that end earlier: {named}. Try hours={WITHOUT_BASE}, or add a column to the table, with rows "
            "for the hours to come: 'base' with a forecast in the unit of the power, or weather such as 'ghi'."
        )


def _reach_of_base(adapted: AdaptedPlant, issue: np.datetime64, hours: int) -> int:
    """Return for how many hours after the time of issue there is a base forecast without a gap."""
    index = adapted.index(issue)
    known = np.isfinite(adapted.known_at(index).hours.base[0, index : index + hours])
    return int(np.append(known, False).argmin())
