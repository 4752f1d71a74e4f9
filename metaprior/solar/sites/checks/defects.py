"""The table of defects: what each one is, what a user is told, and the function that finds it.

A function takes a ``Record`` and returns the cells (D, N) that have the defect. Functions are run in the order of the
table; an interval with several defects has the first of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d, minimum_filter1d  # type: ignore[import-untyped]

from metaprior.solar.sites.checks.clock_jumps import clock_offsets
from metaprior.solar.sites.checks.record import STANDBY, Bools, Record
from metaprior.solar.sites.plant import HOUR, Floats


@dataclass(frozen=True)
class Defect:
    """A reason not to use power.

    Args:
        name: One or two words.
        meaning: What it is, for the documentation.
        told: What the user is told, after the number of intervals.
        find: Returns the cells of a record that have it; None for what is found when a table is read.
        color: Its colour in figures.
    """

    name: str
    meaning: str
    told: str
    find: Callable[[Record], Bools] | None
    color: str


def negative(record: Record) -> Bools:
    """Return power below what a plant consumes at night."""
    return np.asarray(record.power < -STANDBY * record.scale)


def night(record: Record) -> Bools:
    """Return power of more than 3 % of the scale at times of day that are dark in the days around."""
    return np.asarray((record.plausible > 0.03 * record.scale) & ~record.lit)


def spike(record: Record) -> Bools:
    """Return power above what is possible, and single values far above their neighbours and the days around."""
    values = record.power
    lone = values > 1.6 * np.maximum(record.envelope, 0) + 0.2 * record.scale
    flat = values.reshape(-1)
    beside = np.fmax(np.append(flat[1:], np.nan), np.append(np.nan, flat[:-1])).reshape(values.shape)
    return np.asarray((values > record.limit) | (lone & ~(beside > 0.4 * values)))


def curtailment(record: Record) -> Bools:
    """Return flat power well below the limit and below the days around, for at least two hours and four intervals.

    Where it is flat to the last digit, no power in the two hours before and after may be higher: else a meter is stuck.
    Meters whose steps exceed 2 % of the power cannot tell.
    """
    values = record.plausible.reshape(-1)
    size = max(4, 2 * HOUR // record.step)
    high = _filtered(maximum_filter1d, values, np.inf, size)
    low = _filtered(minimum_filter1d, values, -np.inf, size)
    usual = _filtered(minimum_filter1d, record.envelope.reshape(-1), -1.0, size)
    beside = _filtered(maximum_filter1d, values, -np.inf, 3 * size)
    flat = (high - low <= 0.01 * low) & (low > 0.1 * record.scale) & (high < 0.92 * record.top) & (usual > 1.25 * high)
    flat &= (high > low) | (beside <= 1.02 * high)
    flat &= _resolution(values[_changing(record)], record.scale) <= 0.02 * low
    cells = maximum_filter1d(flat, size, origin=-1 + size % 2, mode="constant", cval=False)
    return np.asarray(cells.reshape(record.power.shape) & np.isfinite(record.plausible))


def stuck(record: Record) -> Bools:
    r"""Return runs of equal power by day that are too long for chance, below the limit of the plant.

    A run has at least three intervals and an hour. Where a meter is coarse, the sun alone must change the power by
    three of its steps during the run.
    """
    values, counts = record.plausible.reshape(-1), _changing(record)
    run, length, first = _runs(values)
    usual = np.maximum(record.envelope.reshape(-1), 0.01 * record.scale)
    high, low = np.maximum.reduceat(usual, first), np.minimum.reduceat(usual, first)
    moves = values[first] * (1 - low / high) >= 3 * _resolution(values[counts], record.scale)
    found = moves & (length >= _least_run(record, length[counts[first]], counts))
    return np.asarray((found[run] & counts).reshape(record.power.shape))


def copied(record: Record) -> Bools:
    """Return runs of power by day that equal 1, 2 or 7 days before, where a meter is fine enough to tell."""
    values, counts = record.plausible.reshape(-1), _changing(record)
    found = np.zeros(len(values), bool)
    if _resolution(values[counts], record.scale) > 0.001 * record.scale:
        return found.reshape(record.power.shape)
    for lag in (1, 2, 7):
        same = np.zeros(len(values), bool)
        same[lag * record.slots :] = values[lag * record.slots :] == values[: -lag * record.slots]
        run, length, first = _runs(same & counts)
        equal = (same & counts)[first]
        long_enough = length >= max(3, HOUR / record.step, _least_run(record, length[equal] + 1, counts) - 1)
        found |= (equal & long_enough)[run]
    return found.reshape(record.power.shape)


def _runs(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the run of equal values that each value belongs to, and the lengths and begins of runs."""
    run = np.cumsum(np.append(True, values[1:] != values[:-1])) - 1
    length = np.bincount(run)
    return run, length, np.append(0, np.cumsum(length)[:-1])


def _changing(record: Record) -> Bools:
    """Return the cells by day whose power is above 2 % of the scale and below the limit of the plant, (D N,)."""
    values = record.plausible
    return np.asarray(record.lit & (values > 0.02 * record.scale) & (values < 0.97 * record.top)).reshape(-1)


