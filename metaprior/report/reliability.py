"""Does a forecast keep its promises: stated confidence or probability against what was observed."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from metaprior.report.band import BLUE, INK, RED
from metaprior.report.canvas import by_name, save, tidy, with_pens
from metaprior.scores import ConfidenceBin, IntervalReliability, Reliability

GAPS = ((1, RED, "///", "gap: too confident"), (-1, BLUE, "\\\\\\", "gap: not confident enough"))
"""Sign of confidence minus accuracy, and how such gaps are drawn."""


def reliability_diagram(path: Path, counts: Reliability | Mapping[str, Reliability], *, title: str) -> None:
    """Draw accuracy against confidence, a panel for each method, and below how many labels each bin has; write a PNG.

    Solid bars are accuracies. The hatched part between a bar and the mean confidence of its bin is the gap that the
    expected calibration error averages: red where the forecast claims too much, blue where it claims too little.
    """
    named = by_name(counts)
    _refuse_empty(named)
    figure = Figure(figsize=(max(4.2, 3.4 * len(named)), 4.5), dpi=150, layout="constrained")
    panels = figure.subplots(2, len(named), squeeze=False, sharex=True, sharey="row", height_ratios=[4, 1])
    for column, (name, one) in enumerate(named.items()):
        bins = _drawn_bins(one)
        _accuracy_panel(panels[0][column], bins)
        _share_panel(panels[1][column], bins, one.count)
        panels[0][column].set_title(f"{name + ': ' if name else ''}ECE {one.ece:.3f}", fontsize="medium")
    panels[0][0].set_ylabel("accuracy")
    panels[1][0].set_ylabel("share")
    columns = 3 if len(named) > 1 else 1  # a single panel is narrower than the three names
    figure.legend(handles=_keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    figure.suptitle(title)
    save(figure, path)


def interval_diagram(
    path: Path, counts: IntervalReliability | Mapping[str, IntervalReliability], *, title: str
) -> None:
    """Draw the share of targets found inside central intervals against the share they should hold; write a PNG.

    On the diagonal a forecast is calibrated; below it, intervals are too narrow; above it, too wide.
    """
    named = by_name(counts)
    _refuse_empty(named)
    figure = Figure(figsize=(5, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1.2, label="calibrated")
    for name, one, pen in with_pens(named):
        axes.plot(
            [row["level"] for row in one.rows],
            [row["observed"] for row in one.rows],
            color=pen.color,
            marker=pen.marker,
            linestyle=pen.linestyle,
            linewidth=2,
            label=name or "forecast",
        )
    axes.text(0.97, 0.06, "intervals too narrow", ha="right", color=INK, fontsize="small", alpha=0.7)
    axes.text(0.03, 0.72, "intervals too wide", ha="left", color=INK, fontsize="small", alpha=0.7)
    axes.set(title=title, xlabel="level of the interval", ylabel="share of targets inside", xlim=(0, 1), ylim=(0, 1))
    axes.set_aspect("equal")
    tidy(axes)
    axes.legend(frameon=False, loc="upper left")
    save(figure, path)


def _refuse_empty(named: Mapping[str, Reliability] | Mapping[str, IntervalReliability]) -> None:
    for name, one in named.items():
        if not one.count:
            raise ValueError(f"nothing was counted{f' for {name!r}' if name else ''}; add forecasts first")


def _drawn_bins(counts: Reliability) -> list[ConfidenceBin]:
    """The bins that hold something; confidences of exactly 1, which have no width, are shown with the bin below."""
    *below, last = rows = counts.rows
    if last["low"] < 1:
        return [row for row in rows if row["count"]]
    other, count = below[-1], below[-1]["count"] + last["count"]
    part = last["count"] / count
    joined = last.copy()
    joined["low"], joined["count"] = other["low"], count
    if other["count"]:
        joined["confidence"] = part * last["confidence"] + (1 - part) * other["confidence"]
        joined["accuracy"] = part * last["accuracy"] + (1 - part) * other["accuracy"]
    return [*(row for row in below[:-1] if row["count"]), joined]


def _keys() -> list[Patch]:
    """The legend, also of a kind of gap that no bin has."""
    gaps = [Patch(facecolor="none", edgecolor=color, hatch=hatch, label=label) for _, color, hatch, label in GAPS]
    return [*gaps, Patch(color=BLUE, alpha=0.35, label="accuracy")]


def _accuracy_panel(axes: Axes, bins: list[ConfidenceBin]) -> None:
    for kind, color, hatch, _ in GAPS:
        gaps = [row for row in bins if kind * (row["confidence"] - row["accuracy"]) > 0]
        axes.bar(
            [row["low"] for row in gaps],
            [row["confidence"] - row["accuracy"] for row in gaps],
            [row["high"] - row["low"] for row in gaps],
            bottom=[row["accuracy"] for row in gaps],
            align="edge",
            facecolor="none",
            edgecolor=color,
            hatch=hatch,
            linewidth=1,
            zorder=3,
        )
    axes.bar(
        [row["low"] for row in bins],
        [row["accuracy"] for row in bins],
        [row["high"] - row["low"] for row in bins],
        align="edge",
        color=BLUE,
        alpha=0.35,
        edgecolor="white",
    )
    axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1.2)
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    tidy(axes)


def _share_panel(axes: Axes, bins: list[ConfidenceBin], total: int) -> None:
    axes.bar(
        [row["low"] for row in bins],
        [row["count"] / total for row in bins],
        [row["high"] - row["low"] for row in bins],
        align="edge",
        color=INK,
        alpha=0.35,
        edgecolor="white",
    )
    axes.set(xlabel="confidence", ylim=(0, None))
    tidy(axes)
