"""Defects of records, laid over sound ones, with the truth about where they are."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import HOUR, Plant

Floats = NDArray[np.float64]

LEAST_POWER = 0.02
"""Share of the highest power below which an interval is not by day."""


def with_defects(
    plant: Plant, seed: int, *, kinds: tuple[str, ...] | None = None, per_month: float = 1.0
) -> tuple[Plant, NDArray[np.uint8]]:
    """Return the plant with defects in its record, and where they are.

    Each kind occurs a number of times that is Poisson distributed. Later defects are laid over earlier ones. Whether a
    defect can be seen is another question: an outage at night changes nothing and is not listed.

    Args:
        plant: A plant with a sound record.
        seed: Seed of the defects; they also depend on the plant's name.
        kinds: Names of ``KINDS``, all if not given.
        per_month: Expected number of defects of each kind in 30 days.

    Returns:
        The plant, and for each interval 0 if it is as it was, else 1 + the index of the kind in ``KINDS``, (T,).
    """
    random = np.random.default_rng([seed, zlib.crc32(plant.name.encode())])
    power, mask = plant.power.copy(), np.zeros(len(plant), np.uint8)
    per_day = 24 * HOUR // plant.step
    for name in KINDS if kinds is None else kinds:
        for _ in range(random.poisson(per_month * len(plant) / (30 * per_day))):
            changed = KINDS[name](power.copy(), per_day, random)
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


def _one_by_day(power: Floats, random: np.random.Generator) -> int:
    """Return a random interval with power."""
    by_day = np.flatnonzero(power > LEAST_POWER * np.nanmax(power)) if np.isfinite(power).any() else np.array([0])
    return int(random.choice(by_day)) if by_day.size else 0


def _outage(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    first = _one_by_day(power, random)
    there = slice(first, first + max(1, round(random.uniform(1 / 24, 1 / 3) * per_day)))
    power[there] = np.minimum(power[there], 0)
    return power


def _dead_days(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    there = _somewhere(power, per_day, 5 * per_day, random)
    power[there] = np.where(np.isnan(power[there]), np.nan, 0.0)
    return power


def _stuck(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    first = _one_by_day(power, random)
    power[first : first + max(3, round(random.uniform(3 / 24, 1.5) * per_day))] = power[first]
    return power


def _spike(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    power[random.integers(len(power))] = np.nanmax(power) * random.uniform(1.5, 30)
    return power


def _negative(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    there = _somewhere(power, 1, 4, random)
    power[there] = -np.nanmax(power) * random.uniform(0.02, 5)
    return power


def _gap(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    power[_somewhere(power, 1, 4 * per_day, random)] = np.nan
    return power


def _clock_shift(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    there = _somewhere(power, 2 * per_day, 20 * per_day, random)
    hours = max(1, round(per_day / 24)) * int(random.choice([-2, -1, 1, 2]))
    power[there] = np.roll(power[there], hours)
    return power


def _copied(power: Floats, per_day: int, random: np.random.Generator) -> Floats:
    there = _somewhere(power, per_day / 4, 2 * per_day, random)
    first = max(there.start, 2 * per_day)
    length = len(power[first : there.stop])
    power[first : first + length] = power[first - 2 * per_day :][:length]
    return power


KINDS: dict[str, Callable[[Floats, int, np.random.Generator], Floats]] = {
    "outage": _outage,
    "dead days": _dead_days,
    "stuck": _stuck,
    "spike": _spike,
    "negative": _negative,
    "gap": _gap,
    "clock shift": _clock_shift,
    "copied": _copied,
}
"""Functions that lay one defect over power (T,), with the number of intervals of a day and a random generator."""
