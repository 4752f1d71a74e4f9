"""The result of a backtest: tidy scores, a sentence and a table for readers, and lines for figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.solar.sites.backtest.methods import ADAPTED
from metaprior.solar.sites.backtest.networks import POOLED
from metaprior.solar.sites.backtest.queries import SEASONS
from metaprior.solar.sites.backtest.scores import MEASURES

KEYS = ("plant", "place", "method", "days")
"""Columns that name a forecast: the plant, whether its place was "known" or "unknown", method, support days."""
PEER = "smart persistence"
"""Beside the best other method, answers name this one."""
ENOUGH_WEEKS = 8
"""Query weeks from which their spread is told, and below which the answer warns."""


@dataclass(frozen=True)
class Extent:
    """What the scores of a plant rest on: query weeks, scored forecasts, and first and last day (UTC)."""

    weeks: float
    forecasts: int
    start: np.datetime64
    end: np.datetime64


def fallback_notes(rows: pd.DataFrame) -> list[str]:
    """Return which methods forecast the same as a simpler one because they know too few days, by numbers of days.

    Args:
        rows: As in ``Backtest``.
    """
    whole = rows[rows["by"] == "all"].set_index(["plant", "place"])
    falls: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for days in sorted(whole["days"].unique().tolist()):
        of_days = whole[whole["days"] == days]
        scores = {name: of_days.loc[of_days["method"] == name, list(MEASURES)] for name in of_days["method"].unique()}
        simplest = {name: next(other for other in scores if scores[other].equals(scores[name])) for name in scores}
        for first in dict.fromkeys(simplest.values()):
            if others := tuple(name for name in scores if simplest[name] == first and name != first):
                falls.setdefault((others, first), []).append(days)
    return [
        f"with {_listed(list(map(str, days)))} day{'s' * (days != [1])} of data there is too little to learn from for "
        f"{_listed(others)}: the forecasts are those of {first}"
        for (others, first), days in falls.items()
    ]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


@dataclass(frozen=True, eq=False)
class Backtest:
    """Scores of methods on plants.

    Args:
        rows: A tidy frame: ``plant, place, method, days, by, group, hours, rmse, mae, bias, crps, coverage``. ``by`` is
            "all", "lead" (hours), "hour" (of the day, mean solar time), "season" or "week", and ``group`` its value;
            ``hours`` counts forecasts. Scores are in % of the capacity, coverage in % of hours.
        extents: What the scores of each plant rest on.
        leads: Number of lead times.
        notes: Plants and numbers of days that were left out, and why.
    """

    rows: pd.DataFrame
    extents: Mapping[str, Extent]
    leads: int
    notes: tuple[str, ...] = ()

    @property
    def days(self) -> list[int]:
        """The numbers of support days with scores, ascending."""
        return sorted(self.rows["days"].unique().tolist())

    @property
    def methods(self) -> list[str]:
        """The methods with scores, in their order."""
        return list(self.rows["method"].unique())

    def scores(self, by: str = "all", *, plant: str | None = None) -> pd.DataFrame:
        """Return mean scores over plants, or those of one plant: ``place, method, days, group, plants, rmse, ...``.

        Args:
            by: One of ``GROUPS``.
            plant: Name of a plant; all of them if not given. Where some lack a number of days, the mean is over others.
        """
        chosen = self.rows[self.rows["by"] == by]
        chosen = chosen if plant is None else chosen[chosen["plant"] == plant]
        if chosen.empty:
            raise KeyError(f"there are no scores by {by!r}" + (f" of {plant!r}" if plant else ""))
        grouped = chosen.groupby(["place", "method", "days", "group"], sort=False)
        means = grouped[list(MEASURES)].mean()
        means.insert(0, "plants", grouped["plant"].nunique())
        return means.reset_index()

    def table(self, measure: str = "rmse", *, plant: str | None = None) -> pd.DataFrame:
        """Return one of ``MEASURES`` as methods (rows) x numbers of support days (columns)."""
        scores = self.scores(plant=plant)
        index = "method" if scores["place"].nunique() == 1 else ["place", "method"]
        table = scores.pivot_table(measure, index, "days", sort=False)
        return table[sorted(table.columns)]

    def lines(
        self, by: str, measure: str = "rmse", *, days: int | None = None, plant: str | None = None
    ) -> dict[str, tuple[list[int | str], list[float]]]:
        """Return what a figure draws: for each method the values of a group, and one of ``MEASURES`` at them.

        Args:
            by: "days" for lines over the number of support days, or one of ``GROUPS``.
            measure: One of ``MEASURES``.
            days: Number of support days, for other groups than "days"; the typical number if not given.
            plant: Name of a plant; the mean over all if not given.
        """
        scores = self.scores("all" if by == "days" else by, plant=plant)
        column = "days" if by == "days" else "group"
        if by != "days":
            scores = scores[scores["days"] == (self.typical_days(plant) if days is None else days)]
        order = {season: number for number, season in enumerate(SEASONS)}
        scores = scores.sort_values(column, key=lambda values: values.map(lambda one: order.get(one, one)))
        return {
            method: (own[column].tolist(), own[measure].tolist())
            for method, own in ((name, scores[scores["method"] == name]) for name in self.methods)
            if len(own)
        }

    def typical_days(self, plant: str | None = None) -> int:
        """Return the number of support days that answers are about: 7, or the most that there are below it."""
        own = self.rows if plant is None else self.rows[self.rows["plant"] == plant]
        found: list[int] = own["days"].unique().tolist()
        return max((count for count in found if count <= 7), default=min(found))

    def answer(self, plant: str | None = None, *, method: str = ADAPTED) -> str:
        """Return how accurate forecasts will be, in a sentence or two.

        Args:
            plant: Name of a plant; the mean over all if not given.
            method: The method that the answer is about.
        """
        days = self.typical_days(plant)
        scores = self.scores(plant=plant)
        scores = scores[scores["days"] == days].set_index("method")
        own = scores.loc[[method]].iloc[0]
        who = f"of {plant}" if plant else "of the plant" if len(self.extents) == 1 else "of the plants on average"
        text = (
            f"With {days} day{'s' * (days != 1)} of data, forecasts of the next {self.leads} hours {who} were wrong by "
            f"{own['mae']:.1f} % of capacity on average by day (RMSE {own['rmse']:.1f} %)"
        )
        # the pooled network is no alternative: it knows nothing of the plant
        others = scores[~scores.index.isin([method, POOLED])]["rmse"]
        named = [name for name in (PEER, others.idxmin() if len(others) else None) if name in others.index]
        gains = {name: 100.0 * (1.0 - own["rmse"] / others[name]) for name in named}
        parts = [
            f"{abs(gain):.0f} % {'below' if gain >= 0 else 'above'} that of {name}" for name, gain in gains.items()
        ]
        text += f". The RMSE is {' and '.join(parts)}" * bool(parts)
        text += f". {own['coverage']:.0f} % of the hours lay in the 90 % band."
        return f"{text} {self._basis(plant, method, days)}"

    def _basis(self, plant: str | None, method: str, days: int) -> str:
        """Return what the answer rests on, and how much weeks differ."""
        extents = list(self.extents.values()) if plant is None else [self.extents[plant]]
        weeks = sum(one.weeks for one in extents)
        each = weeks / len(extents)
        many = f"{each:.0f} weeks" if each >= 2 else f"{7 * each:.0f} day{'s' * (round(7 * each) != 1)}"
        many += f" of each of {len(extents)} plants" * (len(extents) > 1)
        span = f"{str(min(one.start for one in extents))[:10]} to {str(max(one.end for one in extents))[:10]}"
        text = f"This rests on {many}, from {span}"
        if weeks < ENOUGH_WEEKS:
            return f"{text}: too few to tell what other weather will bring."
        own = self.rows[(self.rows["by"] == "week") & (self.rows["method"] == method) & (self.rows["days"] == days)]
        own = own if plant is None else own[own["plant"] == plant]
        low, high = np.quantile(own["rmse"], [0.1, 0.9])
        return f"{text}; in eight of ten weeks the RMSE was {low:.0f} to {high:.0f} %."
