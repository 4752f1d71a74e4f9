r"""Scores of forecast maps by lead time, accumulated over tasks.

    forecast (S, N, L, H, W), targets (N, L, H, W) -> sums of each task and lead time -> measures

Only sums are kept, about fifty numbers for each task and lead time. Errors are pooled: a measure is that of all pixels
of all tasks together. Confidence limits state how much it depends on which tasks were drawn: 2.5 and 97.5 percentiles
of a bootstrap (Efron and Tibshirani 1993) that draws whole tasks, because the pixels of a task are not independent.

``docs/solar/scores.md`` defines every measure.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Self

import torch
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.noise import Noise
from metaprior.solar.scores import lead_sums
from metaprior.text_table import Row, finite_or_none

RATIOS = ("rmse", "mae", "crps", "width_50", "width_90", "spread")
"""Measures that are never negative and have a unit, so that a ratio of two of them is meaningful."""

RESAMPLES = 1000
LIMITS = (0.025, 0.975)
"""Resamples of the bootstrap over tasks (Efron and Tibshirani 1993), and the percentiles that are its limits."""

Lead = int | str
"""A lead time in minutes, or "all" for all of them together."""


class LeadTimeScores:
    """Scores of one method's forecasts, by lead time.

    ``lead_minutes`` are the lead times, in the order of the targets' second axis. ``value_range`` is the largest value
    of the data minus the smallest, which structural similarity is relative to.
    """

    def __init__(self, lead_minutes: Sequence[int], *, value_range: float) -> None:
        if not lead_minutes or len(set(lead_minutes)) < len(lead_minutes):
            raise ValueError(f"lead_minutes must be distinct lead times, got {tuple(lead_minutes)}")
        if not 0 < value_range < torch.inf:
            raise ValueError(f"value_range must be positive (largest minus smallest value), got {value_range}")
        self.lead_minutes = tuple(lead_minutes)
        self.value_range = float(value_range)
        self._columns: tuple[str, ...] = ()
        self._sums: dict[str, Tensor] = {}  # (L, K) of each task

    def add(
        self,
        forecast: GaussianForecast | Tensor,
        targets: Tensor,
        *,
        task: str,
        references: Mapping[str, Tensor] | None = None,
        daylight: Tensor | None = None,
    ) -> None:
        """Add the forecast of N windows of a task; more windows of the same task may follow.

        Args:
            forecast: A ``GaussianForecast``, or a tensor (N, L, H, W): a point forecast, whose CRPS is the absolute
                error and which has no measures of spread.
            targets: What happened, (N, L, H, W).
            task: Name of the task.
            references: Point forecasts by name, for ``skill_<name>``.
            daylight: Which pixels are scored, bool (N, L, H, W); the others may be NaN. None is all pixels.
        """
        references = references or {}
        means = forecast.means[0] if isinstance(forecast, GaussianForecast) else forecast
        beside = {"the forecast": means, **{f"reference {name!r}": one for name, one in references.items()}}
        beside |= {} if daylight is None else {"daylight": daylight}
        leads, shape = len(self.lead_minutes), tuple(targets.shape)
        if targets.ndim != 4 or shape[1] != leads:
            raise ValueError(
                f"task {task!r}: targets must be (windows, {leads} lead times, rows, columns), got shape {shape}"
            )
        for name, one in beside.items():
            if tuple(one.shape) != shape:
                raise ValueError(f"task {task!r}: {name} must have the targets' shape {shape}, got {tuple(one.shape)}")
        if daylight is not None and daylight.dtype != torch.bool:
            raise ValueError(f"task {task!r}: daylight must hold booleans (True is scored), got {daylight.dtype}")
        names = lead_sums.columns(tuple(references), spread=isinstance(forecast, GaussianForecast))
        if self._columns and set(names) != set(self._columns):
            raise ValueError(
                f"task {task!r}: one LeadTimeScores is for one method and the same references throughout, "
                f"{_described(self._columns)}, got {_described(names)}"
            )
        sums = torch.zeros(len(self.lead_minutes), len(names), dtype=torch.float64)
        with torch.no_grad():  # one frame at a time, so that memory does not grow with the windows
            for window, (lead, minutes) in product(range(len(targets)), enumerate(self.lead_minutes)):
                at, where = (window, lead), f"of task {task!r}, window {window}, {minutes} minutes ahead"
                light = None if daylight is None or bool(daylight[at].all()) else daylight[at].cpu()
                if light is None or bool(light.any()):
                    added = lead_sums.frame_sums(forecast, targets, references, light, at, self.value_range, where)
                    sums[lead] += torch.tensor(added, dtype=torch.float64)
        self._columns = self._columns or names
        order = [names.index(name) for name in self._columns]
        self._sums[task] = self._sums.get(task, 0) + sums[:, order]

    @property
    def tasks(self) -> list[str]:
        """Names of all tasks added so far, sorted."""
        return sorted(self._sums)

    def rows(self, *, seed: int = 0) -> list[Row]:
        """Return a row for each lead time, and one for ``"all"``.

        A row has ``lead``, ``tasks`` and ``values`` (how many were scored), and each measure with its limits over tasks
        ``<measure>_low`` and ``<measure>_high``; unknown values, such as the limits of a single task, are None.
        """
        sums = self._stacked()  # (T, L + 1, K)
        scored = (sums[..., 0] > 0).sum(0).tolist()
        total = lead_sums.measures(sums.sum(0), self._columns)
        resampled = torch.tensordot(_draws_of_tasks(len(sums), seed), sums, 1)  # (RESAMPLES, L + 1, K)
        limits = {name: _percentiles(values) for name, values in lead_sums.measures(resampled, self._columns).items()}
        rows = []
        for number, lead in enumerate(self._leads):
            row: Row = {"lead": lead, "tasks": scored[number], "values": int(sums[:, number, 0].sum())}
            for name, values in total.items():
                low, high = limits[name][:, number].tolist() if scored[number] > 1 else (torch.nan, torch.nan)
                row |= {name: float(values[number]), f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
        return list(finite_or_none(rows))

    def row(self, *, lead: Lead = "all", seed: int = 0) -> Row:
        """Return the row of a lead time, or of all lead times together."""
        return self.rows(seed=seed)[self._number(lead)]

    def per_task(self) -> list[Row]:
        """Return a row for each task and lead time (and ``"all"``): ``task``, ``lead``, ``values``, each measure."""
        sums = self._stacked()
        found = lead_sums.measures(sums, self._columns)
        rows = [
            {"task": task, "lead": lead, "values": int(sums[t, number, 0])}
            | {name: float(values[t, number]) for name, values in found.items()}
            for t, task in enumerate(self.tasks)
            for number, lead in enumerate(self._leads)
        ]
        return list(finite_or_none(rows))

    def reliability(self, *, lead: Lead = "all") -> list[tuple[float, float]]:
        """Return pairs of a level and the share of pixels inside the central interval of that level."""
        counts = self._pit_counts(lead)
        return [(level, float(lead_sums.inside(counts, level) / counts.sum())) for level in lead_sums.LEVELS]

    def pit_histogram(self, *, lead: Lead = "all") -> list[Row]:
        """Return the share of pixels in each of twenty bins ``low`` to ``high`` of F(y); calibrated is 0.05 in all."""
        counts = self._pit_counts(lead).reshape(-1, 2).sum(1)
        shares = (counts / counts.sum()).tolist()
        return [
            {"low": number / len(shares), "high": (number + 1) / len(shares), "share": share}
            for number, share in enumerate(shares)
        ]

    def share_of_tasks(self, measure: str = "coverage_90", *, at_least: float, lead: Lead = "all") -> float:
        """Return the share of tasks, among those with scored pixels, in which a measure is ``at_least`` a value."""
        sums = self._stacked()[:, self._number(lead)]
        of_tasks = self._measure(sums[sums[:, 0] > 0], measure)
        return float((of_tasks >= at_least).double().mean())

    def merge(self, other: Self) -> None:
        """Add the sums of other scores, also of tasks that both have."""
        same = (self.lead_minutes, self.value_range) == (other.lead_minutes, other.value_range)
        if not same or (self._columns and other._columns and set(self._columns) != set(other._columns)):
            raise ValueError(f"scores to merge must be of one kind, got {self!r} and {other!r}")
        self._columns = self._columns or other._columns
        order = [other._columns.index(name) for name in self._columns] if other._columns else []
        for task, sums in other._sums.items():
            self._sums[task] = self._sums.get(task, 0) + sums[:, order]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, for ``from_json``."""
        return {
            "lead_minutes": list(self.lead_minutes),
            "value_range": self.value_range,
            "columns": list(self._columns),
            "sums": {task: sums.tolist() for task, sums in self._sums.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the scores that ``as_json`` wrote; raises ValueError for other content."""
        expected = {"lead_minutes", "value_range", "columns", "sums"}
        if set(content) != expected:
            raise ValueError(f"scores must have the keys {sorted(expected)}, got {sorted(content)}")
        scores = cls(content["lead_minutes"], value_range=content["value_range"])
        scores._columns = names = tuple(content["columns"])
        if names and names != lead_sums.columns(_references(names), spread="nll" in names):
            raise ValueError(f"columns of sums must be those of this version of metaprior, got {', '.join(names)}")
        shape = (len(scores.lead_minutes), len(scores._columns))
        for task, numbers in content["sums"].items():
            sums = torch.tensor(numbers, dtype=torch.float64)
            if sums.shape != shape:
                raise ValueError(f"sums of task {task!r} must have shape {shape}, got {tuple(sums.shape)}")
            scores._sums[task] = sums
        return scores

    def __repr__(self) -> str:
        what = _described(self._columns) if self._columns else "nothing yet"
        return (
            f"LeadTimeScores({self.lead_minutes} minutes, range {self.value_range:g}, {len(self._sums)} tasks, {what})"
        )

    @property
    def _leads(self) -> tuple[Lead, ...]:
        return (*self.lead_minutes, "all")

    def _number(self, lead: Lead) -> int:
        if lead not in self._leads:
            raise ValueError(f"lead must be one of {self._leads}, got {lead!r}")
        return self._leads.index(lead)

    def _stacked(self) -> Tensor:
        """Return sums (T, L + 1, K), sorted by task so that limits do not depend on the order of adding."""
        if not self._sums:
            raise ValueError("nothing has been scored yet. Call add(...) first")
        by_lead = torch.stack([self._sums[task] for task in self.tasks])
        return torch.cat([by_lead, by_lead.sum(1, keepdim=True)], 1)

    def _measure(self, sums: Tensor, name: str) -> Tensor:
        found = lead_sums.measures(sums, self._columns)
        if name not in found:
            raise ValueError(f"measure must be one of {', '.join(found)}, got {name!r}")
        return found[name]

    def _pit_counts(self, lead: Lead) -> Tensor:
        sums = self._stacked()[:, self._number(lead)].sum(0)
        if "pit_0" not in self._columns:
            raise ValueError("reliability needs forecasts with spread, got point forecasts. Give them one: with_noise")
        start = self._columns.index("pit_0")
        return sums[start : start + lead_sums.PIT_BINS]


def compare(
    one: LeadTimeScores, other: LeadTimeScores, measure: str = "crps", *, lead: Lead = "all", seed: int = 0
) -> Row:
    """Return the ``ratio`` of a measure, one over other, with its limits ``ratio_low`` and ``ratio_high``.

    A ratio below 1 means that ``one`` is better. The bootstrap is paired: both methods are resampled with the same
    tasks, so that what makes a task hard for both cancels. Both must have scored the same pixels of the same tasks.

    Args:
        one: Scores of the first method.
        other: Scores of the second method.
        measure: The name of the measure, such as "crps" or "rmse".
        lead: A lead time in minutes, or "all".
        seed: Seed of the bootstrap's resamples.
    """
    if measure not in RATIOS:
        raise ValueError(f"measure must be one of {', '.join(RATIOS)} to have a meaningful ratio, got {measure!r}")
    if one.lead_minutes != other.lead_minutes or one.tasks != other.tasks:
        differing = sorted(set(one.tasks) ^ set(other.tasks))
        raise ValueError(
            f"scores to compare must be of the same tasks and lead times, got {one!r} and {other!r}; "
            f"tasks that only one has: {', '.join(differing[:5]) or 'none'}"
        )
    number = one._number(lead)
    sums, against = one._stacked()[:, number], other._stacked()[:, number]  # (T, K) each
    if not torch.equal(sums[:, 0], against[:, 0]):
        raise ValueError("scores to compare must be of the same pixels. Give both the same daylight")
    draws = _draws_of_tasks(len(sums), seed)
    ratios = one._measure(draws @ sums, measure) / other._measure(draws @ against, measure)
    ratio = one._measure(sums.sum(0), measure) / other._measure(against.sum(0), measure)
    low, high = _percentiles(ratios).tolist() if len(sums) > 1 else (torch.nan, torch.nan)
    return dict(finite_or_none({"ratio": float(ratio), "ratio_low": low, "ratio_high": high}))


def _draws_of_tasks(tasks: int, seed: int) -> Tensor:
    """Return how often each resample (row) drew each task, with replacement: (RESAMPLES, tasks)."""
    generator = Noise(seed).fork("bootstrap over tasks").generator()
    drawn = torch.randint(tasks, (RESAMPLES, tasks), generator=generator)
    ones = torch.ones(RESAMPLES, tasks, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add_(1, drawn, ones)


def _percentiles(resampled: Tensor) -> Tensor:
    """Return the LIMITS of each column over the resamples in which it is finite, (2, ...)."""
    finite = resampled.where(resampled.isfinite(), torch.nan)
    return finite.nanquantile(torch.tensor(LIMITS, dtype=finite.dtype), 0)


def _references(names: Sequence[str]) -> list[str]:
    return [name.removeprefix(lead_sums.REFERENCE) for name in names if name.startswith(lead_sums.REFERENCE)]


def _described(names: Sequence[str]) -> str:
    kind = "forecasts with spread" if "nll" in names else "point forecasts"
    return f"{kind} against {', '.join(_references(names)) or 'no reference'}"
