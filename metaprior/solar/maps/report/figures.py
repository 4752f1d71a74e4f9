"""Draw maps by lead time, such as a forecast beside what happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from metaprior.report.canvas import new_figure, plain_text, png, save
from metaprior.solar.maps.report.embedding import Kind, colour_map, limits_of
from metaprior.solar.maps.report.example import Array, ExampleForecast

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNKNOWN = "#b9bec4"


class MapRow(NamedTuple):
    """One row of a figure: maps (L, H, W) of one kind, with the limits of their colours."""

    label: str
    layer: Array
    kind: Kind
    limits: tuple[float, float]


def forecast_figure(path: Path, example: ExampleForecast) -> None:
    """Draw target, mean, uncertainty and error (rows) by lead time (columns); write a PNG.

    Target and mean share a colour bar's scale, the uncertainty starts at zero, the error is symmetric around zero.
    Unknown values are grey.
    """
    with plain_text():
        save(_forecast(example), path)


def forecast_png(example: ExampleForecast) -> bytes:
    """Return the picture of ``forecast_figure`` as the bytes of its file."""
    with plain_text():
        return png(_forecast(example))


def _forecast(example: ExampleForecast) -> "Figure":
    example = example.north_up()
    limits = limits_of(example)
    rows = [
        MapRow("target", example.target, "value", limits["value"]),
        MapRow("mean", example.mean, "value", limits["value"]),
        MapRow("uncertainty\n(std)", example.std, "std", limits["std"]),
        MapRow("error\n(mean − target)", example.error, "error", limits["error"]),
    ]
    times = {lead: example.time_text(lead).split(maxsplit=1)[1] for lead in example.lead_minutes}
    titles = [f"t+{lead} min\n{time}" for lead, time in times.items()]
    figure = map_figure(rows, titles, example.units)
    figure.suptitle(f"{example.name}, issued {example.time_text(0)}", fontsize="large")
    return figure


def map_figure(rows: Sequence[MapRow], titles: Sequence[str], units: str) -> "Figure":
    """Return rows of maps with a colour bar each, and a title for each column."""
    height, width = rows[0].layer.shape[1:]
    side = 1.75
    cell = side * min(2.0, max(0.5, height / width))
    figure = new_figure(1.5 + side * len(titles), 0.9 + len(rows) * (cell + 0.15))
    panels = figure.subplots(len(rows), len(titles), squeeze=False)
    for row, row_of_panels in zip(rows, panels, strict=True):
        colours, (low, high) = colour_map(row.kind), row.limits
        for axes, layer in zip(row_of_panels, row.layer, strict=True):
            image = axes.imshow(layer, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
            axes.set_facecolor(UNKNOWN)
            axes.set(xticks=[], yticks=[])
        row_of_panels[0].set_ylabel(row.label)
        figure.colorbar(image, ax=list(row_of_panels), label=units, aspect=12, pad=0.015)
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize="medium")
    return figure
