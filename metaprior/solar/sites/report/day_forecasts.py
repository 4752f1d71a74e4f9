"""One day of a plant, forecast from different numbers of days of its data: yesterday, today, bands and truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metaprior.report.canvas import BLUE, GREY, INK, new_figure, plain_text, svg, tidy
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.limits import PowerForecast
from metaprior.solar.sites.plant import Plant
from metaprior.solar.sites.report.figures import BANDS
from metaprior.solar.sites.sun_path import plant_sun_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY = 24
LEVELS = tuple(sorted({level for low, high, _ in BANDS for level in (low, high)}))
LIT, MORNING = 0.02, 2
"""Share of capacity from which a plant counts as running, and hours from then to the time of issue."""


@dataclass(frozen=True, eq=False)
class DayForecasts:
    """Forecasts of the rest of a day, issued in its morning.

    Args:
        plant: The plant in hours and in shares of its capacity.
        midnight: Hour of the record with which the day begins, in mean solar time.
        issue: Hour of the record at whose begin the forecasts are issued.
        by_days: Forecasts of the hours from ``issue`` to the end of the day with the quantiles ``LEVELS``, by number
            of days of data.
    """

    plant: Plant
    midnight: int
    issue: int
    by_days: Mapping[int, PowerForecast]

    @property
    def truth(self) -> NDArray[np.float64]:
        """What the plant gave in the hours that are forecast."""
        return self.plant.usable[self.issue : self.midnight + DAY]

    def error(self, days: int) -> float:
        """Return the mean absolute error of the hours that are forecast, as a share of the capacity."""
        return float(np.nanmean(np.abs(self.by_days[days].mean - self.truth)))

    def width(self, days: int) -> float:
        """Return the mean width of the widest band, as a share of the capacity."""
        quantiles = self.by_days[days].quantiles
        return float((quantiles[-1] - quantiles[0]).mean())


def midnights(plant: Plant) -> NDArray[np.int64]:
    """Return the hours of an hourly record with which whole days begin, in mean solar time, after the first day."""
    clock = plant.start.astype("datetime64[h]").astype(np.int64) % DAY + float(plant_sun_path(plant).solar_offset)
    first = int(np.ceil(-clock)) % DAY
    return np.arange(first + DAY, len(plant) - DAY + 1, DAY)


def day_forecasts(forecaster: SiteForecaster, plant: Plant, midnight: int, days: Sequence[int]) -> DayForecasts:
    """Return forecasts of a day that are issued two hours after the plant began to run.

    Each forecast is that of a plant whose record begins so many days before that day: with 0 days it knows the morning.

    Args:
        forecaster: The prior.
        plant: The plant in hours and in shares of its capacity.
        midnight: One of ``midnights(plant)``.
        days: Numbers of days of data.
    """
    running = plant.power[midnight : midnight + DAY] > LIT
    issue = midnight + min(int(running.argmax()) + MORNING, DAY - 1)
    lead = np.arange(1, midnight + DAY - issue + 1)
    by_days = {}
    for count in days:
        known = plant.between(plant.times[max(0, midnight - DAY * count)], plant.times[issue])
        adapted = forecaster.adapt(known, days=count + 1 if count else 0)[plant.name]
        by_days[count] = adapted.forecast(np.full(len(lead), len(known)), lead, LEVELS)
    return DayForecasts(plant, midnight, issue, by_days)


def draw_day(axes: "Axes", found: DayForecasts, days: int, *, top: float) -> None:
    """Draw yesterday and today, in % of capacity: what was recorded, bands of the forecast, and what happened.

    Yesterday is grey where the forecast knows nothing of it. ``top`` is the upper end of the axis.
    """
    hours = np.arange(-DAY, DAY) + 0.5
    power, issued = 100 * found.plant.usable[found.midnight - DAY : found.midnight + DAY], found.issue - found.midnight
    later = hours >= issued
    known = ~later & (hours >= -DAY * days)
    axes.plot(hours[~later], power[~later], color=GREY, linewidth=1.2, linestyle=(0, (1, 1.5)))
    axes.plot(hours[known], power[known], color=INK, linewidth=1.6, label="recorded")
    forecast = found.by_days[days]
    for low, high, opacity in BANDS:
        edges = (100 * forecast.quantiles[LEVELS.index(level)] for level in (low, high))
        label = f"{100 * (high - low):.0f} % band"
        axes.fill_between(hours[later], *edges, color=BLUE, alpha=opacity, linewidth=0, label=label)
    axes.plot(hours[later], 100 * forecast.mean, color=BLUE, linewidth=2, label="forecast")
    axes.plot(hours[later], power[later], color=INK, linewidth=0, marker="o", markersize=2.6, label="what happened")
    axes.axvline(issued, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(-DAY, DAY), ylim=(0, 100 * top))
    axes.set_xticks([-DAY / 2, DAY / 2], ["yesterday", "today"])
    axes.tick_params(axis="x", length=0)
    tidy(axes)


def axis_top(found: Sequence[DayForecasts]) -> float:
    """Return the upper end of the axis for drawings side by side, as a share of the capacity."""
    highest = [float(forecast.quantiles.max()) for one in found for forecast in one.by_days.values()]
    highest += [float(np.nanmax(one.plant.usable[one.midnight - DAY : one.midnight + DAY])) for one in found]
    return 1.05 * max(highest)


def day_svg(found: DayForecasts, days: int, *, top: float) -> str:
    """Return the drawing of one number of days as SVG for a page."""
    with plain_text():
        figure = new_figure(2.1, 1.75)
        axes = figure.add_subplot()
        draw_day(axes, found, days, top=top)
        axes.tick_params(labelsize=8)
        return svg(figure, salt=f"day {found.plant.name} {found.issue} {days}")
