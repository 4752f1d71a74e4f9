"""Forecasts of the packaged learners in Python, and a task to compare with."""

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metaprior.explore.problems import PROBLEMS, load_learner
from metaprior.methods import MetaLearner
from metaprior.tasks.task import Examples, task_at

LEVELS = [0.05, 0.25, 0.75, 0.95]
XS = np.linspace(-5, 5, 23)
COUNTS = (0, 1, 2, 5, 10)
PRECISION = 1e-5
"""Largest difference to Python, whose networks are in float32."""


@cache
def learner(problem: str, way: str) -> MetaLearner:
    return load_learner(problem, way)


def support(problem: str, count: int, index: int = 3) -> Examples:
    chosen = PROBLEMS[problem]
    return task_at(chosen.tasks(20, 1, chosen.noise, 77), index, 0).support.first(count)


def points(examples: Examples) -> list[dict[str, float]]:
    """Return examples as the page has them."""
    return [{"x": x, "y": y} for x, y in zip(examples.x[:, 0].tolist(), examples.y[:, 0].tolist(), strict=True)]


def expected(problem: str, way: str, examples: Examples, steps: int = 5) -> dict[str, NDArray[np.float64]]:
    """Return mean, standard deviation and quantiles of Python's forecast at ``XS``."""
    own = learner(problem, way)
    taken = {"steps": steps} if way == "descent" else {}
    posterior = own.adapt(examples, **taken) if examples.size else own.prior_predictive()
    forecast = posterior.predict(torch.tensor(XS, dtype=torch.float32)[:, None])
    found = {"mean": forecast.mean, "std": forecast.std, "quantiles": forecast.quantile(LEVELS)}
    return {name: value.squeeze(-1).double().numpy() for name, value in found.items()}


def largest_difference(found: dict[str, Any], wanted: dict[str, NDArray[np.float64]]) -> float:
    return max(float(np.abs(np.array(found[name]) - value).max()) for name, value in wanted.items())
