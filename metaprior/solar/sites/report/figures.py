"""Figures of a plant's forecast and of backtests, as SVG for a page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from metaprior.report.canvas import BLUE, GREY, INK, RED, Pen, new_figure, plain_text, svg, tidy
from metaprior.report.curves import Point, draw_line, key_svg
from metaprior.report.page.figures import Figures
from metaprior.solar.sites.forecaster import quantile_name
from metaprior.solar.sites.forecasting import TableForecast
from metaprior.text_table import counted

if TYPE_CHECKING:
    from metaprior.solar.sites.backtest import Backtest

GROUPS = {"hour": "hour of the day (solar time)", "season": "season"}
"""What scores of a backtest are drawn by, and the label of the axis."""
HOURS_BEFORE = 42
"""Hours of the record that are drawn before the time of issue: yesterday and today."""
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.3))
"""Quantiles of a band, and its opacity."""


def forecast_svg(found: TableForecast, name: str) -> str:
    """Return the power of the last two days and the forecast of a plant with its bands, as far as levels allow."""
    from matplotlib import dates

    adapted, own = found.plants[name], found.of(name)
    plant = adapted.plant.between(found.issue - np.timedelta64(HOURS_BEFORE, "h"), found.issue)
    with plain_text():
        figure = new_figure(4.6, 2.6)
        axes = figure.add_subplot()
        if len(plant):
            times = [_clock(found, time + np.timedelta64(plant.step // 2, "s")) for time in plant.times]
            axes.plot(times, plant.usable, color=INK, linewidth=1.4)
            masked = plant.doubt > 0
            if masked.any():
                points = [time for time, hidden in zip(times, masked, strict=True) if hidden]
                axes.plot(points, plant.power[masked], ".", color=RED, markersize=3)
        begin = [_clock(found, found.issue + lead - 1 + np.timedelta64(30, "m")) for lead in own["lead_hours"]]
        levels = set(found.levels)
        for low, high, opacity in BANDS:
            if {low, high} <= levels:
                edges = (own[quantile_name(low)].to_numpy(), own[quantile_name(high)].to_numpy())
                axes.fill_between(begin, *edges, color=BLUE, alpha=opacity, linewidth=0)
        axes.plot(begin, own["mean"].to_numpy(), color=BLUE, linewidth=2, marker="o", markersize=3)
        axes.axvline(_clock(found, found.issue), color=GREY, linewidth=1, linestyle=(0, (4, 3)))  # type: ignore[arg-type]
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_ylabel(plant.unit, fontsize=8)
        locator = dates.AutoDateLocator(maxticks=10)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.tick_params(labelsize=8)
        tidy(axes)
        return svg(figure, salt=f"forecast {name}")


def groups_figures(result: "Backtest", pens: Mapping[str, Pen], *, ours: str) -> Figures:
    """Return the RMSE of every method by hour and by season, where there are several of them."""
    drawn = {
        f"RMSE by {label}, with {counted(result.typical_days(), 'day')} of data.": groups_svg(result, by, pens, ours)
        for by, label in GROUPS.items()
        if max(len(groups) for groups, _ in result.lines(by).values()) > 1
    }
    return Figures(drawn, {name: key_svg(pen, highlighted=name == ours, salt="groups") for name, pen in pens.items()})


def groups_svg(result: "Backtest", by: str, pens: Mapping[str, Pen], ours: str) -> str:
    """Return the RMSE of every method by one of ``GROUPS``; ``ours`` is highlighted."""
    lines = result.lines(by)
    groups = list(dict.fromkeys(group for named, _ in lines.values() for group in named))
    places = {group: group if isinstance(group, int) else number for number, group in enumerate(groups)}
    with plain_text():
        figure = new_figure(4.6, 3.1)
        axes = figure.add_subplot()
        for method, (named, values) in lines.items():
            points = [Point(places[group], value) for group, value in zip(named, values, strict=True)]
            draw_line(axes, points, pens[method], highlighted=method == ours)
        axes.set(xlabel=GROUPS[by], ylabel="RMSE (% of capacity)")
        if any(isinstance(group, str) for group in groups):
            axes.set_xticks(list(places.values()), list(map(str, groups)))
        tidy(axes)
        return svg(figure, salt=f"groups {by}")


def _clock(found: TableForecast, time: np.datetime64) -> np.datetime64:
    """Return a time as the clock of the table shows it."""
    shown = found.shown(time)
    return np.datetime64(shown.tz_localize(None) if shown.tz is not None else shown)
