"""A picture of the error against the data of a task, by method and by number of tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from benchmarks.common.result import Row
from benchmarks.hierarchy.gains import ALONE
from metaprior.report.canvas import GREY, Pen, new_figure, pens_of, save, tidy


class Stroke(NamedTuple):
    """The line style of one number of tasks."""

    width: float
    dashes: Literal[":", "-.", "--", "-"]


STROKES = (Stroke(1.2, ":"), Stroke(1.4, "-."), Stroke(1.7, "--"), Stroke(2.2, "-"))
"""By rising number of tasks; the most tasks always have the last one."""
SIDESTEP = 1.06
"""Factor between the positions of methods on the axis of data, so that error bars do not hide each other."""


def draw(path: Path, rows: Sequence[Row], noise: float) -> None:
    """Draw the mean squared error against the data of a task, with a panel for each kind of tasks; write a PNG.

    Methods differ by colour and mark, numbers of tasks by dashes and width. Tasks alone learn nothing from each other
    and have one line, that of the most tasks. ``noise`` is the variance of the noise, below which no error can be.
    """
    methods, panels = (list(dict.fromkeys(row[name] for row in rows)) for name in ("method", "on"))
    counts = sorted({row["tasks"] for row in rows})
    strokes = dict(zip(counts, STROKES[-len(counts) :], strict=True))
    pens, figure = pens_of(methods), new_figure(0.8 + 3.9 * len(panels), 4.4)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, on in zip(all_axes, panels, strict=True):
        for place, (method, pen) in enumerate(pens.items()):
            for count in counts[-1:] if method == ALONE else counts:
                own = [row for row in rows if (row["on"], row["method"], row["tasks"]) == (on, method, count)]
                _line(axes, own, pen, strokes[count], SIDESTEP ** (place - (len(methods) - 1) / 2))
        axes.axhline(noise, color=GREY, linewidth=0.8)
        axes.annotate("noise", (0.01, noise), xycoords=("axes fraction", "data"), color=GREY, va="bottom")
        _arrange(axes, on, sorted({float(row["observations"]) for row in rows}))
    all_axes[0].set_ylabel("mean squared error")
    marks = [
        Line2D([], [], color=pen.color, marker=pen.marker, linestyle="", label=method) for method, pen in pens.items()
    ]
    lines = [
        Line2D([], [], color=GREY, linewidth=stroke.width, linestyle=stroke.dashes, label=f"{count} tasks")
        for count, stroke in strokes.items()
    ]
    figure.legend(handles=[*marks, *lines], loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("What tasks learn from each other")
    save(figure, path)


def _line(axes: Axes, rows: Sequence[Row], pen: Pen, stroke: Stroke, aside: float) -> None:
    rows = sorted((row for row in rows if row["scored"]), key=lambda row: float(row["observations"]))
    axes.errorbar(
        [aside * row["observations"] for row in rows],
        [row["mse"] for row in rows],
        yerr=[row["mse_se"] for row in rows],
        color=pen.color,
        marker=pen.marker,
        linestyle=stroke.dashes,
        linewidth=stroke.width,
        elinewidth=1,
        capsize=2,
    )


def _arrange(axes: Axes, title: str, observations: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="clip")
    axes.xaxis.set_major_locator(FixedLocator(observations))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("data of a task")
    axes.set_title(title, fontsize="medium")
    tidy(axes)
