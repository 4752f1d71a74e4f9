"""Every method on the tables of groups: rows of known groups, and of new ones with a few rows."""

import math
import statistics
import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.common.benchmark import Context
from benchmarks.common.budget import one_thread
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from benchmarks.table.grouped_data import GROUPED, SUPPORT_ROWS
from benchmarks.table.grouped_methods import MIXED, OURS, methods
from benchmarks.table.predictive import Scores, scores_of
from benchmarks.table.settings import Settings

KNOWN, NEW = "known groups", f"new groups, {SUPPORT_ROWS} rows"


class Cell(NamedTuple):
    """One method on one draw of a table, scored on known or new groups; CPU seconds of fitting and of adapting."""

    method: str
    rows: str
    scores: Scores
    fit_seconds: float
    predict_seconds: float


def fit_draw(context: Context[Settings], name: str, draw: int) -> list[Cell]:
    """Return the cells of all methods, two for each, one method after the other in this process."""
    table, cells = GROUPED[name](draw), []
    with one_thread(), threadpool_limits(1):
        for title, make in methods().items():
            method = make(draw, context.settings.seconds).fit(table.train)
            started = time.process_time()
            known = method.known(table.known.x, table.known.groups)
            between = time.process_time()
            new = method.new(table.support, table.new.x, table.new.groups)
            ended = time.process_time()
            for rows, predictive, targets, seconds in (
                (KNOWN, known, table.known.y, between - started),
                (NEW, new, table.new.y, ended - between),
            ):
                cells.append(Cell(title, rows, scores_of(predictive, targets), method.fit_seconds, seconds))
    return cells


def measure(context: Context[Settings], tables: Sequence[str]) -> BenchmarkResult:
    """Measure the tables that are asked for."""
    draws = context.settings.draws
    found = iter(context.map(fit_draw, [(name, draw) for name in tables for draw in range(draws)]))
    rows = []
    for name in tables:
        cells = list(islice(found, draws))
        rows += [_row(name, same) for same in zip(*cells, strict=True)]
    notes = [
        f"grouped tables: {draws} draws of groups and rows; new groups have {SUPPORT_ROWS} support rows. The mixed "
        "model has a random intercept and random slopes, and its variance is that of Gaussian conditioning; pooled "
        "methods are fitted again with the support rows",
        "crps_ratio_mixed: our CRPS over the mixed model's, geometric mean over tables; nll_gain_mixed: its NLL minus "
        "ours, mean over tables; coverage_90: of ours; _known and _new groups",
    ]
    return BenchmarkResult(headline(rows), rows, notes)


def _row(name: str, cells: Sequence[Cell]) -> Row:
    """Return the means of one method over the draws of a table."""
    scores = {column: [getattr(cell.scores, column) for cell in cells] for column in Scores._fields}
    return {
        "part": name,
        "rows": cells[0].rows,
        "method": cells[0].method,
        "draws": len(cells),
        **mean_row("nll", scores["nll"]),
        **mean_row("crps", scores["crps"]),
        **mean_row("rmse", scores["rmse"]),
        "coverage_90": statistics.fmean(scores["coverage_90"]),
        "fit_seconds": statistics.fmean(cell.fit_seconds for cell in cells),
        "predict_seconds": statistics.fmean(cell.predict_seconds for cell in cells),
    }


def headline(rows: Sequence[Row]) -> dict[str, float]:
    """Return our scores beside the mixed model's; NaN where the package does not have the estimator."""
    found = {(row["part"], row["rows"], row["method"]): row for row in rows}
    numbers = {}
    for ending, kind in (("known", KNOWN), ("new", NEW)):
        pairs = [
            (found[table, kind, OURS], found[table, kind, MIXED])
            for table in dict.fromkeys(row["part"] for row in rows)
            if (table, kind, OURS) in found
        ]
        ratios = [ours["crps"] / mixed["crps"] for ours, mixed in pairs] or [math.nan]
        gains = [mixed["nll"] - ours["nll"] for ours, mixed in pairs] or [math.nan]
        coverages = [ours["coverage_90"] for ours, _ in pairs] or [math.nan]
        numbers[f"crps_ratio_mixed_{ending}"] = statistics.geometric_mean(ratios)
        numbers[f"nll_gain_mixed_{ending}"] = statistics.fmean(gains)
        numbers[f"coverage_90_{ending}"] = statistics.fmean(coverages)
    return numbers
