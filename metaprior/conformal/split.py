"""Calibration on held-out observations: what is calibrated once and then makes intervals or sets of forecasts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast, overload

import numpy.typing as npt
import torch
from torch import Tensor

from metaprior.checks import ArrayLike, warn_caller
from metaprior.conformal.scores import (
    INTERVAL_SCORES,
    SET_SCORES,
    as_forecast,
    bounds,
    check_score,
    class_axis,
    class_scores,
    interval_scores,
    label_scores,
)
from metaprior.conformal.threshold import check_level, fewest, score_of_share, threshold
from metaprior.forecasts import Forecast
from metaprior.forecasts.numpy_forecast import NumpyForecast, as_numpy
from metaprior.missing import any_of_row
from metaprior.noise import Noise

Group = str | int | float | bool
AnyForecast = Forecast | NumpyForecast
Array = npt.NDArray[Any]
CALIBRATION, PREDICTION = "conformal calibration", "conformal prediction"
"""Purposes of random numbers."""


@dataclass(frozen=True, repr=False, eq=False)
class Conformal(ABC):
    """What intervals and sets have in common: the largest score that is inside.

    Args:
        level: probability with which a new observation is covered.
        score: name of the score.
        threshold: the largest score that is inside, for each target of an observation; float64, infinite where there
            are too few observations for the level. With groups it is that of a group that is new.
        groups: the thresholds by group.
        observations: number of observations (with a target) that were calibrated on.
        missing: number of missing targets, which are in no threshold.
        tasks: number of tasks that were calibrated on (``over_tasks``); None: the observations are exchangeable.
        share: None, or the share of a task's observations that is covered together with probability ``level``.
    """

    KNOWN: ClassVar[tuple[str, ...]]

    level: float
    score: str
    threshold: Tensor
    groups: Mapping[Group, Tensor] = field(default_factory=dict)
    observations: int = 0
    missing: int = 0
    tasks: int | None = None
    share: float | None = None

    @classmethod
    @abstractmethod
    def scores(cls, forecast: Forecast, targets: object, score: str, level: float, noise: Noise) -> Tensor:
        """Return the scores of targets, (N, ...); NaN for missing ones."""

    @classmethod
    def calibrated(
        cls,
        scores: Tensor,
        level: float,
        score: str,
        *,
        groups: Iterable[Group] | None = None,
        tasks: Tensor | None = None,
        share: float | None = None,
    ) -> Self:
        """Return the calibration by scores (N, ...); ``tasks`` (N,) says of which task each is."""
        present = ~scores.isnan()
        if not bool(present.any()):
            raise ValueError(f"there must be targets to calibrate on, got {present.numel()} that are all missing")
        observed, by_group, members = any_of_row(present), dict[Group, Tensor](), tasks
        if groups is not None:
            names, members = numbered(groups, len(scores))
            by_group = {name: threshold(scores[members == i], level) for i, name in enumerate(names)}
        if tasks is None or share is None:
            of_all = threshold(scores, level, members)
        else:
            of_all = threshold(torch.cat([score_of_share(scores[tasks == i], share) for i in tasks.unique()]), level)
        found = cls(
            level,
            score,
            of_all,
            by_group,
            observations=int(observed.sum()),
            missing=int((~present).sum()),
            tasks=None if tasks is None else len(tasks[observed].unique()),
            share=share,
        )
        found._warn_if_infinite()
        return found

    def coverage(
        self,
        forecast: AnyForecast,
        targets: ArrayLike,
        groups: Iterable[Group] | None = None,
        *,
        new_groups: bool = False,
        seed: int = 0,
    ) -> float:
        """Return the share of targets that are covered; missing ones do not count.

        Arguments are those of ``interval`` or of ``sets``, and the targets.
        """
        tensors = as_forecast(forecast)
        scores = self.scores(tensors, targets, self.score, self.level, Noise(seed).fork(PREDICTION))
        inside = scores <= self._limits(scores.shape, groups, scores.device, new_groups=new_groups)
        return float(inside[~scores.isnan()].double().mean())

    def _limits(
        self, shape: torch.Size, groups: Iterable[Group] | None, device: torch.device, *, new_groups: bool
    ) -> Tensor:
        """Return the threshold of each observation, (N or 1, ...), for targets of this shape."""
        if shape[1:] != self.threshold.shape:
            raise ValueError(
                f"an observation's targets must have the shape {tuple(self.threshold.shape)} that was calibrated, got "
                f"{tuple(shape[1:])} in a forecast of {shape[0]} observations"
            )
        if (groups is None) != (not self.groups):
            raise ValueError(
                f"groups must be given for predictions exactly where they were for calibration, which had "
                f"{len(self.groups) or 'no'} groups"
            )
        if groups is None:
            return self.threshold[None].to(device)
        names, members = numbered(groups, shape[0])
        unknown = [name for name in names if name not in self.groups]
        if unknown and not new_groups:
            raise ValueError(
                f"groups must be among the calibrated ones ({some_of(self.groups)}), got {some_of(unknown)}. Try "
                "new_groups=True, for which the groups, as a whole, must be exchangeable"
            )
        return torch.stack([self.groups.get(name, self.threshold) for name in names])[members].to(device)

    def _warn_if_infinite(self) -> None:
        asked = torch.stack([*(self.groups.values() if self.groups else [self.threshold])])
        if bool(asked.isinf().any()):
            unit = "observations" if self.tasks is None else "tasks"
            of_each = " of each group" if self.groups else ""
            warn_caller(
                f"{int(asked.isinf().sum())} of {asked.numel()} thresholds are infinite, so that their intervals or "
                f"sets hold everything: level {self.level} needs at least {fewest(self.level)} {unit}{of_each} with a "
                f"target, got {self.observations if self.tasks is None else self.tasks} in all. Try more of them, or a "
                "lower level."
            )

    def __repr__(self) -> str:
        """Return the level, the score, the thresholds and what they are calibrated on."""
        thresholds = _range(self.threshold)
        if self.groups:
            shown = ", ".join(f"{name!r}: {_range(value)}" for name, value in [*self.groups.items()][:5])
            more = f", ... ({len(self.groups)} groups)" if len(self.groups) > 5 else ""
            thresholds = f"{shown}{more}; a new group: {thresholds}"
        data = f"{self.observations} observations"
        if self.tasks is not None:
            data = f"{self.tasks} tasks with {data}"
        facts = [f"level {self.level}", f"score {self.score!r}"]
        facts += [] if self.share is None else [f"share {self.share} of a task"]
        facts += [f"threshold {thresholds}", f"from {data}"]
        facts += [f"{self.missing} missing targets left out"] if self.missing else []
        return f"{type(self).__name__}({', '.join(facts)})"

    def as_json(self) -> dict[str, Any]:
        """Return numbers, texts and lists for a file; an infinite threshold is None."""
        plain = {name: getattr(self, name) for name in ("level", "score", "observations", "missing", "tasks", "share")}
        groups = [[name, _listed(value)] for name, value in self.groups.items()]
        shape = list(self.threshold.shape)
        return {**plain, "shape": shape, "threshold": _listed(self.threshold), "groups": groups}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return what ``as_json`` described."""
        fields = dict(content)
        shape = fields.pop("shape")
        check_level("level", fields["level"])
        check_score(fields["score"], cls.KNOWN)
        fields["threshold"] = _tensor(fields["threshold"], shape)
        fields["groups"] = {name: _tensor(value, shape) for name, value in fields["groups"]}
        return cls(**fields)


