"""A picture of plants' records: date by time of day, the power in shades and doubtful intervals in colours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from metaprior.report.canvas import new_figure, plain_text, tidy
from metaprior.solar.sites.checks import DEFECTS, count_doubts
from metaprior.solar.sites.checks.record import Record
from metaprior.solar.sites.plant import HOUR, Plant
from metaprior.text_table import four_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AT_MOST = 12
"""Plants of one picture."""
FEW = 400
"""Doubtful intervals of a kind that are drawn as marks, since single cells of long records are too small to see."""
GAP = "#d9e3ea"


def record_figure(plants: Sequence[Plant]) -> "Figure":
    """Return a figure with a panel for each plant: its power by date and time of day, with doubtful intervals.

    Colours name the reason of a doubt; the legend has their numbers. Light blue is where nothing was recorded. Times of
    day are those of the plant's times (UTC where the zone is known), and a panel begins twelve hours before the middle
    of the power.

    Raises:
        ValueError: There are no plants or more than twelve.
    """
    if not 1 <= len(plants) <= AT_MOST:
        raise ValueError(f"plants must number 1 to {AT_MOST}, got {len(plants)}. Try several figures.")
    with plain_text():
        figure = new_figure(10, 0.4 + 2.6 * len(plants))
        panels = figure.subplots(len(plants), 1, squeeze=False)[:, 0]
        for axes, plant in zip(panels, plants, strict=True):
            _draw(axes, plant)
    return figure


def _draw(axes: "Axes", plant: Plant) -> None:
    from matplotlib import dates
    from matplotlib.patches import Patch

    record = Record(plant)
    power = record.as_days(plant.power, np.nan)
    doubt = record.as_days(plant.doubt.astype(np.float64), 0.0)
    days = dates.date2num(record.begins)  # type: ignore[no-untyped-call]
    first = float((record.begins[0] - record.begins[0].astype("datetime64[D]")) / np.timedelta64(HOUR, "s"))
    extent = (days[0], days[-1] + 1, first, first + 24)
    axes.set_facecolor(GAP)
    axes.imshow(
        np.clip(power, 0, record.limit).T,
        origin="lower",
        aspect="auto",
        extent=extent,
        cmap="inferno",
        vmin=0,
        vmax=record.top or 1.0,
        interpolation="nearest",
    )
    axes.imshow(_colours(doubt).swapaxes(0, 1), origin="lower", aspect="auto", extent=extent, interpolation="nearest")
    for code, defect in enumerate(DEFECTS, start=1):
        day, slot = np.nonzero(doubt == code)
        if 0 < len(day) <= FEW:
            hours = first + (slot + 0.5) * plant.step / HOUR
            axes.plot(days[day] + 0.5, hours, "s", color=defect.color, markersize=2.5, markeredgewidth=0)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    ticks = np.arange(np.ceil(first / 4) * 4, first + 24.1, 4)
    axes.set_yticks(ticks, [f"{int(tick) % 24:02d}:00" for tick in ticks])
    locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    clock = "UTC" if plant.zone_known else "of the stamps"
    axes.set_ylabel(f"time of day, {clock}", fontsize=8)
    axes.tick_params(labelsize=8)
    size = (
        "" if plant.capacity is None else f", capacity {four_digits(plant.capacity)} {plant.unit}" + _estimated(plant)
    )
    axes.set_title(f"{plant.name}: {np.isfinite(plant.usable).mean():.1%} usable{size}", fontsize=9, loc="left")
    counts = count_doubts(plant)
    legend = [
        Patch(color=defect.color, label=f"{defect.name}: {counts[defect.name]:,}")
        for defect in DEFECTS
        if defect.name in counts
    ]
    missing = int(np.isnan(plant.power).sum())
    legend += [Patch(color=GAP, label=f"missing: {missing:,}")] if missing else []
    if legend:
        axes.legend(handles=legend, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    tidy(axes)


def _estimated(plant: Plant) -> str:
    return " (estimated)" if plant.capacity_estimated else ""


def _colours(
    doubt: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """Return the colours of doubtful cells, transparent elsewhere, (D, N, 4)."""
    from matplotlib.colors import to_rgba

    palette = np.array([(0.0, 0.0, 0.0, 0.0), *(to_rgba(defect.color) for defect in DEFECTS)])
    return palette[doubt.astype(np.intp)]
