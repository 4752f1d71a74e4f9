r"""Base forecasts with errors of known size, as a weather service or an earlier model would give them.

With the true index $k = \text{truth} / \text{clear}$, held through the night, its mean over a few hours $s$ (models do
not resolve single clouds), mean $m$ and standard deviation $\sigma$ of $s$ over the record, the forecast is

$$b = a\,\text{clear}\,\bigl(m + r\,(s - m) + \sqrt{1 - r^2}\;\sigma\,n\bigr)$$

with the skill $r$, which is the correlation of the forecast index and $s$, and errors $n$ (Ornstein-Uhlenbeck, variance
1). The root mean square error of the index is $\sigma\sqrt{2(1 - r)}$ for $a = 1$: none for $r = 1$, and
$\sqrt 2$ times that of climatology for $r = 0$.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metaprior.checks import check_not_negative, check_positive, check_share
from metaprior.solar.sites.plant import BASE, HOUR, Plant
from metaprior.solar.sites.simulator.fleet import Fleet
from metaprior.solar.sites.simulator.processes import Purpose, Singles, normals, ornstein_uhlenbeck, random_of

HIGHEST_INDEX = 1.15

BASE_DAYS = 2
"""Days by which a base forecast usually reaches beyond the power."""


@dataclass(frozen=True)
class BaseQuality:
    """How good a base forecast is.

    Args:
        skill: Correlation with the smoothed truth, 0 (useless) to 1 (perfect).
        factor: Constant factor $a$: bias and scale.
        error_hours: Time after which an error is forgotten.
        smoothing_hours: Length of the mean that the forecast resolves.
        delay_hours: Time by which the forecast is late.
        missing: Share of days without a forecast.
        irradiance: Whether it forecasts horizontal irradiance in kW/m2 instead of the plant's power.
    """

    skill: float = 0.8
    factor: float = 1.0
    error_hours: float = 8.0
    smoothing_hours: float = 3.0
    delay_hours: float = 0.0
    missing: float = 0.0
    irradiance: bool = False

    def __post_init__(self) -> None:
        check_share("skill", self.skill)
        check_share("missing", self.missing)
        check_positive("error_hours", self.error_hours)
        check_not_negative("factor", self.factor)
        check_not_negative("smoothing_hours", self.smoothing_hours)


def draw_quality(random: np.random.Generator) -> BaseQuality:
    """Return a quality as users may have it: mostly decent, one in ten useless, in a scale of its own."""
    useless, scaled, gaps = random.random(3) < (0.1, 0.5, 0.2)
    return BaseQuality(
        skill=random.uniform(0, 0.25) if useless else random.uniform(0.35, 0.97),
        factor=float(np.exp(random.normal(0, 0.5 if scaled else 0.1))),
        error_hours=random.uniform(2, 24),
        smoothing_hours=random.uniform(1, 6),
        delay_hours=random.uniform(0, 2) if random.random() < 0.3 else 0.0,
        missing=random.uniform(0, 0.5) if gaps else 0.0,
        irradiance=bool(random.random() < 0.4),
    )


def base_forecast(
    truth: Singles,
    clear: Singles,
    quality: BaseQuality | Sequence[BaseQuality],
    *,
    step: int = HOUR,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> Singles:
    """Return base forecasts (plants, T) in the unit of ``truth``, times each quality's factor; NaN where missing.

    Args:
        truth: What is forecast, power or irradiance, (plants, T).
        clear: The same under a cloudless sky, (plants, T).
        quality: One for all plants, or one for each.
        step: Seconds of an interval.
        seed: Seed of the errors.
        numbers: Numbers of the plants, on which the errors depend; 0, 1, ... if not given.
    """
    plants, count = truth.shape
    qualities = [quality] * plants if isinstance(quality, BaseQuality) else list(quality)
    rows = list(range(plants)) if numbers is None else list(numbers)
    per_hour = HOUR / step
    error_steps = np.array([one.error_hours for one in qualities]) * per_hour
    errors = ornstein_uhlenbeck(normals(seed, rows, Purpose.BASE, count), error_steps)
    index = _index_through_nights(truth, clear)
    forecast = np.empty_like(index)
    for row, one in enumerate(qualities):
        resolved = _mean_around(index[row], round(one.smoothing_hours * per_hour))
        resolved = _later(resolved, round(one.delay_hours * per_hour))
        mean, spread = resolved.mean(), resolved.std()
        known = mean + one.skill * (resolved - mean)
        forecast[row] = one.factor * np.clip(known + np.sqrt(1 - one.skill**2) * spread * errors[row], 0, HIGHEST_INDEX)
        if one.missing:
            days = random_of(seed, rows[row], Purpose.BASE_DAYS).random(count // round(24 * per_hour) + 1)
            forecast[row, np.repeat(days < one.missing, round(24 * per_hour))[:count]] = np.nan
    return forecast * clear


def base_of(fleet: Fleet, *, seed: int = 0) -> tuple[Singles, list[BaseQuality]]:
    """Return base forecasts of a fleet (plants, T) with qualities drawn for each plant, and these.

    They forecast power as a share of the nameplate, or irradiance in kW/m2 in place of it; in both cases they have a
    scale of their own. The fleet must have been simulated with ``clear_power=True``.
    """
    if fleet.clear_power.shape != fleet.power.shape:
        raise ValueError("base_of needs the power under a clear sky. Try simulate_fleet(..., clear_power=True).")
    numbers = [truth.number for truth in fleet.parameters]
    qualities = [draw_quality(random_of(seed, number, Purpose.BASE_QUALITY)) for number in numbers]
    irradiance = np.array([quality.irradiance for quality in qualities])[:, None]
    truth = np.where(irradiance, fleet.ghi / 1000, np.maximum(fleet.power, 0))
    clear = np.where(irradiance, fleet.clear_ghi / 1000, fleet.clear_power)
    return base_forecast(truth, clear, qualities, step=fleet.step, seed=seed, numbers=numbers), qualities


def with_base(fleet: Fleet, days: int, *, seed: int = 0) -> list[Plant]:
    """Return the plants of a fleet with power for the first ``days`` and a base forecast in kW for the whole record.

    The base forecasts are those of ``base_of``, times the nameplate.
    """
    forecasts, _ = base_of(fleet, seed=seed)
    end = days * 24 * HOUR // fleet.step
    return [
        replace(
            plant,
            power=plant.power[:end],
            doubt=plant.doubt[:end],
            future={BASE: forecast.astype(np.float64) * truth.nameplate},
        )
        for plant, truth, forecast in zip(fleet.plants, fleet.parameters, forecasts, strict=True)
    ]


def _index_through_nights(truth: Singles, clear: Singles) -> Singles:
    """Return truth over clear (plants, T); at night and where truth is missing, the latest index of the day before."""
    lit = (clear > 0.05 * clear.max(axis=1, keepdims=True)) & np.isfinite(truth)
    index = np.divide(truth, clear, out=np.zeros_like(truth), where=lit)
    latest = np.maximum.accumulate(np.where(lit, np.arange(truth.shape[1]), -1), axis=1)
    first = np.argmax(lit, axis=1)[:, None]  # before the first daylight its index counts
    held = np.take_along_axis(index, np.where(latest < 0, first, latest), axis=1)
    return np.asarray(np.clip(held, 0, 1.5))


def _mean_around(values: Singles, width: int) -> Singles:
    """Return the means of the ``width`` values around each, of fewer at the ends."""
    if width <= 1:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    position = np.arange(len(values))
    low, high = np.maximum(position - width // 2, 0), np.minimum(position + (width + 1) // 2, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low), np.float32)


def _later(values: Singles, steps: int) -> Singles:
    """Return the values some steps later; the first is repeated."""
    return values if steps <= 0 else np.concatenate([np.repeat(values[:1], steps), values])[: len(values)]
