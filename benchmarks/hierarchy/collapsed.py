"""Few tasks with few data: theta inferred with the local posteriors in closed form, beside a Gaussian process.

Every row is a mean over several sets of training tasks, each scored on new tasks with as many data. All methods know
the noise. The Gaussian process has one kernel for all tasks (squared exponential, its amplitude, length and constant
mean of largest evidence); *theta from its prior* has learned nothing from the tasks.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import metaprior as mp
from benchmarks.common.result import Row, mean_row
from benchmarks.hierarchy.gains import NEW
from metaprior.evaluation import Adapt, evaluate
from metaprior.forecasts import GaussianForecast
from metaprior.hierarchy.theta_inference import FromPrior, ThetaInference

GAUSSIAN_PROCESS, HMC, PRIOR = "Gaussian process", "collapsed, hmc", "theta from its prior"
MEASURES = ("mse", "nll", "coverage_90")
HEADLINE = {
    "coverage_3x5": (0, "coverage_90"),
    "coverage_10x5": (1, "coverage_90"),
    "mse_50x5": (2, "mse"),
    "nll_50x5": (2, "nll"),
}
"""Measures of Hamiltonian Monte Carlo by the position of a size in ``Settings.sizes``."""
FIRST_TRAINING_SEED, FIRST_TEST_SEED = 201, 301  # settings were chosen on tasks of seeds 101 to 105
FIRST_LENGTHS = (0.4, 1.0, 2.7)
"""Lengths of the kernel that the search for the largest evidence starts from."""


@dataclass(frozen=True)
class Settings:
    """Sizes, and how theta is inferred."""

    sizes: tuple[tuple[int, int], ...] = ((3, 5), (10, 5), (50, 5), (50, 20))
    """Numbers of tasks, and of data in each."""
    data_seeds: int = 5
    """Sets of training tasks, each with new tasks of its own."""
    test_tasks: int = 40
    hidden: tuple[int, ...] = (20, 20)
    hmc: mp.HMC = field(default_factory=mp.HMC)
    anchored: mp.Anchored = field(default_factory=mp.Anchored)
    variational: mp.Variational = field(default_factory=mp.Variational)

    @property
    def ways(self) -> dict[str, ThetaInference]:
        """The ways to infer theta, by the name of the method."""
        named = {HMC: self.hmc, "collapsed, anchored": self.anchored, "collapsed, variational": self.variational}
        return {**named, PRIOR: FromPrior(self.hmc.draws)}

    @property
    def jobs(self) -> list[tuple[str, int, int, int]]:
        """All methods with all sizes and data seeds, the longest first."""
        sizes, seeds = sorted(self.sizes, key=math.prod, reverse=True), range(self.data_seeds)
        methods = (*self.ways, GAUSSIAN_PROCESS)
        return [(method, *size, seed) for method in methods for size in sizes for seed in seeds]


def fitted(tasks: Sequence[mp.Task], way: ThetaInference, hidden: Sequence[int], noise: float) -> Adapt:
    """Return the adaptation of a hierarchy with its local posteriors in closed form."""
    torch.manual_seed(0)
    module = mp.MLP(1, list(hidden), 1, activation="tanh")
    learner = mp.HierarchicalVI(module, mp.Gaussian(noise=noise), local="closed_form", theta=way)
    learner.fit({task.name: task.support for task in tasks}, progress=False)
    return lambda support, steps: learner.prior_predictive() if support is None else learner.adapt(support)


@dataclass(frozen=True)
class GaussianProcess:
    r"""$f \sim GP(m, a^2 e^{-(x - x')^2 / 2 l^2})$ with known noise, for inputs and targets of shape (N, 1)."""

    mean: Tensor
    amplitude: Tensor
    length: Tensor
    noise: float

    @classmethod
    def of_largest_evidence(cls, tasks: Sequence[mp.Task], noise: float) -> "GaussianProcess":
        """Return the kernel under which the data of all tasks together are most likely."""
        x, y = (torch.stack([task.support[part] for task in tasks]).double() for part in (0, 1))
        found = [cls._fitted(x, y, noise, length) for length in FIRST_LENGTHS]
        return min(found, key=lambda pair: pair[0])[1]

    @classmethod
    def _fitted(cls, x: Tensor, y: Tensor, noise: float, length: float) -> tuple[float, "GaussianProcess"]:
        start = [float(y.mean()), math.log(float(y.std())), math.log(length)]
        values = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([values], max_iter=100, line_search_fn="strong_wolfe")

        def process() -> GaussianProcess:
            return cls(values[0], values[1].exp(), values[2].exp(), noise)

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = -process().log_evidence(x, y)
            value.backward()
            return value

        optimizer.step(loss)
        values.requires_grad_(False)
        return -float(process().log_evidence(x, y)), process()

    def log_evidence(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log density of targets (M, N, 1) of M tasks, up to a constant."""
        triangle = self._triangle(x)
        half: Tensor = torch.linalg.solve_triangular(triangle, y - self.mean, upper=False)
        return -0.5 * half.square().sum() - triangle.diagonal(dim1=-2, dim2=-1).log().sum()

    def adapted(self, support: mp.Examples | None, steps: int) -> "AdaptedProcess":
        """Return the process given some examples."""
        return AdaptedProcess(self, support)

    def kernel(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the covariances of two sets of inputs."""
        return self.amplitude.square() * torch.exp(-0.5 * ((one - other.mT) / self.length).square())

    def _triangle(self, x: Tensor) -> Tensor:
        noise = self.noise**2 * torch.eye(x.shape[-2], dtype=x.dtype)
        triangle: Tensor = torch.linalg.cholesky(self.kernel(x, x) + noise)
        return triangle

    def moments(self, support: mp.Examples, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances of targets at x, given examples."""
        given, triangle = support.x.double(), self._triangle(support.x.double())
        cross, residual = (
            torch.linalg.solve_triangular(triangle, value, upper=False)
            for value in (self.kernel(given, x.double()), support.y.double() - self.mean)
        )
        variance = self.amplitude.square() - cross.square().sum(0) + self.noise**2
        return self.mean + cross.mT @ residual, variance[:, None]


@dataclass(frozen=True)
class AdaptedProcess:
    """A Gaussian process given examples, as ``evaluate`` takes it."""

    process: GaussianProcess
    support: mp.Examples | None

    def predict(self, x: Tensor, **_: Any) -> GaussianForecast:
        """Return the exact forecast: one Gaussian."""
        none = mp.Examples(x[:0], x[:0])
        mean, variance = self.process.moments(none if self.support is None else self.support, x)
        return GaussianForecast(mean[None], variance.sqrt()[None], weights=torch.ones(1))


def scores(method: str, same: Sequence[mp.Task], new: Sequence[mp.Task], noise: float, settings: Settings) -> Row:
    """Return a method's scores on new tasks after a fit to the same ones, and the CPU seconds of the fit."""
    began = time.process_time()
    if method == GAUSSIAN_PROCESS:
        adapted: Adapt = GaussianProcess.of_largest_evidence(same, noise).adapted  # type: ignore[assignment]
    else:
        adapted = fitted(same, settings.ways[method], settings.hidden, noise)
    seconds = time.process_time() - began
    (row,) = evaluate(adapted, new, shots=(None,), steps=(0,)).rows
    return {**{name: row[name] for name in MEASURES}, "seconds": seconds}


def table(settings: Settings, found: Sequence[Row]) -> list[Row]:
    """Return a row for each method and size: means over data seeds, the worst coverage, and the CPU seconds of a fit.

    ``found`` are the scores of ``settings.jobs``.
    """
    rows = []
    for size in settings.sizes:
        for method in (*settings.ways, GAUSSIAN_PROCESS):
            own = [row for job, row in zip(settings.jobs, found, strict=True) if job[:3] == (method, *size)]
            row: Row = {"method": method, "tasks": size[0], "observations": size[1], "on": NEW, "sets": len(own)}
            for measure in MEASURES:
                row |= mean_row(measure, torch.tensor([one[measure] for one in own], dtype=torch.float64))
            row["coverage_90_worst"] = min(one["coverage_90"] for one in own)
            row["seconds"] = sum(one["seconds"] for one in own) / len(own)
            rows.append(row)
    return rows


def headline_of(rows: Sequence[Row], sizes: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Return the measures of Hamiltonian Monte Carlo, and its NLL beside that of the process and of the prior."""

    def value(method: str, place: int, measure: str) -> float:
        (row,) = [r for r in rows if (r["method"], r["tasks"], r["observations"]) == (method, *sizes[place])]
        return float(row[measure])

    headline = {name: value(HMC, place, measure) for name, (place, measure) in HEADLINE.items()}
    headline["coverage_worst"] = min(value(HMC, place, "coverage_90_worst") for place in range(len(sizes)))
    headline["nll_over_process_10x5"] = value(HMC, 1, "nll") - value(GAUSSIAN_PROCESS, 1, "nll")
    headline["nll_over_prior_3x5"] = value(HMC, 0, "nll") - value(PRIOR, 0, "nll")
    return headline
