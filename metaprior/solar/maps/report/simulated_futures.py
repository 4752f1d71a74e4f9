"""What happened in the simulator, what else could have, and how far that differs."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from metaprior.report.canvas import save

matplotlib.use("Agg")

Maps = NDArray[np.floating]


def simulated_futures(path: Path, *, observed: Maps, continued: Maps, minutes: int, units: str, title: str) -> None:
    """Draw rows of maps by lead time: the record, two continuations, and the spread of all; write a PNG.

    observed: (L, Y, X), the frames that followed. continued: (C, L, Y, X), samples of what could have, C at least 2.
    minutes: from one lead time to the next.
    """
    if len(continued) < 2 or continued.shape[1:] != observed.shape:
        raise ValueError(
            f"continued has to hold 2 or more futures of the shape {observed.shape} of observed, got {continued.shape}"
        )
    rows = {
        "what happened": observed,
        "what could have": continued[0],
        "what could have ": continued[1],
        f"std of {len(continued)} futures": continued.std(0, ddof=1),
    }
    columns = len(observed)
    figure = Figure(figsize=(2.1 * columns + 1.4, 8.8), dpi=90, layout="compressed")
    grid = figure.subplots(4, columns, squeeze=False)
    highest = float(max(observed.max(), continued.max()))
    for (name, maps), axes in zip(rows.items(), grid, strict=True):
        spread = name.startswith("std")
        image = _row(axes, maps, name, "magma" if spread else "viridis", float(maps.max()) if spread else highest)
        figure.colorbar(image, ax=list(axes), label=units, shrink=0.9)
    for number, axes in enumerate(grid[0], start=1):
        axes.set_title(f"+{number * minutes} minutes", fontsize=9)
    figure.suptitle(title)
    save(figure, path)


def _row(row: NDArray[np.object_], maps: Maps, name: str, colours: str, highest: float) -> AxesImage:
    axes: Axes
    for axes, values in zip(row, maps, strict=True):
        image = axes.imshow(values, origin="lower", cmap=colours, interpolation="nearest", vmin=0, vmax=highest)
        axes.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, fontsize=9)
    return image
