"""A one-dimensional regression with its predictive band."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from metaprior.forecasts import GaussianForecast

matplotlib.use("Agg")

INK, BLUE, RED = "#222222", "#1f6fb4", "#c0392b"


def predictive_band(
    path: Path,
    *,
    data: tuple[Tensor, Tensor],
    grid: Tensor,
    truth: Tensor,
    forecast: GaussianForecast,
    level: float = 0.9,
    title: str,
) -> None:
    """Draw data, truth, predicted mean, the band of the weights alone and the band of the targets; write a PNG.

    ``grid``, ``truth`` and the forecast's targets are vectors of the same length, in the order of the grid.
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    low, high = forecast.interval(level)
    axes.fill_between(grid, low, high, color=BLUE, alpha=0.18, linewidth=0, label=f"{level:.0%} interval of y")
    weights_low, weights_high = (forecast.means.quantile(q, dim=0) for q in ((1 - level) / 2, (1 + level) / 2))
    axes.fill_between(
        grid,
        weights_low,
        weights_high,
        color=BLUE,
        alpha=0.3,
        linewidth=0,
        label=f"{level:.0%} interval of its mean (weights alone)",
    )
    axes.plot(grid, truth, color=INK, linestyle="--", linewidth=1.2, label="truth without noise")
    axes.plot(grid, forecast.mean, color=BLUE, linewidth=2, label="predicted mean")
    axes.scatter(*data, s=7, color=RED, alpha=0.6, linewidth=0, label="data", zorder=3)
    axes.set(title=title, xlabel="x", ylabel="y", xlim=(float(grid[0]), float(grid[-1])))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
