"""Statistics of how power varies, by which simulated plants can be held against real ones.

They need power alone: the envelope of a plant is, for each hour of the day, a high quantile of the days around, and
its index is power over envelope. ``realism_table`` shows where each real plant lies among simulated ones.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from metaprior.solar.sites.plant import Plant
from metaprior.text_table import Row, text_table

Floats = NDArray[np.float64]

WINDOW_DAYS = 30
QUANTILE = 0.92
LOWEST_ENVELOPE = 0.15
"""Share of a plant's highest envelope below which hours are left out."""

LAGS = (1, 2, 3, 6, 24)


def envelope(days: Floats) -> Floats:
    """Return, for power (days, hours), a high quantile of the days around each day, (days, hours)."""
    last = max(len(days) - WINDOW_DAYS, 0)
    first = np.clip(np.arange(len(days)) - WINDOW_DAYS // 2, 0, last)
    around = days[first[:, None] + np.arange(min(WINDOW_DAYS, len(days)))]
    around = np.sort(around, axis=1)  # NaN comes last
    known = np.isfinite(around).sum(axis=1, keepdims=True)
    rank = np.rint(QUANTILE * np.maximum(known - 1, 0)).astype(np.int64)
    return np.take_along_axis(around, rank, axis=1)[:, 0]


def statistics(plant: Plant) -> dict[str, float]:
    """Return statistics of one plant's hourly power; at least 30 days are needed.

    ``lag h``: autocorrelation of the index; ``day to day``: that of its daily means; ``dim``, ``half`` and ``bright``:
    shares of hours with an index below 0.3, between 0.3 and 0.8, and above; ``clear days`` and ``overcast days``:
    shares of days with a mean index above 0.85 and below 0.35; ``step``: mean absolute change of the index from one
    hour to the next; ``jumps``: share of changes above 0.35; ``kurtosis``: of changes (3 for Gaussian ones);
    ``inside``: standard deviation of the index within a day; ``peak``: highest hour over capacity.
    """
    hourly = plant.hourly()
    power = hourly.usable
    hour = hourly.start.astype("datetime64[h]").astype(np.int64) % 24
    padded = np.concatenate([np.full(hour, np.nan), power])
    days = np.concatenate([padded, np.full(-len(padded) % 24, np.nan)]).reshape(-1, 24)
    days = days[np.isfinite(days).any(axis=1)]
    with np.errstate(invalid="ignore"):
        top = envelope(days)
        lit = top > LOWEST_ENVELOPE * np.nanmax(top)
        index = np.where(lit, np.clip(days / np.where(lit, top, 1), 0, 1.5), np.nan)
    series = index.ravel()
    change = np.diff(series)
    change = change[np.isfinite(change)]
    finite = series[np.isfinite(series)]
    enough = np.isfinite(index).sum(axis=1) >= 4
    means = np.full(len(index), np.nan)
    means[enough] = np.nanmean(index[enough], axis=1)
    known = means[np.isfinite(means)]
    within = np.nanstd(index[enough], axis=1)
    result = {f"lag {lag} h": _correlation(series, lag) for lag in LAGS}
    result |= {
        "day to day": _correlation(means, 1),
        "dim": float(np.mean(finite < 0.3)),
        "half": float(np.mean((finite >= 0.3) & (finite < 0.8))),
        "bright": float(np.mean(finite >= 0.8)),
        "clear days": float(np.mean(known > 0.85)),
        "overcast days": float(np.mean(known < 0.35)),
        "step": float(np.mean(np.abs(change))),
        "jumps": float(np.mean(np.abs(change) > 0.35)),
        "kurtosis": float(np.mean(change**4) / np.mean(change**2) ** 2),
        "inside": float(np.mean(within)),
    }
    if plant.capacity is not None:
        result["peak"] = float(np.nanmax(power) / plant.capacity)
    return result


def _correlation(series: Floats, lag: int) -> float:
    """Return the correlation of pairs that are ``lag`` apart and both known."""
    early, late = series[:-lag], series[lag:]
    both = np.isfinite(early) & np.isfinite(late)
    return float(np.corrcoef(early[both], late[both])[0, 1]) if both.sum() > 2 else float("nan")


def realism_table(simulated: Sequence[Plant], real: Mapping[str, Plant]) -> str:
    """Return a table: each statistic's quantiles over the simulated plants, then each real plant's value.

    The number in brackets is the share of simulated plants below the real one, in per cent; a real plant that is not
    among the simulated ones has 0 or 100 there.
    """
    drawn = [statistics(plant) for plant in simulated]
    found = {name: statistics(plant) for name, plant in real.items()}
    rows: list[Row] = []
    for name in drawn[0]:
        values = np.array([one[name] for one in drawn])
        values = values[np.isfinite(values)]
        row: Row = {"statistic": name}
        row |= {f"{level} %": round(float(np.percentile(values, level)), 2) for level in (5, 25, 50, 75, 95)}
        for plant, one in found.items():
            if name in one:
                row[plant] = f"{one[name]:.2f} ({100 * np.mean(values < one[name]):.0f})"
        rows.append(row)
    return text_table(rows)
