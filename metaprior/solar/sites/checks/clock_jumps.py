"""Days on which a plant's clock was set: the whole profile of the day moves by about an hour."""

import numpy as np

from metaprior.solar.sites.checks.record import Bools, Record, usual_largest
from metaprior.solar.sites.plant import Floats

SIDE, WIDE = 10, 20
"""Days before and after a jump that are compared; a jump must be seen in both."""
LEAST_DAYS = 8
"""Days of the narrower ones that must have power."""
LEAST, MEDIAN, MOST = 0.55, 0.75, 2.5
"""Hours: least and most movement of noon, first and last light, and least of their median."""


def clock_jumps(record: Record) -> Floats:
    """Return the hours by which the profile of the day moves between each day and the one before, (D,); mostly 0.

    The envelopes of the ten, and twenty, days before and after are compared at three points: the centre of the power,
    and where it exceeds a tenth of its largest value first and last. All three must move in the same direction by about
    an hour: seasons move first and last light apart, and weather does not move all of them.
    """
    least, median = _movement(record, SIDE)
    wide_least, wide_median = _movement(record, WIDE)
    jumps = (least >= LEAST) & (np.abs(median) >= MEDIAN) & (np.abs(median) <= MOST) & _days_with_power(record)
    jumps &= (wide_least >= 0.7 * LEAST) & (np.abs(wide_median) >= 0.7 * MEDIAN) & (wide_median * median > 0)
    found = np.zeros(record.days)
    strength = np.where(jumps, least, 0.0)
    while strength.any():
        day = int(strength.argmax())
        found[day] = np.round(median[day])
        strength[max(0, day - SIDE) : day + SIDE] = 0
    return found


def _movement(record: Record, side: int) -> tuple[Floats, Floats]:
    """Return the least movement of three points, 0 if directions differ, and their median, in hours, (D,)."""
    after, before = usual_largest(record.coarse, 0, side - 1), usual_largest(record.coarse, side, -1)
    moves = (_features(after) - _features(before)) * 24 / record.coarse.shape[1]
    together = (np.sign(moves) == np.sign(moves[:1])).all(axis=0)
    return np.where(together, np.abs(moves).min(axis=0), 0.0), np.median(moves, axis=0)


def clock_offsets(record: Record) -> Floats:
    """Return the hours by which the clock of each day differs from that of the last days, (D,); mostly 0.

    Between two jumps the clock is the same: noon and the middle of the light are compared with those after the last
    jump, and both must differ by more than half an hour.
    """
    part = np.cumsum(clock_jumps(record) != 0)
    offsets = np.zeros(record.days)
    if not len(part) or not part[-1]:
        return offsets
    centre, first, last = _features(usual_largest(record.coarse, SIDE // 2, SIDE // 2)) * 24 / record.coarse.shape[1]
    points = np.stack([centre, (first + last) / 2])
    middles = [np.nanmedian(points[:, part == number], axis=1) for number in range(part[-1] + 1)]
    for number, middle in enumerate(middles[:-1]):
        moved = middle - middles[-1]
        if np.abs(moved).min() > 0.5 and moved.prod() > 0:
            offsets[part == number] = np.round(moved.mean()) or np.sign(moved[0])
    return offsets


def _features(profile: Floats) -> Floats:
    """Return centre, first and last light of profiles (D, C) in times of day, (3, D); NaN without power."""
    positive = np.clip(profile, 0, None)
    number = np.arange(profile.shape[1]) + 0.5
    total = positive.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = positive @ number / total
        share = positive / positive.max(axis=1, keepdims=True)
    first, last = _first_crossing(share), profile.shape[1] - _first_crossing(share[:, ::-1])
    return np.stack([centre, first, last])


def _first_crossing(share: Floats) -> Floats:
    """Return where rows first reach 0.1, between the times of day by linear interpolation, (D,)."""
    above = share >= 0.1
    at = above.argmax(axis=1)
    rows = np.arange(len(share))
    here, before = share[rows, at], share[rows, np.maximum(at - 1, 0)]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.clip((here - 0.1) / (here - before), 0, 1)
    part = np.where(
        np.isnan(part), 0.0, part
    )  # the value before is not known: the crossing is at the time of day itself
    return np.where(above.any(axis=1), at - part, np.nan)


def _days_with_power(record: Record) -> Bools:
    """Return the days with enough days of power on both sides, (D,)."""
    power = (record.coarse > 0.1 * record.scale).any(axis=1)
    total = np.concatenate([[0], power.cumsum()])
    day = np.arange(record.days)
    before = total[day] - total[np.maximum(day - SIDE, 0)]
    after = total[np.minimum(day + SIDE, record.days)] - total[day]
    return np.asarray((before >= LEAST_DAYS) & (after >= LEAST_DAYS))
