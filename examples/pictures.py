"""Draw the pictures of the documentation that no command draws: ``python -m examples.pictures docs/images``."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.adaptation import picture as adaptation
from benchmarks.adaptation.ways import CLOSED_FORM, CONTEXT, CONTEXT_CLOSED_FORM, CONTEXT_DESCENT, DESCENT
from examples.demo import plants
from examples.demo.settings import PlantSettings
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods import HeteroscedasticGaussian
from metaprior.methods.bayes_by_backprop import BayesByBackprop
from metaprior.report.canvas import BLUE, INK, RED, new_figure, save, tidy
from metaprior.solar.maps.report.figures import MapRow, map_figure
from metaprior.solar.simulator import Simulator
from metaprior.solar.sites.backtest import adapted
from metaprior.solar.sites.forecaster import SiteForecaster
from metaprior.solar.sites.report.day_forecasts import axis_top, draw_day

Array = NDArray[np.floating]
WAYS = {
    "descent": DESCENT,
    "closed_form": CLOSED_FORM,
    "context": CONTEXT,
    "context_closed_form": CONTEXT_CLOSED_FORM,
    "context_descent": CONTEXT_DESCENT,
}
"""Ways of adapting by the ending of their picture's name."""


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
    """Draw data, truth, predicted mean, the band of the mean and the band of the targets; write a PNG.

    Args:
        path: The file to write.
        data: Inputs and targets that the network was fitted to, a vector each.
        grid: (N,) inputs at which the forecast is drawn, in increasing order.
        truth: (N,) targets without noise.
        forecast: The forecast of the N targets.
        level: The probability that each central interval should contain.
        title: The title of the figure.
    """
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    of_mean = [forecast.means.quantile(q, dim=0) for q in ((1 - level) / 2, (1 + level) / 2)]
    for (low, high), alpha, label in (
        (forecast.interval(level), 0.18, f"{level:.0%} interval of y"),
        (of_mean, 0.3, f"{level:.0%} interval of its mean (weights alone)"),
    ):
        axes.fill_between(grid, low, high, color=BLUE, alpha=alpha, linewidth=0, label=label)
    axes.plot(grid, truth, color=INK, linestyle="--", linewidth=1.2, label="truth without noise")
    axes.plot(grid, forecast.mean, color=BLUE, linewidth=2, label="predicted mean")
    axes.scatter(*data, s=7, color=RED, alpha=0.6, linewidth=0, label="data", zorder=3)
    axes.set(title=title, xlabel="x", ylabel="y", xlim=(float(grid[0]), float(grid[-1])))
    tidy(axes)
    axes.legend(frameon=False, loc="upper left")
    save(figure, path)


def simulated_futures(
    path: Path, *, observed: Array, continued: NDArray[np.floating], minutes: int, units: str, title: str
) -> None:
    """Draw what happened in the simulator, two other possible futures, and the spread of all; write a PNG.

    Args:
        path: The file to write.
        observed: (L, H, W), the frames that followed.
        continued: (C, L, H, W), at least two samples of the frames that could have followed.
        minutes: Minutes from one lead time to the next.
        units: The units of the frames.
        title: The title of the figure.
    """
    if len(continued) < 2 or continued.shape[1:] != observed.shape:
        wanted = f"(2 or more, {', '.join(map(str, observed.shape))})"
        raise ValueError(f"continued must have shape {wanted}, as observed has, got {continued.shape}")
    spread, limits = continued.std(0, ddof=1), (0.0, float(max(observed.max(), continued.max())))
    rows = [
        MapRow("what happened", observed[:, ::-1], "value", limits),
        *(MapRow("a possible future", one[:, ::-1], "value", limits) for one in continued[:2]),
        MapRow(f"std of {len(continued)} futures", spread[:, ::-1], "std", (0.0, float(spread.max()))),
    ]
    figure = map_figure(rows, [f"+{step * minutes} minutes" for step in range(1, len(observed) + 1)], units)
    figure.suptitle(title)
    save(figure, path)


