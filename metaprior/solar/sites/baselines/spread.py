r"""Normal distributions around point forecasts, whose spread comes from errors on the support days themselves.

Errors of a plant grow with what a clear day would give. At lead time $l$ the standard deviation is
$s_l\,(e + e_0)$ with the envelope $e$ at the time that is forecast; $s_l$ is the root mean squared error of the same
forecast on the support days in that unit, each day left out in turn. A typical value, near that of simulated plants and
of the seven real ones of docs/solar/sites/baselines.md, counts as ``PRIOR_DAYS`` days and stands alone below two days.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from metaprior.solar.sites.baselines.history import History, Rehearsal
from metaprior.solar.sites.baselines.points import Point, envelope_at_targets
from metaprior.solar.sites.sun_position import Floats

PRIOR_DAYS = 2.0
LEAST_ENVELOPE = 0.03
"""Share of the capacity e_0 that is added to the envelope: low sun and fog have errors too."""
NO_ENVELOPE = 0.6
"""Envelope where neither days nor place tell of one."""


@dataclass(frozen=True)
class BaselineForecast:
    """Forecasts as shares of the capacity, (N, L): normal distributions whose quantiles stay within 0 and ``limit``."""

    mean: Floats
    sd: Floats
    limit: float

    def quantile(self, levels: ArrayLike) -> Floats:
        """Return quantiles at probabilities (Q,), as (N, L, Q)."""
        standard = [NormalDist().inv_cdf(level) for level in np.atleast_1d(levels).tolist()]
        normal = self.mean[..., None] + self.sd[..., None] * np.array(standard)
        return np.asarray(np.clip(normal, 0.0, self.limit))


Method = Callable[[History, Rehearsal | None], tuple[Floats, Floats | None]]
"""Returns point forecasts (N, L), and those of the rehearsal if there is one."""


def by_itself(point: Point) -> Method:
    """Return the method of a point forecast that learns nothing from a rehearsal."""
    return lambda history, rehearsal: (point(history), None if rehearsal is None else point(rehearsal.history))


def with_spread(method: Method, history: History, rehearsal: Rehearsal | None) -> BaselineForecast:
    """Return the distributions of a method's forecasts, from its errors in the rehearsal."""
    limit = float(max(1.0, np.nanmax(history.days, initial=0.0), np.nanmax(history.recent, initial=0.0)))
    point, rehearsed = method(history, rehearsal)
    scale = typical_error(history)
    if rehearsal is not None and rehearsed is not None:
        unit = _unit(rehearsal.history)
        error = (np.clip(rehearsed, 0.0, limit) - rehearsal.targets) / unit
        counted = np.isfinite(error) & (unit > 3.0 * LEAST_ENVELOPE)
        seen = counted.sum(0)
        squared = np.where(counted, error**2, 0.0).sum(0) / np.maximum(seen, 1)
        own = np.where(seen > 0, history.day_count - 1.0, 0.0)
        scale = np.sqrt((own * squared + PRIOR_DAYS * scale**2) / (own + PRIOR_DAYS))
    return BaselineForecast(np.clip(point, 0.0, limit), scale * _unit(history), limit)


def typical_error(history: History) -> Floats:
    """Return the root mean squared error in units of the envelope by lead time, (L,), of a typical plant."""
    per_hour = history.recent.shape[1] / 24.0
    hours = np.arange(1, history.target_slot.shape[1] + 1) / per_hour
    known = history.day_count + (history.target_clear is not None)  # what tells of the envelope: days, and the place
    least = 0.25 if known > 1 else 0.4
    return np.asarray(least + 0.1 * (1.0 - np.exp(-hours / 3.0)))


def _unit(history: History) -> Floats:
    envelope = envelope_at_targets(history)
    if not history.day_count and history.target_clear is None:
        envelope = np.full(envelope.shape, NO_ENVELOPE)
    return envelope + LEAST_ENVELOPE
