"""What tasks gain from each other: the error against data a task, by method and by number of tasks."""

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from metaprior.report.canvas import GREY, Pen, new_figure, pens_of, save, tidy
from metaprior.report.measures import measure as measure_named
from metaprior.text_table import Row


class Stroke(NamedTuple):
    """How lines of one number of tasks are drawn."""

    width: float
    dashes: Literal[":", "-.", "--", "-"]


STROKES = (Stroke(1.2, ":"), Stroke(1.4, "-."), Stroke(1.7, "--"), Stroke(2.2, "-"))
"""By rising number of tasks; the most tasks are always the last of them."""

SIDESTEP = 1.06
"""Factor between the places of methods on the axis of data, so that error bars do not hide each other."""


def sharing(
    path: Path,
    rows: Sequence[Row],
    *,
    measure: str = "mse",
    by_themselves: Collection[str] = (),
    floor: float | None = None,
    title: str,
) -> None:
    """Draw ``measure`` against ``observations`` on logarithmic axes, a panel for every value of ``on``; write a PNG.

    A row has ``method``, ``tasks`` (how many were learned from), ``observations`` (data a task), ``on``, ``scored``
    (how many the mean is over), the measure and its standard error (``mse_se``), which becomes an error bar. Methods
    differ by colour and mark, numbers of tasks by dashes and width. ``by_themselves`` are methods that learn nothing
    from other tasks: one line each, over the most tasks. ``floor`` is a value that nothing can be below.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    panels = list(dict.fromkeys(row["on"] for row in rows))
    counts = sorted({row["tasks"] for row in rows})
    if len(counts) > len(STROKES):
        raise ValueError(f"rows must have at most {len(STROKES)} numbers of tasks, got {counts}")
    pens = pens_of(methods)
    figure = new_figure(0.8 + 3.9 * len(panels), 4.4)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, on in zip(all_axes, panels, strict=True):
        shown = [row for row in rows if row["on"] == on and row["scored"]]
        for place, (method, pen) in enumerate(pens.items()):
            for count in counts[-1:] if method in by_themselves else counts:
                own = [row for row in shown if (row["method"], row["tasks"]) == (method, count)]
                _line(axes, own, measure, pen, _stroke(count, counts), SIDESTEP ** (place - (len(methods) - 1) / 2))
        if floor is not None:
            axes.axhline(floor, color=GREY, linewidth=0.8)
            axes.annotate("noise", (0.01, floor), xycoords=("axes fraction", "data"), color=GREY, va="bottom")
        _arrange(axes, on, rows)
    all_axes[0].set_ylabel(measure_named(measure).axis_label)
    _legend(figure, methods, counts)
    figure.suptitle(title)
    save(figure, path)


def _stroke(count: int, counts: Sequence[int]) -> Stroke:
    return STROKES[counts.index(count) - len(counts)]


def _line(axes: Axes, rows: Sequence[Row], measure: str, pen: Pen, stroke: Stroke, aside: float) -> None:
    if not rows:
        return
    rows = sorted(rows, key=lambda row: float(row["observations"]))
    axes.errorbar(
        [aside * row["observations"] for row in rows],
        [row[measure] for row in rows],
        yerr=[row[f"{measure}_se"] for row in rows],
        color=pen.color,
        marker=pen.marker,
        linestyle=stroke.dashes,
        linewidth=stroke.width,
        elinewidth=1,
        capsize=2,
    )


def _arrange(axes: Axes, on: str, rows: Sequence[Row]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="clip")
    axes.xaxis.set_major_locator(FixedLocator(sorted({float(row["observations"]) for row in rows})))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("data a task")
    axes.set_title(on, fontsize="medium")
    tidy(axes)


def _legend(figure: Figure, methods: Sequence[str], counts: Sequence[int]) -> None:
    """Methods in their colours; under them numbers of tasks, in grey. (A legend is filled column by column.)"""
    pairs = zip_longest(_of_methods(methods), _of_counts(counts))
    handles = [handle or Line2D([], [], linestyle="", label=" ") for pair in pairs for handle in pair]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) // 2, frameon=False)


def _of_methods(methods: Sequence[str]) -> Iterator[Line2D]:
    for method, pen in pens_of(methods).items():
        yield Line2D([], [], color=pen.color, marker=pen.marker, linestyle="", label=method)


def _of_counts(counts: Sequence[int]) -> Iterator[Line2D]:
    for count in counts:
        stroke = _stroke(count, counts)
        yield Line2D([], [], color=GREY, linewidth=stroke.width, linestyle=stroke.dashes, label=f"{count} tasks")
