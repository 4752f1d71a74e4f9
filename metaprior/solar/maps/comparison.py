"""Forecasts of the same tasks by several methods, scored side by side in the units of the frames."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor
from tqdm import tqdm

from metaprior.evaluation import finite_forecast
from metaprior.forecasts import GaussianForecast
from metaprior.methods.meta_learner import MetaLearner
from metaprior.posterior import Posterior
from metaprior.solar.maps.context import Context, context_of, gaussian
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.tasks.task import Task

Forecaster = Callable[[Task, int], GaussianForecast]
"""(task, its index) -> forecast of its query windows, in the network's units."""
PointForecaster = Callable[[Context], Tensor]
"""Query windows in the units of the frames -> frames (N, L, H, W)."""


class Case(NamedTuple):
    """A task to forecast, with its number and its query windows in the units of the frames."""

    number: int
    task: Task
    context: Context


def cases(
    dataset: MetaSolarPredictionDataset, count: int, *, progress: bool, label: str = "forecasts"
) -> Iterator[Case]:
    """Iterate over the first ``count`` tasks."""
    for index in tqdm(range(count), desc=label, unit="task", disable=not progress, delay=1):
        yield case_of(dataset, index)


def case_of(dataset: MetaSolarPredictionDataset, index: int) -> Case:
    """Return the task with this index and its query windows."""
    return Case(index, dataset[index], context_of(dataset.reader, dataset.windows(index).query))


def empty_scores(dataset: MetaSolarPredictionDataset) -> LeadTimeScores:
    """Return scores to which nothing has been added, for the lead times and the range of the dataset."""
    minutes = dataset.reader.lead_times // np.timedelta64(1, "m")
    attrs = dataset.frames.attrs
    return LeadTimeScores(minutes.tolist(), value_range=attrs["data_max"] - attrs["data_min"])


def score(
    dataset: MetaSolarPredictionDataset,
    count: int,
    methods: Mapping[str, Forecaster],
    points: Mapping[str, PointForecaster] | None = None,
    *,
    progress: bool = True,
    label: str = "forecasts",
) -> dict[str, LeadTimeScores]:
    """Score methods and point forecasts on the first ``count`` tasks, and return the scores by name."""
    points = points or {}
    scores = {name: empty_scores(dataset) for name in (*points, *methods)}
    for case in cases(dataset, count, progress=progress, label=label):
        add_case(scores, case, methods, points)
    return scores


def add_case(
    scores: Mapping[str, LeadTimeScores],
    case: Case,
    methods: Mapping[str, Forecaster],
    points: Mapping[str, PointForecaster],
) -> None:
    """Add the forecasts of one task to the scores: of all methods, or, if one of them raises, of none."""
    number, task, context = case
    forecasts: dict[str, GaussianForecast | Tensor] = {name: point(context) for name, point in points.items()}
    forecasts |= {name: context.decoded(method(task, number)) for name, method in methods.items()}
    for name, forecast in forecasts.items():
        scores[name].add(
            forecast, context.targets, task=task.name, references=context.references, daylight=context.daylight
        )


def reference(name: str) -> PointForecaster:
    """Return the forecaster that gives one of the context's references."""
    return lambda context: context.references[name]


def of_learner(learner: MetaLearner, *, steps: int | None, samples: int, failed: list[str] | None = None) -> Forecaster:
    """Return the forecaster of a learner after ``steps`` adaptation steps; None is the prior, not adapted.

    With a list ``failed``, a task whose adaptation diverges is forecast by the prior, and its name is appended to the
    list; without one it raises FloatingPointError.
    """

    def of(posterior: Posterior, task: Task, index: int) -> GaussianForecast:
        forecast = gaussian(finite_forecast(posterior, task.query.x, samples, index))
        for what, values in (("mean", forecast.means), ("scale", forecast.scales)):
            if not bool(values.isfinite().all()):
                raise FloatingPointError(f"a {what} of the forecast is not finite")
        return forecast

    def forecast(task: Task, index: int) -> GaussianForecast:
        if steps is None:
            return of(learner.prior_predictive(), task, index)
        try:
            return of(learner.adapt(task.support, steps), task, index)
        except FloatingPointError:
            if failed is None:
                raise
            failed.append(task.name)
            return of(learner.prior_predictive(), task, index)

    return forecast


def with_shots(forecaster: Forecaster, shots: int) -> Forecaster:
    """Return a forecaster that sees only the first ``shots`` windows of the support set."""
    return lambda task, index: forecaster(task._replace(support=task.support.first(shots)), index)
