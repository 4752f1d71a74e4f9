"""Figures of solar forecasts: maps by lead time as a PNG, curves by lead time, level and shots as SVG for a page."""

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from metaprior.checkpoint import write_file
from metaprior.report.band import INK, RED
from metaprior.report.canvas import GREY, PENS, Pen, tidy
from metaprior.solar.maps.report.page.colours import ERROR, SPREAD, UNKNOWN, VALUES
from metaprior.solar.maps.report.page.content import Array, Maps
from metaprior.solar.maps.report.page.embedding import error_limit, spread_scale, value_limits
from metaprior.solar.maps.report.page.measures import Measure, is_known
from metaprior.solar.maps.report.page.tables import score
from metaprior.text_table import Row

MORE_PENS = (
    Pen(RED, "X", "-."),
    Pen(GREY, "<", "-"),
    Pen("#8c7a00", ">", ":"),
    Pen("#7a4b2a", "*", "--"),
    Pen("#0b7285", "p", "-."),
    Pen("#6c5ce7", "h", "-"),
)


def forecast_figure(path: Path, maps: Maps) -> None:
    """Draw target, mean, uncertainty and error (rows) by lead time (columns); write a PNG.

    Every row has a colour bar with units: target and mean the same scale, the uncertainty its own from zero, the error
    its own around zero. What is unknown is grey.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, forecast_png(maps))


def forecast_png(maps: Maps) -> bytes:
    """The same picture, as the bytes of its file."""
    file = io.BytesIO()
    with _plain_text():
        _maps_figure(maps.north_up()).savefig(file, format="png")
    return file.getvalue()


class _Band(NamedTuple):
    """One row of maps."""

    label: str
    layer: Array
    colours: Colormap
    low: float
    high: float


def _bands(maps: Maps) -> list[_Band]:
    (low, high), spread, error = value_limits(maps), spread_scale(maps), error_limit(maps)
    return [
        _Band("target", maps.target, VALUES, low, high),
        _Band("mean", maps.mean, VALUES, low, high),
        _Band("uncertainty\n(std)", maps.std, SPREAD, 0.0, spread.high),
        _Band("error\n(mean − target)", maps.error, ERROR, -error, error),
    ]


def _maps_figure(maps: Maps) -> Figure:
    bands, (leads, height, width) = _bands(maps), maps.target.shape
    cell = 1.75
    size = (1.5 + cell * leads, 0.9 + len(bands) * (cell * min(2.0, max(0.5, height / width)) + 0.15))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(len(bands), leads, squeeze=False)
    for band, row in zip(bands, panels, strict=True):
        _draw_band(figure, band, list(row), maps)
    for axes, lead, valid in zip(panels[0], maps.lead_minutes, maps.valid_texts, strict=True):
        axes.set_title(f"t+{lead} min\n{valid.split(maxsplit=1)[1]}", fontsize="medium")
    figure.suptitle(f"{maps.name}, issued {maps.issued_text}", fontsize="large")
    return figure


def _draw_band(figure: Figure, band: _Band, panels: list[Axes], maps: Maps) -> None:
    for axes, layer in zip(panels, band.layer, strict=True):
        image = axes.imshow(layer, cmap=band.colours, vmin=band.low, vmax=band.high, interpolation="nearest")
        axes.set_facecolor(UNKNOWN)
        axes.set(xticks=[], yticks=[])
    panels[0].set_ylabel(band.label)
    figure.colorbar(image, ax=panels, label=maps.units, aspect=12, pad=0.015)


@contextmanager
def _plain_text() -> Iterator[None]:
    """Names and units are what they are: a dollar sign does not begin a formula, and SVG text stays text."""
    with matplotlib.rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
        yield


def pens_of(methods: Sequence[str]) -> dict[str, Pen]:
    """A pen for each method, the same in all figures of a page; the first is the highlighted one's."""
    pens = (*PENS, *MORE_PENS)
    if len(methods) > len(pens):
        raise ValueError(f"a page compares at most {len(pens)} methods, got {len(methods)}; write several pages")
    return dict(zip(methods, pens, strict=False))


