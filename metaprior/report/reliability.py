"""Draw calibration: confidence against accuracy, or levels of intervals against observed shares."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaprior.report.canvas import BLUE, INK, RED, new_figure, pens_of, save, tidy
from metaprior.report.curves import draw_intervals, interval_curves
from metaprior.scores import IntervalReliability, Reliability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAPS = ((1, RED, "///", "gap: too confident"), (-1, BLUE, "\\\\\\", "gap: not confident enough"))
"""Sign of confidence minus accuracy, colour, hatching and label of a gap."""


def reliability_diagram(
    path: Path, counts: Reliability | IntervalReliability | Mapping[str, IntervalReliability], *, title: str
) -> None:
    """Draw the calibration of class forecasts, or of intervals, also of several by name; write a PNG.

    Of class forecasts, solid bars are accuracies and bars below them the share of each bin. The hatched part between an
    accuracy and the mean confidence of its bin is the gap that the expected calibration error averages: red where the
    forecast is too confident, blue where it is not confident enough. Of intervals, the share of targets inside is drawn
    against the level: on the diagonal a forecast is calibrated, below it intervals are too narrow, above it too wide.

    Raises:
        ValueError: Nothing was counted.
    """
    if isinstance(counts, IntervalReliability):
        counts = {"": counts}
    if not (counts.count if isinstance(counts, Reliability) else any(own.count for own in counts.values())):
        raise ValueError("counts must hold at least one forecast, got none. Call add(...) first.")
    figure = _confidence_figure(counts) if isinstance(counts, Reliability) else _interval_figure(counts)
    figure.suptitle(title)
    save(figure, path)


def _interval_figure(counts: Mapping[str, IntervalReliability]) -> "Figure":
    figure = new_figure(5, 4.8)
    axes = figure.add_subplot()
    curves = interval_curves(
        {name: [(row["level"], row["observed"]) for row in own.rows] for name, own in counts.items()}
    )
    draw_intervals(axes, curves, pens_of(curves), ours=list(curves)[-1])
    axes.set_aspect("equal")
    tidy(axes)
    if len(curves) > 1:
        axes.legend(axes.get_lines()[1:], curves, loc="lower right", bbox_to_anchor=(1, 0.1), frameon=False)
    return figure


def _confidence_figure(counts: Reliability) -> "Figure":
    figure = new_figure(4.2, 4.5)
    accuracy, share = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    sums = counts.sums.numpy()
    sums = np.column_stack([sums[:, :-2], sums[:, -2:].sum(1)])  # confidence of exactly 1 is a bin without width
    (filled,) = np.nonzero(sums[2])
    sure, right, count = sums[:, filled]
    left, right, gap = filled / counts.bins, right / count, (sure - right) / count
    bars: dict[str, Any] = {"width": 1 / counts.bins, "align": "edge"}
    for sign, color, hatch, label in GAPS:
        style, own = {"facecolor": "none", "edgecolor": color, "hatch": hatch}, sign * gap > 0
        accuracy.bar(left[own], gap[own], bottom=right[own], zorder=3, **bars, **style)
        accuracy.fill_between([], [], label=label, **style)  # in the legend also if no bin has such a gap
    accuracy.bar(left, right, color=BLUE, edgecolor="white", alpha=0.35, label="accuracy", **bars)
    share.bar(left, count / counts.count, color=INK, edgecolor="white", alpha=0.35, **bars)
    accuracy.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1.2)
    accuracy.set(xlim=(0, 1), ylim=(0, 1.01), ylabel="accuracy")
    accuracy.set_title(f"ECE {counts.ece:.3f}", fontsize="medium")
    share.set(xlabel="confidence", ylabel="share", ylim=(0, None))
    tidy(accuracy)
    tidy(share)
    figure.legend(loc="outside lower center", frameon=False, fontsize="small")
    return figure
