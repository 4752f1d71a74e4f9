r"""Point forecasts of a plant from its support days and its last day, (N, L), which any network should beat.

Smart persistence keeps the ratio of power to what a clear day would give. That *envelope* is, for each slot of the day,
the largest power of the support days; where the place is known, the largest ratio of power to clear-sky irradiance,
but not less than ``LEAST_RATIO`` suggests, times the irradiance at the time that is forecast.
"""

from collections.abc import Callable

import numpy as np

from metaprior.solar.sites.baselines.history import History
from metaprior.solar.sites.sun_position import Floats

Point = Callable[[History], Floats]

LAST_HOURS = 3
"""Hours with light whose ratio to the envelope is kept. On simulated plants 3 are better than 1 or 2."""
LOW = 0.1
"""Share of the envelope's largest value below which the sun is too low for a ratio."""
LARGEST_RATIO = 1.5
LOWEST_CLEAR = 0.02
"""Clear-sky irradiance in kW m-2 below which a ratio to it is one of errors."""
LEAST_RATIO = 0.6
"""Power per clear-sky irradiance on a clear day that is expected before the days show it; divided by the root of their
number. Like the other numbers here it was chosen on simulated plants."""
TYPICAL_SHARE = 0.55
"""Mean power per clear-sky irradiance in kW m-2, as a share of the capacity: a climatology without support days."""


def persistence(history: History) -> Floats:
    """Return the last known value for every lead time; zero if none is known."""
    known = np.isfinite(history.recent)
    newest = history.recent.shape[1] - 1 - known[:, ::-1].argmax(1)
    last = np.where(known.any(1), history.recent[np.arange(len(known)), newest], 0.0)
    return np.repeat(last[:, None], history.target_slot.shape[1], axis=1)


def smart_persistence(history: History) -> Floats:
    """Return the envelope times the last ratio to it; climatology where either is not known."""
    envelope, ratio, _ = _ratio(history)
    return _known_or(climatology, history, ratio[:, None] * envelope)


def climatology(history: History) -> Floats:
    """Return the mean of the support days at the same time of day.

    Where the place is known, a typical share of the clear sky counts as one day more; it is all there is without days.
    """
    days = history.day_count
    mean = _by_slot(_mean(history.days), history.target_slot) if days else np.full(history.target_slot.shape, np.nan)
    if history.target_clear is not None:
        typical = TYPICAL_SHARE * history.target_clear
        mean = np.where(np.isfinite(mean), (days * mean + typical) / (days + 1), typical)
    return _known_or(persistence, history, mean)


def blend(history: History) -> Floats:
    r"""Return $w\,s + (1 - w)\,c$ of smart persistence $s$ and climatology $c$.

    The weight $w$ depends on the number of support days and on the age $a$ of the last ratio at the time that is
    forecast, in hours: ``blend_weight``.
    """
    weight = blend_weight(_ratio(history)[2], history.day_count)
    return weight * smart_persistence(history) + (1.0 - weight) * climatology(history)


def scaled_base(history: History) -> Floats:
    r"""Return the base forecast times one factor, $\sum y b / \sum b^2$ over the support days; 1 without any."""
    if history.target_base is None or history.days_base is None:
        raise ValueError("a base forecast must be given to be scaled, got none. Try base=... or another baseline.")
    product, square = history.days * history.days_base, np.where(np.isfinite(history.days), history.days_base**2, 0.0)
    above, below = np.nansum(product, axis=(1, 2)), np.nansum(square, axis=(1, 2))
    factor = np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0)
    return _known_or(climatology, history, factor[:, None] * history.target_base)


POINTS: dict[str, Point] = {
    "persistence": persistence,
    "smart persistence": smart_persistence,
    "climatology": climatology,
    "blend": blend,
    "scaled base": scaled_base,
}
"""Point forecasts by name."""


def blend_weight(age: Floats, days: int) -> Floats:
    r"""Return the weight of smart persistence at age $a$ in hours with $D$ days, $0.38 + 0.55\,e^{-a/3.5} + 0.05/D$.

    Fitted to the least-squares weights on simulated plants, 0.8 after one hour, 0.5 after six and 0.4 after a night.
    """
    return np.asarray(0.38 + 0.55 * np.exp(-age / 3.5) + 0.05 / max(days, 0.5))


def envelope_at_targets(history: History) -> Floats:
    """Return what a clear day would give at the times that are forecast, (N, L); zero where nothing tells."""
    return np.nan_to_num(_envelopes(history)[1])


def _ratio(history: History) -> tuple[Floats, Floats, Floats]:
    """Return the envelope at the targets (N, L), the last ratio (N,), and its age at the targets in hours (N, L)."""
    now, then = _envelopes(history)
    high = np.nan_to_num(np.concatenate([now, then], axis=1)).max(axis=1)  # where nothing tells, there is no light
    lit = np.isfinite(history.recent) & (now > LOW * high[:, None]) & (now > 0)
    later = lit[:, ::-1].cumsum(1)[:, ::-1]  # number of lit intervals from here to the issue
    per_hour = history.recent.shape[1] / 24.0
    used = lit & (later <= LAST_HOURS * per_hour)
    above, below = (np.where(used, values, 0.0).sum(1) for values in (history.recent, now))
    ratio = np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan).clip(0.0, LARGEST_RATIO)
    intervals = lit[:, ::-1].argmax(1)[:, None] + np.arange(1, then.shape[1] + 1)
    return then, ratio, np.where(lit.any(1)[:, None], intervals / per_hour, 24.0)


def _envelopes(history: History) -> tuple[Floats, Floats]:
    """Return the envelope at the recent intervals (N, R) and at the targets (N, L); NaN where nothing tells."""
    now, then = np.full(history.recent.shape, np.nan), np.full(history.target_slot.shape, np.nan)
    days, clear = history.days, history.days_clear
    if clear is not None:
        days = np.where(clear > LOWEST_CLEAR, days / np.maximum(clear, LOWEST_CLEAR), 0.0)
    if history.day_count:
        largest = _largest(days)
        now, then = _by_slot(largest, history.recent_slot), _by_slot(largest, history.target_slot)
    if history.recent_clear is None or history.target_clear is None:
        return now, then
    least = LEAST_RATIO / np.sqrt(max(history.day_count, 1))
    return np.fmax(now, least) * history.recent_clear, np.fmax(then, least) * history.target_clear


def _largest(days: Floats) -> Floats:
    """Return the largest known value of each slot, (1 or N, K); NaN if none is known."""
    largest = np.where(np.isfinite(days), days, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(largest == -np.inf, np.nan, largest)


def _mean(days: Floats) -> Floats:
    """Return the mean of the known values of each slot, (1 or N, K); NaN if none is known."""
    known = np.isfinite(days)
    count = known.sum(1)
    return np.where(count > 0, np.where(known, days, 0.0).sum(1) / np.maximum(count, 1), np.nan)


def _by_slot(values: Floats, slot: np.ndarray) -> Floats:
    """Return values (1 or N, K) at slots (N, any), (N, any)."""
    rows = np.arange(len(slot))[:, None] if len(values) > 1 else 0
    return np.asarray(values[rows, slot])


def _known_or(other: Point, history: History, point: Floats) -> Floats:
    known = np.isfinite(point)
    return point if known.all() else np.where(known, point, other(history))
