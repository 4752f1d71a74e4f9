"""Defects of records, laid over sound ones, with the truth about where they are."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import HOUR, Plant

Floats = NDArray[np.float64]

LEAST_POWER = 0.02
"""Share of the highest power below which an interval is not by day."""


class Record(NamedTuple):
    """What defects need to know about a sound record."""

    per_day: int  # intervals of a day
    highest: float  # power


def with_defects(
    plant: Plant, seed: int, *, kinds: tuple[str, ...] | None = None, rate: float = 1.0
) -> tuple[Plant, NDArray[np.uint8]]:
    """Return the plant with defects in its record, and where they are.

    Each kind occurs a number of times that is Poisson distributed. Later defects are laid over earlier ones. Whether a
    defect can be seen is another question: an outage at night changes nothing and is not listed.

    Args:
        plant: A plant with a sound record.
        seed: Seed of the defects; they also depend on the plant's name.
        kinds: Names of ``KINDS``, all if not given.
        rate: Factor of how often each kind occurs.

    Returns:
        The plant, and for each interval 0 if it is as it was, else 1 + the index of the kind in ``KINDS``, (T,).
    """
    random = np.random.default_rng([seed, zlib.crc32(plant.name.encode())])
    power, mask = plant.power.copy(), np.zeros(len(plant), np.uint8)
    record = Record(24 * HOUR // plant.step, float(np.max(power, initial=0.0, where=np.isfinite(power))))
    for name in KINDS if kinds is None else kinds:
        lay, per_month = KINDS[name]
        for _ in range(random.poisson(rate * per_month * len(plant) / (30 * record.per_day))):
            changed = lay(power.copy(), record, random)
            mask[~_same(changed, power)] = 1 + list(KINDS).index(name)
            power = changed
    mask[_same(power, plant.power)] = 0  # one shift of the clock can undo another
    return replace(plant, power=power), mask


def _same(one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Return where values are equal or both missing."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def _somewhere(power: Floats, low: float, high: float, random: np.random.Generator) -> slice:
    """Return a stretch with a length between ``low`` and ``high`` intervals, log-uniform, at a random place."""
    length = max(1, round(float(np.exp(random.uniform(np.log(low), np.log(high))))))
    first = int(random.integers(max(1, len(power) - length + 1)))
    return slice(first, first + length)


def _one_by_day(power: Floats, record: Record, random: np.random.Generator) -> int:
    """Return a random interval with power."""
    by_day = np.flatnonzero(power > LEAST_POWER * record.highest)
    return int(random.choice(by_day)) if by_day.size else 0


def _outage(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    first = _one_by_day(power, record, random)
    there = slice(first, first + max(1, round(random.uniform(1 / 24, 1 / 3) * record.per_day)))
    power[there] = np.minimum(power[there], 0)
    return power


def _dead_days(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    there = _somewhere(power, record.per_day, 5 * record.per_day, random)
    power[there] = np.where(np.isnan(power[there]), np.nan, 0.0)
    return power


def _stuck(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    first = _one_by_day(power, record, random)
    power[first : first + max(3, round(random.uniform(3 / 24, 1.5) * record.per_day))] = power[first]
    return power


def _spike(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    power[random.integers(len(power))] = record.highest * random.uniform(1.5, 30)
    return power


def _negative(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    there = _somewhere(power, 1, 4, random)
    power[there] = -record.highest * random.uniform(0.02, 5)
    return power


def _gap(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    power[_somewhere(power, 1, 4 * record.per_day, random)] = np.nan
    return power


def _clock_shift(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    there = _somewhere(power, 2 * record.per_day, 20 * record.per_day, random)
    hours = max(1, round(record.per_day / 24)) * int(random.choice([-2, -1, 1, 2]))
    power[there] = np.roll(power[there], hours)
    return power


def _copied(power: Floats, record: Record, random: np.random.Generator) -> Floats:
    there = _somewhere(power, record.per_day / 4, 2 * record.per_day, random)
    first = max(there.start, 2 * record.per_day)
    length = len(power[first : there.stop])
    power[first : first + length] = power[first - 2 * record.per_day :][:length]
    return power


KINDS: dict[str, tuple[Callable[[Floats, Record, np.random.Generator], Floats], float]] = {
    "outage": (_outage, 1.0),
    "dead days": (_dead_days, 0.4),
    "stuck": (_stuck, 0.5),
    "spike": (_spike, 0.5),
    "negative": (_negative, 1.0),
    "gap": (_gap, 1.0),
    "clock shift": (_clock_shift, 0.1),
    "copied": (_copied, 0.2),
}
"""For each kind, the function that lays one defect over power (T,), and how often it occurs in 30 days on average."""
