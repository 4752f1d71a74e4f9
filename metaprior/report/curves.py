"""Draw methods as lines: measures by lead time or shots, and the reliability of intervals, as SVG for a page."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metaprior.report.canvas import GREY, INK, Pen, new_figure, plain_text, svg, tidy
from metaprior.report.measures import Measure, is_known
from metaprior.text_table import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """One marker of a line; ``low`` and ``high`` are its 95 % interval, NaN where that is unknown."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


Curves = Mapping[str, Sequence[Point]]
"""Points by method."""


def curves_of(rows: Sequence[Row], of: Measure, against: str) -> Curves:
    """Return a measure of each method in the order of ``against``, without unknown values and without ``"all"``."""
    curves: dict[str, list[Point]] = {}
    single = [row for row in of.known(rows) if row[against] != "all"]
    for row in sorted(single, key=lambda row: float(row[against])):
        shown = map(of.shown, (row[of.name], *(of.interval(row) or ())))
        curves.setdefault(row["method"], []).append(Point(float(row[against]), *shown))
    return curves


def interval_curves(reliability: Mapping[str, Sequence[tuple[float, float]]]) -> Curves:
    """Return, in percent, the observed share of targets against the level of central intervals, by method."""
    known = {
        method: [Point(100 * level, 100 * share) for level, share in sorted(pairs) if is_known(share)]
        for method, pairs in reliability.items()
    }
    return {method: points for method, points in known.items() if points}


def draw_line(axes: "Axes", points: Sequence[Point], pen: Pen, *, highlighted: bool = False, **options: Any) -> None:
    """Draw one method; the highlighted one is thicker and lies on top."""
    style = {"linewidth": 2.6, "markersize": 6, "zorder": 3} if highlighted else {"linewidth": 1.4, "markersize": 5}
    axes.plot([point.x for point in points], [point.y for point in points], **{**pen._asdict(), **style, **options})


def draw_band(axes: "Axes", points: Sequence[Point], pen: Pen) -> None:
    """Draw the intervals of one method."""
    x, _, low, high = zip(*points, strict=True)
    axes.fill_between(x, low, high, color=pen.color, alpha=0.18, linewidth=0)


def draw_intervals(axes: "Axes", curves: Curves, pens: Mapping[str, Pen], *, ours: str | None) -> None:
    """Draw observed shares against levels; a calibrated forecast lies on the diagonal."""
    axes.plot([0, 100], [0, 100], color=INK, linestyle=(0, (4, 3)), linewidth=1)
    for method, points in curves.items():
        draw_line(axes, points, pens[method], highlighted=method == ours)
    axes.text(97, 6, "intervals too narrow", ha="right", color=INK, fontsize=9)
    axes.text(3, 90, "intervals too wide", ha="left", color=INK, fontsize=9)
    axes.set(xlabel="level of the interval (%)", ylabel="targets inside (%)", xlim=(0, 100), ylim=(0, 100))


def curves_svg(curves: Curves, pens: Mapping[str, Pen], *, ours: str | None, x_label: str, of: Measure) -> str:
    """Return the lines of all methods as SVG, with the band of ``ours`` only: several bands would hide each other."""
    with plain_text():
        figure, axes = _small_figure()
        if of.name.startswith("skill_"):
            axes.axhline(0, color=GREY, linewidth=1)
        if isinstance(of.better, float):
            axes.axhline(of.shown(of.better), color=INK, linestyle=(0, (4, 3)), linewidth=1)
        for method, points in curves.items():
            draw_line(axes, points, pens[method], highlighted=method == ours)
            if method == ours:
                draw_band(axes, points, pens[method])
        axes.set(xlabel=x_label, ylabel=of.title)
        places = sorted({point.x for points in curves.values() for point in points})
        if len(places) > 8:  # so many that their numbers would overlap
            axes.locator_params(axis="x", integer=True, nbins=8)
        else:
            axes.set_xticks(places, [f"{place:g}" for place in places])
        return svg(figure, salt=x_label + of.title)


def interval_svgs(curves: Curves, pens: Mapping[str, Pen], *, ours: str | None) -> tuple[str, str]:
    """Return observed shares against levels, and their differences, which separate similar lines, as SVG."""
    shares, axes = _small_figure()
    draw_intervals(axes, curves, pens, ours=ours)
    differences, axes = _small_figure()
    axes.axhline(0, color=INK, linestyle=(0, (4, 3)), linewidth=1)
    for method, points in curves.items():
        draw_line(axes, [Point(x, y - x) for x, y, _, _ in points], pens[method], highlighted=method == ours)
    axes.set(xlabel="level of the interval (%)", ylabel="inside minus level (% points)", xlim=(0, 100))
    return svg(shares, salt="reliability"), svg(differences, salt="deviation")


def key_svg(pen: Pen, *, highlighted: bool, salt: str) -> str:
    """Return a short piece of a method's line as SVG, for the key of a group of figures that ``salt`` names."""
    figure = new_figure(0.45, 0.18, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    draw_line(axes, [Point(x, 0) for x in (-0.95, 0, 0.95)], pen, highlighted=highlighted, markevery=[1])
    return svg(figure, salt=f"key {salt} {pen}")


def _small_figure() -> "tuple[Figure, Axes]":
    """Return a figure about as wide as a telephone, where its text has to stay legible."""
    figure = new_figure(4.6, 3.1)
    axes = figure.add_subplot()
    axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    return figure, axes
