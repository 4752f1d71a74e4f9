"""Pictures of a way of adapting: its forecast of one wave before the first example, and after some."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.adaptation.comparison import SIZES, TRAINING_SEED, VALIDATION_SEED, adaptation_of
from benchmarks.adaptation.problems import NOISE, PROBLEMS
from benchmarks.common.budget import first_tasks, one_thread
from metaprior.evaluation import Adapt
from metaprior.forecasts import GaussianForecast
from metaprior.report.canvas import BLUE, INK, RED, new_figure, save, tidy
from metaprior.tasks.task import Examples
from metaprior.tasks.waves import INPUTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = {0.9: 0.15, 0.5: 0.3}
"""Central intervals, and how dark they are."""


def draw(
    path: Path, adapt: Adapt, examples: Examples, truth: Callable[[Tensor], Tensor], shots: Sequence[int], title: str
) -> None:
    """Draw a forecast after each number of examples, one panel each; write a PNG.

    Args:
        path: The file to write.
        adapt: Returns the posterior given examples, or None for none.
        examples: The first of them are adapted to.
        truth: Returns the curve without noise at inputs (N, 1).
        shots: Numbers of examples.
        title: The title of the figure.
    """
    figure = new_figure(2.7 * len(shots), 2.9)
    panels = figure.subplots(1, len(shots), squeeze=False, sharey=True)[0]
    x = torch.linspace(*INPUTS, 200)[:, None]
    for axes, count in zip(panels, shots, strict=True):
        given = examples.first(count)
        forecast = adapt(given if count else None, 0).predict(x, samples=50, seed=0)
        assert isinstance(forecast, GaussianForecast)
        _panel(axes, x[:, 0], forecast, truth(x)[:, 0], given)
        axes.set(title=f"{count} example{'s' * (count != 1)}", xlabel="x")
    panels[0].set_ylabel("y")
    figure.suptitle(title)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)


def _panel(axes: "Axes", x: Tensor, forecast: GaussianForecast, truth: Tensor, given: Examples) -> None:
    for level, alpha in LEVELS.items():
        low, high = (end[:, 0] for end in forecast.interval(level))
        axes.fill_between(x, low, high, color=BLUE, alpha=alpha, linewidth=0, label=f"{level:.0%} interval")
    axes.plot(x, truth, color=INK, linestyle="--", linewidth=1.2, label="truth")
    axes.plot(x, forecast.mean[:, 0], color=BLUE, linewidth=1.8, label="mean")
    axes.scatter(given.x[:, 0], given.y[:, 0], s=22, color=RED, zorder=3, label="examples")
    tidy(axes)


def of_way(path: Path, way: str, *, seconds: float = 30.0, validation_tasks: int = 80) -> None:
    """Train a way of adapting on sinusoids as the benchmark does, and draw its forecasts of a new one."""
    problem = PROBLEMS["sinusoid"]
    tasks = problem.tasks(TRAINING_SEED, max(SIZES), 20)
    with one_thread():
        learner, _ = problem.recipes[way].trained(tasks, SIZES, seconds, 0)
        learner.calibrate(first_tasks(problem.tasks(VALIDATION_SEED, max(SIZES), 50), validation_tasks), progress=False)
        amplitude, phase = 3.0, 0.6
        given = torch.tensor([[-3.6], [1.9], [0.4], [-1.2], [3.4], [4.6], [-4.7], [-2.4], [2.6], [-0.4]])

        def truth(x: Tensor) -> Tensor:
            return amplitude * torch.sin(x + phase)

        noise = NOISE * torch.randn(given.shape, generator=torch.Generator().manual_seed(0))
        examples = mp.Examples(given, truth(given) + noise)
        draw(path, adaptation_of(learner), examples, truth, (0, 1, 2, 5, 10), way)
