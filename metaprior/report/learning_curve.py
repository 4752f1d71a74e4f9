"""How much adaptation helps: measures against the number of shots and of steps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from metaprior.evaluation import Evaluation
from metaprior.report.canvas import GREY, Pen, by_name, save, tidy, with_pens
from metaprior.text_table import Row

LABELS = {
    "error": "error rate",
    "nll": "negative log density per observation",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "crps": "CRPS",
    "ece": "expected calibration error",
    "coverage_50": "share in the 50% interval",
    "coverage_90": "share in the 90% interval",
    "std": "predicted standard deviation",
}
NOMINAL = {"coverage_50": 0.5, "coverage_90": 0.9}


def learning_curve(
    path: Path,
    evaluations: Evaluation | Mapping[str, Evaluation],
    *,
    measure: str | Sequence[str] | None = None,
    title: str,
) -> None:
    """Draw measures against shots (left) and, where there are several, against steps (right); write a PNG.

    ``evaluations`` is one evaluation, or several by the names of their methods. ``measure`` names one or several of
    their measures, a row of panels each; by default the error (``error`` or ``rmse``) and ``nll``. Bands are one
    standard error over tasks to either side. Hollow marks are forecasts before adaptation (0 shots, or 0 steps). The
    left panels are drawn after the most steps, the right ones with the most shots.
    """
    named = by_name(evaluations)
    measures = _measures(named, measure)
    against_steps = any(len({row["steps"] for row in _most_shots(one)}) > 1 for one in named.values())
    columns = 2 if against_steps else 1
    size = (8 if against_steps else 5.5, 0.6 + 3.1 * len(measures))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(len(measures), columns, squeeze=False, sharey="row")
    for name, row_of_panels in zip(measures, panels, strict=True):
        _panel(row_of_panels[0], named, name, "shots")
        if against_steps:
            _panel(row_of_panels[1], named, name, "steps")
        row_of_panels[0].set_ylabel(LABELS.get(name, name))
    before = any(row["steps"] == 0 for one in named.values() for row in one.rows)
    _legend(figure, panels[0][0], before=before)
    figure.suptitle(title)
    save(figure, path)


def _measures(named: Mapping[str, Evaluation], measure: str | Sequence[str] | None) -> list[str]:
    """Names of measures that every method has."""
    available = [set().union(*one.rows) for one in named.values()]
    usual = ["error" if "error" in available[0] else "rmse", "nll"]
    wanted = usual if measure is None else [measure] if isinstance(measure, str) else list(measure)
    if not wanted:
        raise ValueError("measure names nothing to draw; leave it out for the usual ones")
    for name, keys in zip(named, available, strict=True):
        if missing := [one for one in wanted if one not in keys]:
            of = f" of {name!r}" if name else ""
            raise ValueError(
                f"measure {missing[0]!r} is not in the evaluation{of}; there are {', '.join(sorted(keys))}"
            )
    return wanted


def _most_steps(one: Evaluation) -> list[Row]:
    """The prior and, for each number of shots, the row after the most steps."""
    most = max(row["steps"] for row in one.rows)
    return [row for row in one.rows if row["shots"] == 0 or row["steps"] == most]


def _most_shots(one: Evaluation) -> list[Row]:
    """The rows of the most shots and, where they do not begin at 0 steps, the prior."""
    known = [row for row in one.rows if row["tasks"]]
    most = max(known, key=lambda row: float(row["support"]))["shots"]
    rows = [row for row in one.rows if row["shots"] == most]
    started = any(row["steps"] == 0 for row in rows)
    return rows if started else [*(row for row in one.rows if row["shots"] == 0), *rows]


def _panel(axes: Axes, named: Mapping[str, Evaluation], measure: str, against: str) -> None:
    if measure in NOMINAL:
        axes.axhline(NOMINAL[measure], color=GREY, linewidth=1, linestyle=":")
    for name, one, pen in with_pens(named):
        rows = _most_steps(one) if against == "shots" else _most_shots(one)
        shown = [row for row in rows if row["tasks"]]  # a cell in which all failed has no mean
        x = [row["support"] / one.examples_per_shot if against == "shots" else row["steps"] for row in shown]
        _curve(axes, x, shown, measure, pen, name)
    if _spans_decades([row[measure] for one in named.values() for row in one.rows if row["tasks"]]):
        axes.set_yscale("log")
    axes.set_xlabel(_x_label(named, against))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    tidy(axes)


def _spans_decades(values: list[float]) -> bool:
    """Whether a linear axis would hide all but the largest, as when some adaptations diverge."""
    return min(values) > 0 and max(values) > 1000 * min(values)


def _curve(axes: Axes, x: list[float], rows: list[Row], measure: str, pen: Pen, name: str) -> None:
    order = sorted(range(len(x)), key=x.__getitem__)
    x = [x[i] for i in order]
    rows = [rows[i] for i in order]
    mean = [row[measure] for row in rows]
    error = [row.get(f"{measure}_se", math.nan) for row in rows]
    low, high = ([m + sign * e for m, e in zip(mean, error, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=pen.color, alpha=0.18, linewidth=0)
    axes.plot(x, mean, color=pen.color, linestyle=pen.linestyle, linewidth=2, marker=pen.marker, label=name)
    before = [i for i, row in enumerate(rows) if row["steps"] == 0]
    _hollow(axes, [x[i] for i in before], [mean[i] for i in before], pen.color, pen.marker)


def _hollow(axes: Axes, x: list[float], y: list[float], color: str, marker: str) -> PathCollection:
    """Marks of what is not adapted yet."""
    return axes.scatter(x, y, marker=marker, s=45, facecolor="white", edgecolor=color, linewidth=1.5, zorder=3)


def _x_label(named: Mapping[str, Evaluation], against: str) -> str:
    """With what is held fixed, if it is the same for all methods."""
    if against == "shots":
        steps = {max(row["steps"] for row in one.rows) for one in named.values()}
        return f"shots (after {_only(steps)} steps)" if len(steps) == 1 else "shots (after each method's most steps)"
    shots = {_shots_of(one) for one in named.values()}
    return (
        f"adaptation steps (with {_only(shots)} shots)" if len(shots) == 1 else "adaptation steps (with the most shots)"
    )


def _shots_of(one: Evaluation) -> str:
    row = _most_shots(one)[-1]
    return f"{row['support'] / one.examples_per_shot:.3g}"


def _only(values: set[str] | set[int]) -> str:
    (value,) = values
    return str(value)


def _legend(figure: Figure, axes: Axes, *, before: bool) -> None:
    """Names of methods, and what a hollow mark is."""
    handles, labels = axes.get_legend_handles_labels()
    named = [(handle, label) for handle, label in zip(handles, labels, strict=True) if not label.startswith("_")]
    every = [*named, *([(_hollow(axes, [], [], GREY, "o"), "before adaptation")] if before else [])]
    if not every:
        return
    figure.legend(
        [handle for handle, _ in every],
        [label for _, label in every],
        loc="outside lower center",
        ncols=min(4, len(every)),
        frameon=False,
    )
