"""Draw how much adaptation helps: measures against the number of shots and of adaptation steps."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metaprior.evaluation import Evaluation
from metaprior.report.canvas import GREY, INK, PENS, Pen, new_figure, save, tidy
from metaprior.report.curves import Point, draw_band, draw_line
from metaprior.report.measures import Measure, measure
from metaprior.text_table import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

Against = Literal["shots", "steps"]
CALIBRATION = ("coverage_90", "ece")
"""Measures of calibration, of real-valued targets and of labels."""


def learning_curve(path: Path, evaluation: Evaluation, *, title: str) -> None:
    """Draw measures against shots (left) and, where there are several, against steps (right); write a PNG.

    The measures are the error (the error rate of labels, or the RMSE), the NLL, and calibration: the share of targets
    inside the 90 % interval, beside 90 % as a dashed line, or the expected calibration error of labels. Bands are one
    standard error over tasks to either side. Hollow markers are forecasts before adaptation (0 shots or 0 steps).
    Panels against shots are drawn after the most steps, panels against steps with the most shots.
    """
    known = set().union(*evaluation.rows)
    measures = [measure("error" if "error" in known else "rmse"), measure("nll")]
    measures += [measure(name) for name in CALIBRATION if name in known]
    several_steps = len({row["steps"] for row in _rows(evaluation, "steps")}) > 1
    columns: tuple[Against, ...] = ("shots", "steps") if several_steps else ("shots",)
    figure = new_figure(8 if several_steps else 5.5, 0.6 + 3.1 * len(measures))
    panels = figure.subplots(len(measures), len(columns), squeeze=False, sharey="row")
    for of, row_of_panels in zip(measures, panels, strict=True):
        for against, axes in zip(columns, row_of_panels, strict=True):
            _draw_panel(axes, evaluation, of, against)
        row_of_panels[0].set_ylabel(of.description + (" (%)" if of.percent else ""))
    if any(row["steps"] == 0 for row in evaluation.rows):
        key = _draw_hollow(panels[0][0], [], Pen(GREY, "o", ""))
        figure.legend([key], ["before adaptation"], loc="outside lower center", frameon=False)
    figure.suptitle(title)
    save(figure, path)


def _rows(evaluation: Evaluation, against: Against) -> list[Row]:
    """Return the rows that differ in ``against`` only, from the prior (0 shots, 0 steps) on.

    Against shots these are the rows after the most steps, against steps the rows with the most shots.
    """
    rows = evaluation.rows
    if against == "shots":
        most = max(row["steps"] for row in rows)
        return [row for row in rows if row["shots"] == 0 or row["steps"] == most]
    most = max((row for row in rows if row["tasks"]), key=lambda row: float(row["support"]))["shots"]
    adapted = [row for row in rows if row["shots"] == most]
    prior = [] if any(row["steps"] == 0 for row in adapted) else [row for row in rows if row["shots"] == 0]
    return [*prior, *adapted]


def _draw_panel(axes: "Axes", evaluation: Evaluation, of: Measure, against: Against) -> None:
    def shots(row: Row) -> float:
        return float(row["support"] / evaluation.examples_per_shot)

    def point(row: Row) -> Point:
        mean, error = of.shown(row[of.name]), of.shown(row.get(f"{of.name}_se", math.nan))
        return Point(shots(row) if against == "shots" else row["steps"], mean, mean - error, mean + error)

    rows = [row for row in _rows(evaluation, against) if row["tasks"]]  # without a scored task there is no mean
    points = sorted(point(row) for row in rows)
    if isinstance(of.better, float):
        axes.axhline(of.shown(of.better), color=INK, linestyle=(0, (4, 3)), linewidth=1)
    draw_band(axes, points, PENS[0])
    draw_line(axes, points, PENS[0], linewidth=2)
    _draw_hollow(axes, [point(row) for row in rows if row["steps"] == 0], PENS[0])
    values = [row[of.name] for row in evaluation.rows if row["tasks"]]
    if min(values) > 0 and max(values) > 1000 * min(values):
        axes.set_yscale("log")  # a linear axis would hide all but the largest value, as when some adaptations diverge
    most_steps, most_shots = max(row["steps"] for row in evaluation.rows), max(map(shots, rows))
    fixed = f"shots (after {most_steps} steps)" if against == "shots" else f"adaptation steps ({most_shots:.3g} shots)"
    axes.set_xlabel(fixed)
    axes.locator_params(axis="x", integer=True, nbins=8)
    tidy(axes)


def _draw_hollow(axes: "Axes", points: Sequence[Point], pen: Pen) -> "PathCollection":
    style: dict[str, Any] = {"facecolor": "white", "s": 45, "linewidth": 1.5, "zorder": 3}
    x, y = [point.x for point in points], [point.y for point in points]
    return axes.scatter(x, y, marker=pen.marker, edgecolor=pen.color, **style)