class Point(NamedTuple):
    """One mark of a method's line; ``low`` and ``high`` are its 95 % interval, NaN where that is unknown."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


Curves = Mapping[str, Sequence[Point]]
"""By method."""


def curves_of(rows: Sequence[Row], of: Measure, against: str) -> Curves:
    """What each method has of this measure, in the order of ``against``; methods without any are left out."""
    curves: dict[str, list[Point]] = {}
    for row in sorted((row for row in rows if row[against] != "all"), key=lambda row: float(row[against])):
        value, interval = score(row, of)
        if is_known(value):
            shown = map(of.shown, (value, *(interval or ())))
            curves.setdefault(row["method"], []).append(Point(float(row[against]), *shown))
    return curves


def curves_svg(curves: Curves, pens: Mapping[str, Pen], *, ours: str | None, x_label: str, y_label: str) -> str:
    """Lines of all methods, with the band of the highlighted one (bands of all would hide each other)."""
    figure, axes = _small_figure()
    if y_label.startswith("Skill"):
        axes.axhline(0, color=GREY, linewidth=1)
    for method, points in curves.items():
        _line(axes, points, pens[method], highlighted=method == ours)
        if method == ours:
            x, _, low, high = zip(*points, strict=True)
            axes.fill_between(x, low, high, color=pens[method].color, alpha=0.18, linewidth=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    _few_ticks(axes, sorted({point.x for points in curves.values() for point in points}))
    return _svg(figure, salt=x_label + y_label)


def reliability_svg(curves: Curves, pens: Mapping[str, Pen], *, ours: str | None) -> str:
    """Share of targets inside central intervals against the share they should hold, both in percent."""
    figure, axes = _small_figure()
    axes.plot([0, 100], [0, 100], color=INK, linestyle=(0, (4, 3)), linewidth=1)
    for method, points in curves.items():
        _line(axes, points, pens[method], highlighted=method == ours)
    axes.text(97, 6, "intervals too narrow", ha="right", color=INK, fontsize=9)
    axes.text(3, 90, "intervals too wide", ha="left", color=INK, fontsize=9)
    axes.set(xlabel="level of the interval (%)", ylabel="targets inside (%)", xlim=(0, 100), ylim=(0, 100))
    return _svg(figure, salt="reliability")


def deviation_svg(curves: Curves, pens: Mapping[str, Pen], *, ours: str | None) -> str:
    """The same, as the distance from the diagonal: where lines lie close together."""
    figure, axes = _small_figure()
    axes.axhline(0, color=INK, linestyle=(0, (4, 3)), linewidth=1)
    for method, points in curves.items():
        _line(axes, [Point(x, y - x) for x, y, _, _ in points], pens[method], highlighted=method == ours)
    axes.set(xlabel="level of the interval (%)", ylabel="inside minus level (% points)", xlim=(0, 100))
    return _svg(figure, salt="deviation")


def key_svg(pen: Pen, *, highlighted: bool, salt: str) -> str:
    """A short piece of a method's line, for the list of names beside the figures; ``salt`` says which list."""
    figure = Figure(figsize=(0.45, 0.18))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    _line(axes, [Point(x, 0) for x in (-0.95, 0, 0.95)], pen, highlighted=highlighted, markevery=[1])
    return _svg(figure, salt=f"key {salt} {pen}")


def _small_figure() -> tuple[Figure, Axes]:
    """About as wide as a telephone, so that its letters stay legible there."""
    figure = Figure(figsize=(4.6, 3.1), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    return figure, axes


def _line(
    axes: Axes, points: Sequence[Point], pen: Pen, *, highlighted: bool, markevery: list[int] | None = None
) -> None:
    axes.plot(
        [point.x for point in points],
        [point.y for point in points],
        color=pen.color,
        marker=pen.marker,
        linestyle=pen.linestyle,
        linewidth=2.6 if highlighted else 1.4,
        markersize=6 if highlighted else 5,
        zorder=3 if highlighted else 2,
        markevery=markevery,
    )


def _few_ticks(axes: Axes, places: list[float]) -> None:
    """Where the marks are, as long as their numbers do not touch."""
    if len(places) > 8:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    else:
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _svg(figure: Figure, *, salt: str) -> str:
    """Only the drawing: no prologue, no metadata, no style of its own, and no names that two drawings would share."""
    file = io.StringIO()
    with _plain_text(), matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", transparent=True)
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    return re.sub(r'<g id="[^"]*"', "<g", text).strip()
