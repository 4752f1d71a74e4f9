"""Draw calibration: stated confidence against accuracy, and levels of intervals against observed shares."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from metaprior.report.canvas import BLUE, INK, RED, by_name, new_figure, pens_of, save, tidy
from metaprior.report.curves import draw_intervals, interval_curves
from metaprior.scores import ConfidenceBin, IntervalReliability, Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

Counts = TypeVar("Counts", Reliability, IntervalReliability)

GAPS = ((1, RED, "///", "gap: too confident"), (-1, BLUE, "\\\\\\", "gap: not confident enough"))
"""Sign of confidence minus accuracy, colour, hatching and label of a gap."""


def reliability_diagram(path: Path, counts: Reliability | Mapping[str, Reliability], *, title: str) -> None:
    """Draw accuracy against confidence, a panel for each method, and below it the share of each bin; write a PNG.

    Solid bars are accuracies. The hatched part between a bar and the mean confidence of its bin is the gap that the
    expected calibration error averages: red where the forecast is too confident, blue where it is not enough so.
    """
    named = _counted(counts)
    figure = new_figure(max(4.2, 3.4 * len(named)), 4.5)
    panels = figure.subplots(2, len(named), squeeze=False, sharex=True, sharey="row", height_ratios=[4, 1])
    for (name, one), (accuracy, share) in zip(named.items(), panels.T, strict=True):
        bins = _drawn_bins(one)
        _draw_accuracy(accuracy, bins)
        _bars(share, bins, [row["count"] / one.count for row in bins], color=INK, alpha=0.35, edgecolor="white")
        share.set(xlabel="confidence", ylim=(0, None))
        accuracy.set_title(f"{name + ': ' if name else ''}ECE {one.ece:.3f}", fontsize="medium")
        tidy(accuracy)
        tidy(share)
    panels[0][0].set_ylabel("accuracy")
    panels[1][0].set_ylabel("share")
    columns = 3 if len(named) > 1 else 1  # a single panel is narrower than the three labels
    figure.legend(handles=_legend_keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    figure.suptitle(title)
    save(figure, path)


def interval_diagram(
    path: Path, counts: IntervalReliability | Mapping[str, IntervalReliability], *, title: str
) -> None:
    """Draw the share of targets inside central intervals against the level of the intervals; write a PNG.

    On the diagonal a forecast is calibrated; below it, intervals are too narrow; above it, too wide.
    """
    named = _counted(counts)
    curves = interval_curves(
        {name: [(row["level"], row["observed"]) for row in one.rows] for name, one in named.items()}
    )
    figure = new_figure(5, 4.8)
    axes = figure.add_subplot()
    draw_intervals(axes, curves, pens_of(named), ours=None, linewidth=2)
    axes.set_title(title)
    axes.set_aspect("equal")
    tidy(axes)
    if any(named):
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save(figure, path)


def _counted(counts: Counts | Mapping[str, Counts]) -> dict[str, Counts]:
    """Return the counts by method, each of at least one forecast."""
    named = by_name(counts)
    for name, one in named.items():
        if not one.count:
            raise ValueError(f"nothing was counted{f' for {name!r}' if name else ''}. Call add(...) first.")
    return named


def _drawn_bins(counts: Reliability) -> list[ConfidenceBin]:
    """Return the bins that are not empty; the bin of confidence exactly 1, which has no width, joins the one below."""
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


def _legend_keys() -> "list[Patch]":
    """Return keys of both kinds of gaps and of accuracy, whether or not a bin has them."""
    from matplotlib.patches import Patch

    gaps = [Patch(facecolor="none", edgecolor=color, hatch=hatch, label=label) for _, color, hatch, label in GAPS]
    return [*gaps, Patch(color=BLUE, alpha=0.35, label="accuracy")]


def _draw_accuracy(axes: "Axes", bins: list[ConfidenceBin]) -> None:
    for sign, color, hatch, _ in GAPS:
        gaps = [row for row in bins if sign * (row["confidence"] - row["accuracy"]) > 0]
        heights, bottom = [row["confidence"] - row["accuracy"] for row in gaps], [row["accuracy"] for row in gaps]
        _bars(axes, gaps, heights, bottom=bottom, facecolor="none", edgecolor=color, hatch=hatch, linewidth=1, zorder=3)
    _bars(axes, bins, [row["accuracy"] for row in bins], color=BLUE, alpha=0.35, edgecolor="white")
    axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1.2)
    axes.set(xlim=(0, 1), ylim=(0, 1.01))


def _bars(axes: "Axes", bins: Sequence[ConfidenceBin], heights: Sequence[float], **style: Any) -> None:
    widths = [row["high"] - row["low"] for row in bins]
    axes.bar([row["low"] for row in bins], heights, widths, align="edge", **style)
