"""Forecasts of the same tasks by several methods, scored side by side in the frames' own units."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor
from tqdm import tqdm

from metaprior.evaluation import finite_forecast
from metaprior.forecasts import GaussianForecast
from metaprior.methods.meta_learner import MetaLearner
from metaprior.posterior import Posterior
from metaprior.solar.maps import baselines, plain_network
from metaprior.solar.maps.archives.door import cadence_of
from metaprior.solar.maps.context import Context, context_of
from metaprior.solar.maps.plain_network import PlainNetwork, Tuning
from metaprior.solar.maps.tasks import MetaSolarPredictionDataset
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.tasks.task import Task

Forecaster = Callable[[Task, int], GaussianForecast]
"""(task, its index) -> forecast of its query windows, in the network's numbers."""
PointForecaster = Callable[[Context], Tensor]
"""Query windows in the frames' own units -> frames (N, L, H, W)."""


class Case(NamedTuple):
    """One task to forecast; ``number`` is its index."""

    number: int
    task: Task
    context: Context


def cases(
    dataset: MetaSolarPredictionDataset, count: int, *, progress: bool, label: str = "forecasts"
) -> Iterator[Case]:
    """The first tasks, one after the other."""
    for index in tqdm(range(count), desc=label, unit="task", disable=not progress, delay=1):
        yield Case(index, dataset[index], context_of(dataset, dataset.windows(index).query))


def empty_scores(dataset: MetaSolarPredictionDataset) -> LeadTimeScores:
    """Scores of nothing yet."""
    step = int(cadence_of(dataset.frames.attrs["cadence"]).astype("timedelta64[m]").astype(int))
    leads = [step * (number + 1) for number in range(dataset.target_len)]
    attrs = dataset.frames.attrs
    return LeadTimeScores(leads, value_range=attrs["data_max"] - attrs["data_min"])


def score(
    dataset: MetaSolarPredictionDataset,
    count: int,
    methods: Mapping[str, Forecaster],
    points: Mapping[str, PointForecaster] | None = None,
    *,
    progress: bool = True,
    label: str = "forecasts",
) -> dict[str, LeadTimeScores]:
    """Every method on the first ``count`` tasks."""
    points = points or {}
    found = {name: empty_scores(dataset) for name in (*points, *methods)}
    for index, task, context in cases(dataset, count, progress=progress, label=label):
        for name, point in points.items():
            _add(found[name], point(context), task, context)
        for name, method in methods.items():
            _add(found[name], context.decoded(method(task, index)), task, context)
    return found


def _add(scores: LeadTimeScores, forecast: GaussianForecast | Tensor, task: Task, context: Context) -> None:
    scores.add(forecast, context.targets, task=task.name, references=context.references, daylight=context.daylight)


def reference(name: str) -> PointForecaster:
    """One of the context's own references."""
    return lambda context: context.references[name]


def optical_flow(context: Context) -> Tensor:
    """The last frame, carried on by its motion."""
    return baselines.optical_flow(context.inputs, context.targets.shape[1]).frames


def of_learner(learner: MetaLearner, *, steps: int | None, samples: int, failed: list[str] | None = None) -> Forecaster:
    """Adapted with this many steps; None is not at all.

    With a list ``failed``, a task whose adaptation leaves the finite numbers is forecast by the prior, and its name put
    there; without one that is an error.
    """

    def of(posterior: Posterior, task: Task, index: int) -> GaussianForecast:
        return _finite(_gaussian(finite_forecast(posterior, task.query.x, samples, index)))

    def forecast(task: Task, index: int) -> GaussianForecast:
        if steps is None:
            return of(learner.prior, task, index)
        try:
            return of(learner.adapt(task.support, steps), task, index)
        except FloatingPointError:
            if failed is None:
                raise
            failed.append(task.name)
            return of(learner.prior, task, index)

    return forecast


def with_shots(forecaster: Forecaster, shots: int) -> Forecaster:
    """The same from the first few windows of the support set alone."""
    return lambda task, index: forecaster(task._replace(support=task.support.first(shots)), index)


def of_networks(networks: Sequence[PlainNetwork], tuning: Tuning) -> Forecaster:
    """One network, or an ensemble, each fine-tuned on the support set."""

    def forecast(task: Task, index: int) -> GaussianForecast:
        tuned = [one.fine_tuned(task.support, tuning) if tuning.steps else one for one in networks]
        return plain_network.forecast(tuned, task.query.x)

    return forecast


def _finite(forecast: GaussianForecast) -> GaussianForecast:
    for what, values in (("mean", forecast.means), ("scale", forecast.scales)):
        if not bool(values.isfinite().all()):
            raise FloatingPointError(f"a {what} of the forecast is not finite")
    return forecast


def _gaussian(forecast: object) -> GaussianForecast:
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(f"maps are forecast with a Gaussian likelihood; got a {type(forecast).__name__}")
    return forecast
