"""Draw how much adaptation helps: measures against the number of shots and of adaptation steps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from metaprior.evaluation import Evaluation
from metaprior.report.canvas import GREY, Pen, by_name, new_figure, pens_of, save, tidy
from metaprior.report.measures import Measure
from metaprior.report.measures import measure as measure_named
from metaprior.text_table import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

Against = Literal["shots", "steps"]


def learning_curve(
    path: Path,
    evaluations: Evaluation | Mapping[str, Evaluation],
    *,
    measure: str | Sequence[str] | None = None,
    title: str,
) -> None:
    """Draw measures against shots (left) and, where there are several, against steps (right); write a PNG.

    Bands are one standard error over tasks to either side. Hollow markers are forecasts before adaptation (0 shots or
    0 steps). Panels against shots are drawn after the most steps, panels against steps with the most shots.

    Args:
        path: The file to write.
        evaluations: One evaluation, or several by the names of their methods.
        measure: Names of measures, one row of panels each. By default the error (``error`` or ``rmse``) and ``nll``.
        title: The title of the figure.

    Raises:
        ValueError: An evaluation does not have a measure.
    """
    named = by_name(evaluations)
    pens, measures = pens_of(named), [measure_named(name) for name in _measure_names(named, measure)]
    several_steps = any(len({row["steps"] for row in _rows(one, "steps")}) > 1 for one in named.values())
    columns: tuple[Against, ...] = ("shots", "steps") if several_steps else ("shots",)
    figure = new_figure(8 if several_steps else 5.5, 0.6 + 3.1 * len(measures))
    panels = figure.subplots(len(measures), len(columns), squeeze=False, sharey="row")
    for of, row_of_panels in zip(measures, panels, strict=True):
        for against, axes in zip(columns, row_of_panels, strict=True):
            _draw_panel(axes, named, pens, of, against)
        row_of_panels[0].set_ylabel(of.axis_label)
    before = any(row["steps"] == 0 for one in named.values() for row in one.rows)
    _draw_legend(figure, panels[0][0], before=before)
    figure.suptitle(title)
    save(figure, path)


def _measure_names(named: Mapping[str, Evaluation], measure: str | Sequence[str] | None) -> list[str]:
    """Return the requested or usual measures, all of which every method has."""
    available = [set().union(*one.rows) for one in named.values()]
    usual = ["error" if "error" in available[0] else "rmse", "nll"]
    wanted = usual if measure is None else [measure] if isinstance(measure, str) else list(measure)
    if not wanted:
        raise ValueError("measure must name at least one measure, got none. Leave it out for the usual ones.")
    for name, keys in zip(named, available, strict=True):
        if missing := [one for one in wanted if one not in keys]:
            of = f" of {name!r}" if name else ""
            raise ValueError(f"the evaluation{of} has no measure {missing[0]!r}. It has {', '.join(sorted(keys))}.")
    return wanted


def _rows(one: Evaluation, against: Against) -> list[Row]:
    """Return the rows that differ in ``against`` only, from the prior (0 shots, 0 steps) on.

    Against shots these are the rows after the most steps, against steps the rows with the most shots.
    """
    if against == "shots":
        most = max(row["steps"] for row in one.rows)
        return [row for row in one.rows if row["shots"] == 0 or row["steps"] == most]
    scored = [row for row in one.rows if row["tasks"]]
    most = max(scored, key=lambda row: float(row["support"]))["shots"]
    rows = [row for row in one.rows if row["shots"] == most]
    prior = [] if any(row["steps"] == 0 for row in rows) else [row for row in one.rows if row["shots"] == 0]
    return [*prior, *rows]


def _draw_panel(
    axes: "Axes", named: Mapping[str, Evaluation], pens: Mapping[str, Pen], of: Measure, against: Against
) -> None:
    if isinstance(of.better, float):
        axes.axhline(of.shown(of.better), color=GREY, linewidth=1, linestyle=":")
    for name, one in named.items():
        _draw_curve(axes, one, of, against, pens[name], name)
    if _spans_decades([row[of.name] for one in named.values() for row in one.rows if row["tasks"]]):
        axes.set_yscale("log")
    axes.set_xlabel(_x_label(named, against))
    axes.locator_params(axis="x", integer=True, nbins=8)
    tidy(axes)


def _spans_decades(values: list[float]) -> bool:
    """Return whether a linear axis would hide all but the largest value, as when some adaptations diverge."""
    return min(values) > 0 and max(values) > 1000 * min(values)


def _draw_curve(axes: "Axes", one: Evaluation, of: Measure, against: Against, pen: Pen, name: str) -> None:
    def place(row: Row) -> float:
        return float(row["support"] / one.examples_per_shot if against == "shots" else row["steps"])

    rows = sorted((row for row in _rows(one, against) if row["tasks"]), key=place)  # if all failed there is no mean
    x, mean = [place(row) for row in rows], [of.shown(row[of.name]) for row in rows]
    error = [of.shown(row.get(f"{of.name}_se", math.nan)) for row in rows]
    low, high = ([m + sign * e for m, e in zip(mean, error, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=pen.color, alpha=0.18, linewidth=0)
    axes.plot(x, mean, linewidth=2, label=name, **pen._asdict())
    before = [i for i, row in enumerate(rows) if row["steps"] == 0]
    _draw_hollow(axes, [x[i] for i in before], [mean[i] for i in before], pen.color, pen.marker)


def _draw_hollow(axes: "Axes", x: list[float], y: list[float], color: str, marker: str) -> "PathCollection":
    return axes.scatter(x, y, marker=marker, s=45, facecolor="white", edgecolor=color, linewidth=1.5, zorder=3)


def _x_label(named: Mapping[str, Evaluation], against: Against) -> str:
    """Return the label with what is held fixed, where that is the same for all methods."""
    if against == "shots":
        steps = {max(row["steps"] for row in one.rows) for one in named.values()}
        return f"shots (after {steps.pop()} steps)" if len(steps) == 1 else "shots (after each method's most steps)"
    shots = {f"{_rows(one, 'steps')[-1]['support'] / one.examples_per_shot:.3g}" for one in named.values()}
    return f"adaptation steps (with {shots.pop() if len(shots) == 1 else 'the most'} shots)"


def _draw_legend(figure: "Figure", axes: "Axes", *, before: bool) -> None:
    """Name the methods, and say what a hollow marker is if there are any."""
    handles, labels = axes.get_legend_handles_labels()
    keys = dict(zip(labels, handles, strict=True))
    if before:
        keys["before adaptation"] = _draw_hollow(axes, [], [], GREY, "o")
    if keys:
        columns = min(4, len(keys))
        figure.legend([*keys.values()], [*keys], loc="outside lower center", ncols=columns, frameon=False)
