"""Which earlier moments of an archive tell how good a forecast issued now would be: those most like it."""

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.maps.nowcast.inputs import LEADS
from metaprior.solar.maps.nowcast.moments import ONE_DAY, Moments

Positions = NDArray[np.int64]
SPACED = 2
"""Steps between two moments of the same day, at least."""
LOOKED_AT = 200
"""Moments of which those with structure are found, when moments are spread over an archive."""
CLOCK_WEIGHT = 3.0
"""A difference of one hour in the time of day counts as much as this difference in days."""


def earlier_moments(moments: Moments, issue: np.datetime64, count: int) -> Positions:
    """Return positions of at most ``count`` moments whose targets were there at ``issue``, in the order of time.

    They are at similar times of day, on the latest days first, and do not stand closer than ``SPACED`` steps.
    """
    positions = _over(moments, issue)
    back = (issue - moments.times[positions]) / ONE_DAY
    off_clock = np.abs(back - np.round(back)) * 24
    order = np.argsort(back / 2 + CLOCK_WEIGHT * off_clock, kind="stable")
    return _chosen(moments, positions[order], count)


def spread_moments(moments: Moments, issue: np.datetime64, count: int) -> Positions:
    """Return positions of at most ``count`` moments before ``issue``, spread evenly over the archive."""
    positions = _over(moments, issue)
    few = (
        positions[np.unique(np.linspace(0, max(len(positions) - 1, 0), LOOKED_AT).astype(int))]
        if len(positions)
        else positions
    )
    lit = np.array([position for position in few.tolist() if moments.has_structure(position)], dtype=np.int64)
    return lit[np.unique(np.linspace(0, len(lit) - 1, min(count, len(lit))).round().astype(int))] if len(lit) else lit


def _over(moments: Moments, issue: np.datetime64) -> Positions:
    """Return positions of all moments whose targets were there at ``issue``."""
    positions = moments.whole()
    return positions[moments.times[positions] + LEADS * moments.step <= issue]


def _chosen(moments: Moments, positions: Positions, count: int) -> Positions:
    """Return the first of the positions that stand far enough apart and show something, in the order of time."""
    chosen: list[int] = []
    least = SPACED * moments.step
    for position in positions.tolist():
        if len(chosen) == count:
            break
        apart = all(abs(moments.times[position] - moments.times[other]) >= least for other in chosen)
        if apart and moments.has_structure(position):
            chosen.append(position)
    return np.sort(np.array(chosen, dtype=np.int64))
