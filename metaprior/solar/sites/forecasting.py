"""The forecast of a whole table: every plant at one time of issue, in its own unit and on the clock of its stamps."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.checks import DOUBTS, count_doubts
from metaprior.solar.sites.findings import URGENT, Findings
from metaprior.solar.sites.forecaster import (
    JUDGED_AFTER,
    LEVELS,
    MOST_DAYS,
    MOST_HOURS,
    MUCH,
    WITHOUT_BASE,
    AdaptedPlant,
    AdaptedPlants,
    Known,
    SiteForecaster,
    full_hour,
    quantile_name,
)
from metaprior.solar.sites.plant import HOUR, Plant
from metaprior.solar.sites.reading.reader import PowerTable
from metaprior.solar.sites.sun_path import plant_sun_path
from metaprior.solar.sites.weather import used_weather, weather_notes
from metaprior.text_table import Row, counted

UNKNOWN = "the base forecast has no values for the days with power, so nothing tells its quality, and is not used"
USELESS = "the base forecast had no skill on the last days and is not used"
STALE_HOURS = 24
"""Hours between the end of a record and the issue from which the user is told."""
CLOCK_SET = ". The clock was set, as with daylight-saving time, and the zone is not stated. Try zone="
SHOWN_LEADS = (1, 3, 6, 12, 24, 48)
"""Leads of the table that is printed."""
RECOGNISED = (
    *(
        "columns",
        "zone",
        "zone unknown",
        "zone implied",
        "zone suggested",
        "stamps",
        "stamps assumed",
        "cadence",
        "irregular",
    ),
    *("unit", "unit unknown", "capacity", "capacity estimated", "no power", "titles", "thousands", "facts matched"),
)
"""Kinds of findings that say what a table was taken for."""
REPLACED = {"stamps assumed": "stamps"}
"""Kinds of findings that another one of the same plant replaces."""


@dataclass(frozen=True, eq=False)
class TableForecast:
    """The forecast of a table.

    Args:
        frame: A row for each plant and hour, as ``AdaptedPlants.predict`` gives them, with times in the zone of the
            table; in UTC if its plants have several, and without a zone if it is not known.
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
        at: Time of issue in the zone of the table unless it states one, rounded down to a full hour; by default the
            full hour at or after the end of the longest record.
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
    adapted = forecaster.adapt(kept)
    if not kept:
        raise ValueError(f"plants must have power in the {MOST_DAYS} days before {issue}, got none. Try an earlier at.")
    notes += base_notes(adapted.plants, issue)
    frame, warned = _predicted(adapted, issue, hours, levels)
    if zone:
        frame = frame.assign(**{name: frame[name].dt.tz_convert(zone) for name in ("issued", "time")})
    found = TableForecast(frame, adapted.plants, issue, zone, tuple(levels), table)
    return replace(found, notes=[*_issue_notes(found, at), *notes, *warned, *_value_notes(found)])


