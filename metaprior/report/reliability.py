"""Draw calibration: confidence against accuracy, or levels of intervals against observed shares."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaprior.report.canvas import BLUE, INK, PENS, RED, new_figure, save, tidy
from metaprior.report.curves import draw_intervals, interval_curves
from metaprior.scores import IntervalReliability, Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bin = dict[str, float]
GAPS = ((1, RED, "///", "gap: too confident"), (-1, BLUE, "\\\\\\", "gap: not confident enough"))
"""Sign of confidence minus accuracy, colour, hatching and label of a gap."""


def reliability_diagram(path: Path, counts: Reliability | IntervalReliability, *, title: str) -> None:
    """Draw the calibration of class forecasts or of intervals; write a PNG.

    Of class forecasts, solid bars are accuracies and bars below them the share of each bin. The hatched part between an
    accuracy and the mean confidence of its bin is the gap that the expected calibration error averages: red where the
    forecast is too confident, blue where it is not confident enough. Of intervals, the share of targets inside is drawn
    against the level: on the diagonal a forecast is calibrated, below it intervals are too narrow, above it too wide.

    Raises:
        ValueError: Nothing was counted.
    """
    if not counts.count:
        raise ValueError("counts must hold at least one forecast, got none. Call add(...) first.")
    figure = _confidence_figure(counts) if isinstance(counts, Reliability) else _interval_figure(counts)
    figure.suptitle(title)
    save(figure, path)


def _interval_figure(counts: IntervalReliability) -> "Figure":
    figure = new_figure(5, 4.8)
    axes = figure.add_subplot()
    curves = interval_curves({"": [(row["level"], row["observed"]) for row in counts.rows]})
    draw_intervals(axes, curves, {"": PENS[0]}, ours="")
    axes.set_aspect("equal")
    tidy(axes)
    return figure


def _confidence_figure(counts: Reliability) -> "Figure":
    figure = new_figure(4.2, 4.5)
    accuracy, share = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    bins = _drawn_bins(counts)
    for sign, color, hatch, label in GAPS:
        gaps = [row for row in bins if sign * (row["confidence"] - row["accuracy"]) > 0]
        style = {"facecolor": "none", "edgecolor": color, "hatch": hatch}
        bottom = [row["accuracy"] for row in gaps]
        _draw_bars(
            accuracy, gaps, [row["confidence"] - row["accuracy"] for row in gaps], bottom=bottom, zorder=3, **style
        )
        accuracy.fill_between([], [], label=label, **style)  # in the legend also if no bin has such a gap
    _draw_bars(accuracy, bins, [row["accuracy"] for row in bins], color=BLUE, alpha=0.35, label="accuracy")
    _draw_bars(share, bins, [row["count"] / counts.count for row in bins], color=INK, alpha=0.35)
    accuracy.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1.2)
    accuracy.set(xlim=(0, 1), ylim=(0, 1.01), ylabel="accuracy")
    accuracy.set_title(f"ECE {counts.ece:.3f}", fontsize="medium")
    share.set(xlabel="confidence", ylabel="share", ylim=(0, None))
    tidy(accuracy)
    tidy(share)
    figure.legend(loc="outside lower center", frameon=False, fontsize="small")
    return figure


def _drawn_bins(counts: Reliability) -> list[Bin]:
    """Return the bins that are not empty; the bin of confidence exactly 1, which has no width, joins the one below."""
    *others, last = (row for row in counts.rows if row["count"])
    if last["low"] < 1:
        return [*others, last]
    joined = [others.pop(), last] if others and others[-1]["high"] == 1 else [last]
    total = sum(row["count"] for row in joined)
    means = {name: sum(row[name] * row["count"] for row in joined) / total for name in ("confidence", "accuracy")}
    return [*others, {"low": 1 - 1 / counts.bins, "high": 1.0, "count": total, **means}]


def _draw_bars(axes: "Axes", bins: Sequence[Bin], heights: Sequence[float], **style: Any) -> None:
    lefts, widths = [row["low"] for row in bins], [row["high"] - row["low"] for row in bins]
    axes.bar(lefts, heights, widths, align="edge", **{"edgecolor": "white", **style})