class ConformalIntervals(Conformal):
    """Intervals of real-valued targets with guaranteed coverage, as ``intervals`` and ``over_tasks`` calibrate them."""

    KNOWN = INTERVAL_SCORES

    @classmethod
    def scores(cls, forecast: Forecast, targets: object, score: str, level: float, noise: Noise) -> Tensor:
        """Return the scores of targets, (N, ...); NaN for missing ones."""
        return interval_scores(forecast, targets, score, level)

    @overload
    def interval(
        self, forecast: Forecast, groups: Iterable[Group] | None = ..., *, new_groups: bool = ...
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def interval(
        self, forecast: NumpyForecast, groups: Iterable[Group] | None = ..., *, new_groups: bool = ...
    ) -> tuple[Array, Array]: ...

    def interval(
        self, forecast: AnyForecast, groups: Iterable[Group] | None = None, *, new_groups: bool = False
    ) -> tuple[Tensor | Array, Tensor | Array]:
        """Return the lower and the upper bound of each target: tensors, or arrays for a forecast in arrays.

        Args:
            forecast: what ``predict`` returned for new observations, with the same arguments as for the held-out ones.
            groups: the group of each observation, if there were groups in the calibration.
            new_groups: let groups that were not calibrated have the threshold that covers an observation of a *new*
                group with probability ``level``, if groups are exchangeable. Without it they raise ValueError.
        """
        tensors = as_forecast(forecast)
        limits = self._limits(tensors.mean.shape, groups, tensors.mean.device, new_groups=new_groups)
        low, high = bounds(tensors, self.score, self.level, limits)
        return (low, high) if forecast is tensors else (as_numpy(low), as_numpy(high))


class ConformalSets(Conformal):
    """Sets of classes with guaranteed coverage, as ``sets`` and ``over_tasks`` calibrate them."""

    KNOWN = SET_SCORES

    @classmethod
    def scores(cls, forecast: Forecast, targets: object, score: str, level: float, noise: Noise) -> Tensor:
        """Return the scores of labels, (N, ...); NaN for missing ones."""
        return label_scores(forecast, targets, score, noise)

    @overload
    def sets(
        self, forecast: Forecast, groups: Iterable[Group] | None = ..., *, new_groups: bool = ..., seed: int = ...
    ) -> Tensor: ...

    @overload
    def sets(
        self, forecast: NumpyForecast, groups: Iterable[Group] | None = ..., *, new_groups: bool = ..., seed: int = ...
    ) -> Array: ...

    def sets(
        self, forecast: AnyForecast, groups: Iterable[Group] | None = None, *, new_groups: bool = False, seed: int = 0
    ) -> Tensor | Array:
        """Return whether each class is in the set: Boolean, of the shape of ``forecast.probabilities``, (N, C, ...).

        A set can be empty with "aps" and "lac": no class is as good as held-out labels are.

        Args:
            forecast: what ``predict`` returned for new observations, with the same arguments as for the held-out ones.
            groups: the group of each observation, if there were groups in the calibration.
            new_groups: let groups that were not calibrated have the threshold that covers an observation of a *new*
                group with probability ``level``, if groups are exchangeable. Without it they raise ValueError.
            seed: seed of the random numbers of "aps", which have nothing to do with those of the calibration.
        """
        tensors = as_forecast(forecast)
        scores = class_scores(tensors, self.score, Noise(seed).fork(PREDICTION))
        limits = self._limits(scores.shape[:-1], groups, scores.device, new_groups=new_groups)
        found = (scores <= limits.unsqueeze(-1)).movedim(-1, class_axis(tensors))
        return found if forecast is tensors else cast(Array, as_numpy(found))


def intervals(
    forecast: AnyForecast,
    targets: ArrayLike,
    level: float = 0.9,
    *,
    score: str = "quantile",
    groups: Iterable[Group] | None = None,
) -> ConformalIntervals:
    r"""Return intervals calibrated on held-out observations: a new one is covered with probability ``level`` or more.

    Args:
        forecast: what ``predict(x_held_out)`` returned, of real-valued targets. Nothing may be learned from the
            held-out observations, neither weights nor a calibration.
        targets: the observed targets; NaN is missing. Several in an observation have a threshold each.
        level: probability with which a new observation's target is covered, for each target by itself.
        score: "quantile" moves both ends of the forecast's own interval by the same distance, for each target
            $[a - q, b + q]$; "std" is mean ± q std.
        groups: the group of each observation (text or numbers). Each group has a threshold of its own, and the
            guarantee holds within each (Mondrian conformal prediction).
    """
    check_score(score, INTERVAL_SCORES)
    check_level("level", level)
    found = ConformalIntervals.scores(as_forecast(forecast), targets, score, level, Noise()).cpu()
    return ConformalIntervals.calibrated(found, level, score, groups=groups)


def sets(
    forecast: AnyForecast,
    labels: ArrayLike,
    level: float = 0.9,
    *,
    score: str = "aps",
    groups: Iterable[Group] | None = None,
    seed: int = 0,
) -> ConformalSets:
    """Return sets of classes calibrated on held-out observations: a new label is in its set with probability ``level``.

    Args:
        forecast: what ``predict(x_held_out)`` returned, of classes or of 0/1 labels. Nothing may be learned from the
            held-out observations, neither weights nor a calibration.
        labels: the observed labels; -100 is missing (NaN among 0/1 labels).
        level: probability with which a new observation's label is in its set.
        score: "aps" adds classes in the order of their probability, so that sets are larger where the forecast is less
            sure; the last class is in with a probability, for exact coverage. "aps_deterministic" is without random
            numbers: its sets are never empty, and its coverage can be above ``level``. "lac" takes classes that are
            probable enough: the smallest sets on average, also empty ones where no class is.
        groups: the group of each observation (text or numbers), as in ``intervals``.
        seed: seed of the random numbers of "aps".
    """
    check_score(score, SET_SCORES)
    check_level("level", level)
    noise = Noise(seed).fork(CALIBRATION)
    found = ConformalSets.scores(as_forecast(forecast), labels, score, level, noise).cpu()
    return ConformalSets.calibrated(found, level, score, groups=groups)


def numbered(groups: Iterable[Group], count: int) -> tuple[list[Group], Tensor]:
    """Return the different groups, in the order of their first observation, and the number of each observation's."""
    given: Any = groups
    whole = hasattr(given, "tolist")
    values = given.tolist() if whole else [one.item() if hasattr(one, "item") else one for one in given]
    if isinstance(groups, str) or len(values) != count:
        raise ValueError(f"groups must be {count} labels, one for each observation, got {len(values)}")
    wrong = [one for one in values if not isinstance(one, str | int | float | bool) or one != one]
    if wrong:
        raise ValueError(f"groups must be text or numbers, got {wrong[0]!r}")
    places = {name: i for i, name in enumerate(dict.fromkeys(values))}
    return [*places], torch.tensor([places[one] for one in values])


def some_of(names: Iterable[Group]) -> str:
    """Return the first names, and how many there are if they are more than five."""
    names = [*names]
    return ", ".join(map(repr, names[:5])) + (f", ... ({len(names)})" if len(names) > 5 else "")


def _range(values: Tensor) -> str:
    low, high = float(values.min()), float(values.max())
    shown = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    return f"{shown} for {values.numel()} targets" if values.numel() > 1 else shown


def _listed(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.flatten().tolist()]


def _tensor(values: Iterable[float | None], shape: Iterable[int]) -> Tensor:
    filled = [math.inf if value is None else value for value in values]
    return torch.tensor(filled, dtype=torch.float64).reshape(tuple(shape))
