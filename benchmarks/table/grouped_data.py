"""Tables of groups with few rows each: two simulated ones, and births per woman in the countries of the world."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.table.predictive import FloatArray

Groups = npt.NDArray[np.int64]

KNOWN, NEW = 60, 20
"""Groups of a simulated table: those of the training rows, and those that are met afterwards."""
SUPPORT_ROWS, TEST_ROWS = 5, 20
LEAST_ROWS, MOST_ROWS = 5, 20
NEW_COUNTRIES, MOST_YEARS = 40, 10


class GroupedRows(NamedTuple):
    """Features (N, F), targets (N,) and the group of each row (N,)."""

    x: FloatArray
    y: FloatArray
    groups: Groups

    def of(self, chosen: npt.NDArray[np.bool_] | Groups) -> "GroupedRows":
        """Return some of the rows."""
        return GroupedRows(self.x[chosen], self.y[chosen], self.groups[chosen])


class GroupedTable(NamedTuple):
    """Training rows of known groups, other rows of them, and support and test rows of new groups."""

    train: GroupedRows
    known: GroupedRows
    support: GroupedRows
    new: GroupedRows


def linear(draw: int) -> GroupedTable:
    """Return lines in three features, whose intercepts and slopes are normal over groups: the mixed model is right."""
    rng = np.random.default_rng((1, draw))
    coefficients = rng.normal((2.0, 1.0, -0.5, 0.0), (1.0, 0.5, 0.5, 0.2), (KNOWN + NEW, 4))

    def rows(groups: Groups) -> GroupedRows:
        x = rng.normal(size=(len(groups), 3))
        mean = coefficients[groups, 0] + (coefficients[groups, 1:] * x).sum(1)
        return GroupedRows(x, mean + rng.normal(0, 0.5, len(groups)), groups)

    return _simulated(rng, rows)


def waves(draw: int) -> GroupedTable:
    """Return sine waves of a group's own height and phase, plus its own slope in a second feature."""
    rng = np.random.default_rng((2, draw))
    height, phase = rng.uniform(0.5, 2.0, KNOWN + NEW), rng.uniform(0, np.pi, KNOWN + NEW)
    slope = rng.normal(0.5, 0.3, KNOWN + NEW)

    def rows(groups: Groups) -> GroupedRows:
        x = rng.uniform((-3, -1), (3, 1), (len(groups), 2))
        mean = height[groups] * np.sin(1.5 * x[:, 0] + phase[groups]) + slope[groups] * x[:, 1]
        return GroupedRows(x, mean + rng.normal(0, 0.2, len(groups)), groups)

    return _simulated(rng, rows)


def _simulated(rng: np.random.Generator, rows: Callable[[Groups], GroupedRows]) -> GroupedTable:
    """Return a table of which ``rows`` draws the rows of given groups."""
    counts = rng.integers(LEAST_ROWS, MOST_ROWS + 1, KNOWN)
    new = np.arange(KNOWN, KNOWN + NEW)
    return GroupedTable(
        train=rows(np.repeat(np.arange(KNOWN), counts)),
        known=rows(np.repeat(np.arange(KNOWN), TEST_ROWS)),
        support=rows(np.repeat(new, SUPPORT_ROWS)),
        new=rows(np.repeat(new, TEST_ROWS)),
    )


def fertility(draw: int) -> GroupedTable:
    """Return births per woman by country and year (1960 on), the World Bank's figures that statsmodels ships.

    A known country has 5 to 10 years to learn from, a new one 5; all of its other years are to be forecast. Countries
    with fewer than 20 years are left out.
    """
    from statsmodels.datasets import fertility as source  # type: ignore[import-untyped]

    table = source.load_pandas().data
    years = [column for column in table.columns if column.isdigit()]
    values = table[years].to_numpy(dtype=np.float64)
    values = values[np.isfinite(values).sum(1) >= 2 * MOST_YEARS]
    rng = np.random.default_rng((3, draw))
    order = rng.permutation(len(values))
    parts: dict[str, list[tuple[float, float, int]]] = {"train": [], "known": [], "support": [], "new": []}
    for group, country in enumerate(values[order]):
        is_new = group >= len(values) - NEW_COUNTRIES
        present = rng.permutation(np.flatnonzero(np.isfinite(country)))
        count = SUPPORT_ROWS if is_new else int(rng.integers(LEAST_ROWS, MOST_YEARS + 1))
        for number, year in enumerate(present):
            name = ("support" if number < count else "new") if is_new else ("train" if number < count else "known")
            parts[name].append((float(years[year]), float(country[year]), group))
    return GroupedTable(*map(_rows_of, parts.values()))


def _rows_of(entries: list[tuple[float, float, int]]) -> GroupedRows:
    x, y, groups = map(np.asarray, zip(*entries, strict=True))
    return GroupedRows(x[:, None], y, groups.astype(np.int64))


GROUPED = {"linear": linear, "waves": waves, "fertility": fertility}
