"""Checks of a plant's power: doubtful intervals are masked by reason, counted and told; nothing is changed.

checked = check(plant)      # the plant with ``doubt`` filled
count_doubts(checked)       # {"outage": 12, ...}
"""

from dataclasses import replace

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.checks.defects import DEFECTS, DOUBTS, Defect
from metaprior.solar.sites.checks.record import STANDBY, Bools, Record
from metaprior.solar.sites.findings import Findings, Rows
from metaprior.solar.sites.plant import HOUR, Plant
from metaprior.text_table import four_digits

__all__ = ["DEFECTS", "DOUBTS", "Defect", "Record", "check", "count_doubts", "tell_defects"]


def check(plant: Plant) -> Plant:
    """Return the plant with the reason of each doubtful interval in ``doubt``; reasons that it has already stay."""
    doubt = plant.doubt.copy()
    if not np.isfinite(plant.usable).any():
        return plant
    record = Record(plant)
    for code, defect in enumerate(DEFECTS, start=1):
        if defect.find is not None:
            found = record.as_series(defect.find(record)) & np.isfinite(plant.power)
            doubt[found & (doubt == 0)] = code
    return replace(plant, doubt=doubt)


def count_doubts(plant: Plant) -> dict[str, int]:
    """Return the number of doubtful intervals by reason, for reasons that occur, in the order of ``DEFECTS``."""
    counts = np.bincount(plant.doubt, minlength=len(DOUBTS) + 1)[1:]
    return {name: int(count) for name, count in zip(DOUBTS, counts, strict=True) if count}


def tell_defects(plant: Plant, rows: Rows, findings: Findings, zone: str | None = None) -> None:
    """Tell what is doubtful or remarkable about a checked plant.

    Args:
        plant: The checked plant.
        rows: Row of the table of each interval, -1 without any.
        findings: What the user is told is added to these.
        zone: Time zone of the table's stamps, on whose clock times are told; as the plant has them if not given.
    """
    for code, defect in enumerate(DEFECTS, start=1):
        own = plant.doubt == code
        if own.any() and defect.find is not None:
            hours = own.sum() * plant.step / HOUR
            told = (
                f"{own.sum():,} intervals ({hours:,.4g} h) {defect.told}, first on {_stamp(plant, own.argmax(), zone)}"
            )
            findings.add(defect.name, f"{told}; masked", plant.name, rows[own & (rows >= 0)], int(own.sum()))
    if not len(plant):
        return
    record = Record(plant)
    missing = np.isnan(plant.power)
    if missing.any():
        by_day = int((missing & record.as_series(record.lit)).sum())
        told = f"{missing.sum():,} of {len(plant):,} intervals have no power, {by_day:,} of them by day"
        findings.add("gap", f"{told}; the longest gap has {_longest(missing) * plant.step / HOUR:,.4g} h", plant.name)
    standby = (plant.usable < 0).sum()
    if standby:
        told = f"{standby:,} intervals are negative by less than {STANDBY:.0%} of the capacity: consumption, not masked"
        findings.add("standby", told, plant.name, count=int(standby))
    if record.clipping is not None:
        flat = int((record.plausible >= 0.99 * record.clipping).sum())
        limit = f"{four_digits(record.clipping)} {plant.unit}"
        told = f"power is clipped at {limit} in {flat:,} intervals: its behaviour, not masked"
        findings.add("clipping", told, plant.name, count=flat)


def _stamp(plant: Plant, interval: np.intp, zone: str | None) -> str:
    """Return the stamp of an interval as the table has it."""
    time = pd.Timestamp(plant.times[interval] + np.timedelta64(plant.step if plant.stamp == "end" else 0, "s"))
    local = time if zone is None else time.tz_localize("UTC").tz_convert(zone).tz_localize(None)
    return str(local.isoformat())


def _longest(mask: Bools) -> int:
    """Return the length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))