def _least_run(record: Record, lengths: NDArray[np.int64], counts: Bools) -> float:
    """Return the length from which a run of equal values is no chance: at least three intervals and an hour.

    With the chance p that a value equals the one before, estimated from runs of two, N values have about N p^(n-1) runs
    of n; that must be below 0.1.
    """
    number = int(counts.sum())
    chance = ((lengths == 2).sum() + 0.5) / (number + 50.0)
    return float(max(3, HOUR / record.step, 1 + np.log(max(number, 1) / 0.1) / np.log(1 / chance)))


def _resolution(values: Floats, scale: float) -> float:
    """Return the step of a meter: the distance of neighbouring values, less than that of nine in ten of them."""
    different = np.unique(np.round(values / scale, 6))
    return float(np.quantile(np.diff(different), 0.1)) * scale if len(different) > 1 else 0.0


def outage(record: Record) -> Bools:
    """Return zero power at bright times of days that have power at other times.

    Most days around must have light then: a clock that was wrong for some days makes hours of the night look bright.
    """
    produces = record.whole_days(_largest(record.plausible) > 0.05 * record.scale)
    return np.asarray((record.plausible <= record.zero) & record.bright & record.usually_light & produces)


def dead_day(record: Record) -> Bools:
    """Return days without power between days or months with power."""
    seen = np.isfinite(record.plausible)
    bright = seen & record.bright
    usual_light = bright.sum(axis=1) * record.step >= HOUR
    no_light = (seen.sum(axis=1) * record.step >= 18 * HOUR) & (_largest(record.envelope) <= 0.01 * record.scale)
    no_light &= abs(record.plant.latitude or 0.0) < 62  # polar nights
    return record.whole_days((usual_light | no_light) & (_largest(record.plausible) <= record.zero))


def snow(record: Record) -> Bools:
    """Return winter days with less than 4 % of the usual energy, as snow on modules lets through."""
    bright = np.isfinite(record.plausible) & record.bright
    energy = np.where(bright, record.plausible, 0).sum(axis=1)
    usual = np.where(bright, record.envelope, 0).sum(axis=1)
    dark = (bright.sum(axis=1) * record.step >= HOUR) & (energy < 0.04 * usual)
    season = np.clip(record.envelope, 0, None).sum(axis=1)
    winter = (season < 0.5 * season.max(initial=0.0)) & (abs(record.plant.latitude or 45.0) > 25)
    return record.whole_days(dark & winter)


def clock(record: Record) -> Bools:
    """Return the days on which the clock differs from that of the last days."""
    return record.whole_days(clock_offsets(record) != 0)


def _filtered(function: Callable[..., Floats], values: Floats, missing: float, size: int) -> Floats:
    return np.asarray(function(np.where(np.isnan(values), missing, values), size, mode="constant", cval=missing))


def _largest(cells: Floats) -> Floats:
    """Return the largest value of each day, -1 without any, (D,)."""
    return np.asarray(np.where(np.isnan(cells), -1.0, cells).max(axis=1, initial=-1.0))


DEFECTS = (
    Defect(
        "conflict",
        "a stamp occurs several times with different power",
        "with stamps that occur several times with different power",
        None,
        "#6c5ce7",
    ),
    Defect(
        "negative",
        "power below -2 % of the capacity; smaller consumption at night is left",
        "with negative power, beyond what a plant consumes at night",
        negative,
        "#00bcd4",
    ),
    Defect("night", "power of more than 3 % of the capacity in the dark", "with power at night", night, "#b0508f"),
    Defect(
        "spike",
        "power above 1.3 times the capacity (1.5 times the usual largest power where it is unknown), or a single "
        "value far above its neighbours and the days around",
        "with power that is too high to be true",
        spike,
        "#e91e63",
    ),
    Defect(
        "curtailment",
        "flat power below the plant's limit and below the days around, for two hours or more",
        "of curtailment, with flat power below the plant's limit",
        curtailment,
        "#1f6fb4",
    ),
    Defect(
        "stuck",
        "the same value by day, for at least three intervals and an hour, too long for chance",
        "with values that repeat the one before, as of a stuck meter",
        stuck,
        "#2e7d32",
    ),
    Defect(
        "copied",
        "the values of 1, 2 or 7 days before at the same time, for at least three intervals and an hour",
        "with the values of an earlier day, as of a gap that was filled",
        copied,
        "#009688",
    ),
    Defect(
        "clock",
        "the clock differs from that of the last days: the profile moves by an hour from one day to the next",
        "before the clock was set: the profile of the day moves, as with daylight-saving time. Try zone=",
        clock,
        "#8bc34a",
    ),
    Defect(
        "outage",
        "zero at a bright time of a day that has power at other times",
        "of outages, with zero power by day",
        outage,
        "#c0392b",
    ),
    Defect(
        "dead day",
        "a day without power between days or months with power",
        "on days without power",
        dead_day,
        "#7a4b2a",
    ),
    Defect(
        "snow",
        "a winter day with less than 4 % of the usual energy, as snow on modules lets through",
        "on days with hardly any power in winter, as under snow",
        snow,
        "#90a4ae",
    ),
)
"""All reasons to doubt power, in order of precedence."""

DOUBTS = tuple(defect.name for defect in DEFECTS)
"""Names of the reasons; ``Plant.doubt`` is 1 + the index here."""

CONFLICT = 1 + DOUBTS.index("conflict")
