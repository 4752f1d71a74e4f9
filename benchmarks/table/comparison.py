"""Every method on every table: scores, ranks and CPU seconds."""

import statistics
import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.common.benchmark import Context
from benchmarks.common.budget import one_thread
from benchmarks.common.data import UCI_SPLITS, uci_rows
from benchmarks.common.result import BenchmarkResult, Row, mean_row
from benchmarks.table import grouped
from benchmarks.table.methods import ENSEMBLE, OURS, PEERS, has_estimator, methods
from benchmarks.table.predictive import INTERVAL, Scores, scores_of
from benchmarks.table.settings import Settings

RANKED = ("nll", "crps")


class Cell(NamedTuple):
    """One method on one split of a table: scores of the test rows, and CPU seconds."""

    method: str
    scores: Scores
    fit_seconds: float
    total_seconds: float
    predict_seconds: float


def fit_split(context: Context[Settings], name: str, number: int) -> list[Cell]:
    """Return the cells of all methods, one after the other in this process, so that their CPU seconds compare."""
    rows, cells = uci_rows(context.data, name, number), []
    with one_thread(), threadpool_limits(1):
        for title, make in methods().items():
            method = make(number, context.settings.seconds)
            method.fit(rows.train_x, rows.train_y)
            started = time.process_time()
            predictive = method.predictive(rows.test_x)
            predictive.quantiles(INTERVAL)
            seconds = time.process_time() - started
            scores = scores_of(predictive, rows.test_y)
            cells.append(Cell(title, scores, method.fit_seconds, method.total_seconds, seconds))
    return cells


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure the tables that are asked for."""
    rows: list[Row] = []
    headline: dict[str, float] = {}
    notes: list[str] = []
    if tables := context.settings.uci_tables:
        found = _uci_rows(context, tables)
        summary = summary_rows(found)
        rows += [*found, *summary]
        headline |= uci_headline(found, summary)
        notes += _uci_notes(context.settings)
    if tables := context.settings.grouped_tables:
        grouped_result = grouped.measure(context, tables)
        rows += grouped_result.rows
        headline |= grouped_result.headline
        notes += grouped_result.notes
    notes += [
        f"metaprior.sklearn.{name} is not there: its rows are left out, and its headlines are missing"
        for name in ("BayesRegressor", "MetaRegressor")
        if not has_estimator(name)
    ]
    return BenchmarkResult(headline, rows, notes)


def _uci_rows(context: Context[Settings], tables: Sequence[str]) -> list[Row]:
    splits = context.settings.splits
    found = iter(context.map(fit_split, [(name, number) for name in tables for number in splits]))
    rows = []
    for name in tables:
        cells = list(islice(found, len(splits)))
        rows += ranked([_row(name, same) for same in zip(*cells, strict=True)])
    return rows


def _row(name: str, cells: Sequence[Cell]) -> Row:
    """Return the means of one method over the splits of a table."""
    scores = {
        column: [getattr(cell.scores, column) for cell in cells] for column in ("nll", "crps", "rmse", "coverage_90")
    }
    return {
        "part": name,
        "method": cells[0].method,
        "splits": len(cells),
        **mean_row("nll", scores["nll"]),
        **mean_row("crps", scores["crps"]),
        **mean_row("rmse", scores["rmse"]),
        "coverage_90": statistics.fmean(scores["coverage_90"]),
        "fit_seconds": statistics.fmean(cell.fit_seconds for cell in cells),
        "total_seconds": statistics.fmean(cell.total_seconds for cell in cells),
        "predict_seconds": statistics.fmean(cell.predict_seconds for cell in cells),
    }


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one table with each method's rank by NLL and by CRPS; equal scores share their mean rank."""
    columns = {f"{score}_rank": ranks([row[score] for row in rows]) for score in RANKED}
    return [{**row, **{name: found[number] for name, found in columns.items()}} for number, row in enumerate(rows)]


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, 1 for the smallest; k equal values share the mean of their k ranks."""
    return [
        1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def summary_rows(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each method: means over tables of ranks and coverage, worst coverage, geometric mean seconds."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        found.append(
            {
                "part": "all tables",
                "method": method,
                "tables": len(own),
                **{f"{score}_rank": statistics.fmean(row[f"{score}_rank"] for row in own) for score in RANKED},
                "coverage_90": statistics.fmean(row["coverage_90"] for row in own),
                "coverage_worst": min(row["coverage_90"] for row in own),
                "fit_seconds": statistics.geometric_mean(row["fit_seconds"] for row in own),
                "total_seconds": statistics.geometric_mean(row["total_seconds"] for row in own),
            }
        )
    return found


def uci_headline(rows: Sequence[Row], summary: Sequence[Row]) -> dict[str, float]:
    """Return the figures of the estimator with its defaults; NaN where the package does not have it."""
    ours = next((row for row in summary if row["method"] == OURS), {})
    seconds = {(row["part"], row["method"]): row for row in rows}
    tables = dict.fromkeys(row["part"] for row in rows) if ours else {}
    pairs = [(seconds[table, OURS]["fit_seconds"], seconds[table, ENSEMBLE]) for table in tables]
    ratios = [mine / other["fit_seconds"] for mine, other in pairs] or [float("nan")]
    of_total = [mine / other["total_seconds"] for mine, other in pairs] or [float("nan")]
    return {
        **{name: ours.get(name, float("nan")) for name in ("coverage_90", "coverage_worst", "nll_rank", "crps_rank")},
        "cpu_ratio_ensemble": statistics.geometric_mean(ratios),
        "cpu_ratio_ensemble_worst": max(ratios),
        "cpu_ratio_ensemble_chosen": statistics.geometric_mean(of_total),
    }


def _uci_notes(settings: Settings) -> list[str]:
    return [
        f"small tables: splits {', '.join(map(str, settings.splits))} of Gal's {UCI_SPLITS}, {settings.seconds:g} CPU "
        "seconds for each method and split; rows are means over splits, se: standard error",
        "fit_seconds: CPU seconds of the final training; total_seconds: with the choice of settings on 20 % of the "
        "training rows (a candidate that is not expected to fit is not tried); predict_seconds: mean and 90 % interval",
        "ranks: of the mean scores on a table, among all methods; equal scores share their mean rank",
        "boosted quantiles have no density: their NLL is that of Gaussian kernels at 100 quantiles, of a width chosen "
        "on the held-out rows",
        f"cpu_ratio_ensemble: fit_seconds of {OURS} over those of the {ENSEMBLE}, geometric mean over tables; "
        "_worst: the largest; _chosen: over its total_seconds",
        f"{len(PEERS)} methods beside the estimator",
    ]