def _predicted(
    adapted: AdaptedPlants, issue: np.datetime64, hours: int, levels: Sequence[float]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the forecasts, and what a user of Python is warned of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        frame = adapted.predict(issue, hours=hours, levels=levels)
    return frame, [str(warning.message) for warning in warned]


def _issue_notes(found: TableForecast, at: str | None) -> list[str]:
    """Return what is said about a time of issue that the user did not choose, or not like this."""
    issued = found.shown(found.issue)
    if at is None:
        told = f"there is no power, so the forecast is issued now, at {issued}. Try at= for another time"
        return [] if any(len(plant) for plant in found.table) else [told]
    if _moment(at, found.zone) == issued:
        return []
    return [f"the time of issue, {at}, is rounded down to a full hour, {issued}: power after it is not read"]


def _value_notes(found: TableForecast) -> list[str]:
    """Return what the values and their times are, and which plants have no light in all of these hours."""
    plants = [one.plant for one in found.plants.values()]
    stamps = {plant.stamp for plant in plants}
    finer = sorted({plant.step // 60 for plant in plants if len(plant) and plant.step < HOUR})
    hourly = f" (the table has intervals of {' and '.join(map(str, finer))} minutes)" if finer else ""
    named = f"is the {stamps.pop()} of the hour" if len(stamps) == 1 else "is the begin or end of the hour ('stamp')"
    dark = [name for name in found.plants if not found.of(name)["mean"].any()]
    night = [f"the forecast is zero, as all of these hours are dark: {', '.join(dark)}"] if dark else []
    return [*night, f"values are means of hours{hourly}; 'time' {named}, as stamps of the table are"]


def base_notes(adapted: Mapping[str, AdaptedPlant], issue: np.datetime64) -> list[str]:
    """Return how weather is used, and which base forecasts are not; a line for all plants with the same."""
    plants: dict[str, list[str]] = {}
    for name, one in adapted.items():
        known = one.known_at(one.index(issue))
        for line in _base_in_words(one, known):
            plants.setdefault(line, []).append(name)
    return [told if len(names) == len(adapted) else f"{', '.join(names)}: {told}" for told, names in plants.items()]


def _base_in_words(adapted: AdaptedPlant, known: Known) -> list[str]:
    """Return how weather becomes a base forecast, how far that is trusted, and whether it was scaled."""
    lines, source = weather_notes(adapted.plant, adapted.weather), used_weather(adapted.plant, adapted.weather)
    if not np.isfinite(known.hours.base).any():
        return lines
    if known.trust == 0.0:
        told = UNKNOWN if known.days < 1 else USELESS
        if source is None:
            return [*lines, told]
        named = f"the base forecast from {', '.join(map(repr, source.names))}"
        return [line for line in lines if line != str(source)] + [told.replace("the base forecast", named, 1)]
    scaled = f", times {known.factor:.3g} to fit the power" if known.factor != 1.0 else ""
    why = "by its skill on the last days" if known.days > JUDGED_AFTER else "until there are days to judge it by"
    return [*lines, f"the base forecast counts for {known.trust:.0%}, {why}{scaled}"]


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
    for kind in sorted(dict.fromkeys(entry.kind for entry in findings), key=lambda kind: kind not in URGENT):
        own = [entry for entry in findings.of(kind) if not findings.of(REPLACED.get(kind, ""), entry.plant)]
        if not own:
            continue
        messages = list(dict.fromkeys(entry.message for entry in own))
        if kind in (*URGENT, *RECOGNISED) and kind not in DOUBTS:
            single = len({entry.plant for entry in own}) < len(plants)
            which = f"{own[0].plant}: " if (len(messages) > 1 or single) and own[0].plant else ""
            more = f" (and {counted(len(messages) - 1, 'more plant')} with others)" if len(messages) > 1 else ""
            lines.append(f"{which}{messages[0]}{more}")
    total = sum(len(plant) for plant in plants)
    masked: dict[str, int] = {}
    for plant in plants:
        for name, count in count_doubts(plant).items():
            masked[name] = masked.get(name, 0) + count
    if masked:
        counts = ", ".join(f"{name} {count:,}" for name, count in masked.items())
        share = sum(masked.values()) / total
        told = f"masked as doubtful: {share:.2%} of the intervals ({counts})"
        lines.insert(
            0 if share > MUCH else len(lines),
            f"{told}{CLOCK_SET if 'clock' in masked and needs_zone(findings) else ''}",
        )
    left_out = sum(len(entry.rows) for entry in findings if "left out" in entry.message)
    return [*lines, f"{left_out:,} rows were left out"] if left_out else lines


def needs_zone(findings: Findings) -> bool:
    """Return whether the clock of a table was set and its zone is not stated, so that a part of it is an hour off."""
    return bool(findings.of("zone unknown")) and bool(findings.kinds() & {"clock", "clock set back"})


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
        last = pd.Timestamp(max(ends or [plant.end for plant in table]))
        return np.datetime64(last.ceil("h").to_datetime64(), "h")
    return full_hour(_moment(at, zone))


def _moment(at: str, zone: str | None) -> pd.Timestamp:
    """Return the time of issue that the user states, in the zone of the table unless it has one."""
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
    return moment