def fitted_band(path: Path, *, observations: int = 1000, epochs: int = 500) -> None:
    """Fit Bayes by Backprop to the one-dimensional regression of its paper (Blundell et al. 2015) and draw it."""
    noise = torch.Generator().manual_seed(0)
    x = 0.5 * torch.rand(observations, generator=noise)
    y = curve(x, 0.02 * torch.randn(observations, generator=noise))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))
    learned = BayesByBackprop(network, HeteroscedasticGaussian()).fit(standardized(x), y, epochs=epochs, batch_size=64)
    grid = torch.linspace(-0.2, 0.8, 400)
    forecast = learned.predict(standardized(grid), samples=200)
    assert isinstance(forecast, GaussianForecast)
    flat = GaussianForecast(forecast.means.flatten(1), forecast.scales.flatten(1))
    title = "Bayes by Backprop on the one-dimensional regression of its paper"
    predictive_band(path, data=(x, y), grid=grid, truth=curve(grid, torch.zeros(400)), forecast=flat, title=title)


def standardized(x: Tensor) -> Tensor:
    """Return inputs of mean 0 and standard deviation 1 where the data are, as a column."""
    return ((x - 0.25) * math.sqrt(48))[:, None]


def curve(x: Tensor, noise: Tensor) -> Tensor:
    """Return y = x + 0.3 sin(2 pi (x + noise)) + 0.3 sin(4 pi (x + noise)) + noise."""
    return x + 0.3 * torch.sin(2 * torch.pi * (x + noise)) + 0.3 * torch.sin(4 * torch.pi * (x + noise)) + noise


def futures_of_simulator(path: Path, *, size: int = 96, continuations: int = 100) -> None:
    """Simulate a week and draw what followed one of its frames beside what could have followed."""
    simulator = Simulator(days=7, size=size, seed=0)
    now = simulator.index_of(np.datetime64("2025-03-07T10:00"))
    frames = simulator.frames(progress=False)
    simulated_futures(
        path,
        observed=frames[now + 1 : now + 5].values,
        continued=simulator.futures(now, continuations=continuations, steps=4, seed=1),
        minutes=30,
        units=str(frames.attrs["units"]),
        title="Simulated irradiance after 2025-03-07 10:00 UTC, seed 0",
    )


def new_plant(path: Path, *, settings: PlantSettings | None = None, days: Sequence[int] = (0, 1, 3)) -> None:
    """Draw today's forecast of a plant from few days of its data: that of ``make demo`` with the median gain."""
    settings, prior = settings or PlantSettings(), SiteForecaster.pretrained()
    scored = plants.score(settings, {plants.PACKAGED: adapted(prior)}, prior)
    outcome = plants.PlantOutcome(plants.fleet_of(settings), scored, prior, settings)
    found = next(iter(plants.days_to_show(outcome).values()))
    figure = new_figure(9, 3.4, dpi=200)
    panels, top = figure.subplots(1, len(days), sharey=True), axis_top([found])
    for axes, count in zip(panels, days, strict=True):
        draw_day(axes, found, count, top=top)
        told = f"error {100 * found.error(count):.1f} %, 90 % band {100 * found.width(count):.0f} % wide"
        axes.set_title(f"{count} day{'' if count == 1 else 's'} of data", fontweight="bold", loc="left", pad=22)
        axes.text(0, 1.03, told, transform=axes.transAxes, fontsize=9.5)
    panels[0].set_ylabel("power (% of capacity)")
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)


def main() -> None:
    """Draw all pictures into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    folder = parser.parse_args().folder
    fitted_band(folder / "band.png")
    futures_of_simulator(folder / "simulated_futures.png")
    new_plant(folder / "plant.png")
    for name, way in WAYS.items():
        adaptation.of_way(folder / f"adaptation_{name}.png", way)


if __name__ == "__main__":
    main()
