"""Random numbers of single plants, and stationary processes of many plants at once."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter  # type: ignore[import-untyped]

Singles = NDArray[np.float32]


class Purpose(IntEnum):
    """What random numbers are for. Each has a stream of its own, so a longer record only adds to a shorter one."""

    PARAMETERS = 0
    FRONTS = 1
    JUMPS = 2
    REGIMES = 3
    CLOUDS = 4
    THICKNESS = 5
    DAYS = 6
    OPERATION = 7
    METER = 8
    START = 9
    DEFECTS = 10
    BASE = 11
    BASE_DAYS = 12
    BASE_QUALITY = 13


def random_of(seed: int, plant: int, purpose: Purpose) -> np.random.Generator:
    """Return the generator of one plant and purpose, a function of the three numbers alone."""
    return np.random.Generator(np.random.SFC64([seed, plant, int(purpose)]))


def normals(seed: int, plants: Sequence[int], purpose: Purpose, count: int) -> Singles:
    """Return standard normal numbers (plants, count)."""
    values = np.empty((len(plants), count), np.float32)
    for row, plant in enumerate(plants):
        random_of(seed, plant, purpose).standard_normal(out=values[row], dtype=np.float32)
    return values


def uniforms(seed: int, plants: Sequence[int], purpose: Purpose, count: int) -> Singles:
    """Return uniform numbers between 0 and 1 (plants, count)."""
    values = np.empty((len(plants), count), np.float32)
    for row, plant in enumerate(plants):
        random_of(seed, plant, purpose).random(out=values[row], dtype=np.float32)
    return values


def ornstein_uhlenbeck(white: Singles, lifetimes: NDArray[np.float64]) -> Singles:
    r"""Return processes of variance 1 (plants, T) from white noise, correlated by $e^{-t / \mathrm{lifetime}}$.

    $x_0 = w_0$ and $x_t = a x_{t-1} + \sqrt{1 - a^2}\,w_t$ with $a = e^{-1 / \mathrm{lifetime}}$; lifetimes (plants,)
    are counted in steps.
    """
    decays = np.exp(-1 / lifetimes)
    values = np.empty_like(white)
    for row, decay in enumerate(decays):
        gain = np.sqrt(1 - decay**2)
        state = np.array([(1 - gain) * white[row, 0]], np.float32)
        coefficients = np.array([gain], np.float32), np.array([1, -decay], np.float32)
        values[row], _ = lfilter(*coefficients, white[row], zi=state)
    return values


def smoothed(values: Singles, lifetimes: NDArray[np.float64]) -> Singles:
    r"""Return $y_0 = x_0$, $y_t = a y_{t-1} + (1 - a) x_t$ with $a = e^{-1 / \mathrm{lifetime}}$, (plants, T)."""
    result = np.empty_like(values)
    with np.errstate(divide="ignore"):
        decays = np.exp(-1 / lifetimes)
    for row, decay in enumerate(decays):
        state = np.array([decay * values[row, 0]], np.float32)
        coefficients = np.array([1 - decay], np.float32), np.array([1, -decay], np.float32)
        result[row], _ = lfilter(*coefficients, values[row], zi=state)
    return result
