"""Forecasts of the same tasks by several methods, scored side by side in the units of the frames."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metaprior.evaluation import finite_forecast, map_tasks
from metaprior.forecasts import GaussianForecast
from metaprior.methods.meta_learner import MetaLearner
from metaprior.solar import sun
from metaprior.solar.maps import baselines
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.units import has_coordinates
from metaprior.solar.maps.windows import Window, WindowReader
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.tasks.task import Task

PERSISTENCE = "persistence"
"""The name of the forecast that holds the last frame."""
SMART_PERSISTENCE = "smart_persistence"
"""The name of the forecast that holds the last clear-sky index."""


class Context(NamedTuple):
    """A task's query windows in the units of the frames: N windows, L lead times, patches of H x W pixels."""

    windows: tuple[Window, ...]
    issued: Times
    """Times of the last input frames, (N,)."""
    inputs: Tensor
    """Input frames, (N, I, H, W)."""
    targets: Tensor
    """Target frames, (N, L, H, W)."""
    loc: Tensor
    scale: Tensor
    """``value = loc + scale * network number``, to broadcast against the targets."""
    daylight: Tensor
    """Which target pixels are in daylight, (N, L, H, W), bool."""
    references: dict[str, Tensor]
    """Point forecasts that skill is measured against, (N, L, H, W)."""

    def decoded(self, forecast: GaussianForecast) -> GaussianForecast:
        """Return the network's forecast in the units of the frames."""
        return forecast.rescaled(self.loc, self.scale)


def context_of(reader: WindowReader, windows: tuple[Window, ...]) -> Context:
    """Read these windows, and return them with their decoding, daylight and references.

    References are persistence and, where coordinates are known, smart persistence.
    """
    values = torch.from_numpy(np.stack([reader.read(window) for window in windows]))
    inputs, targets = values[:, : reader.input_len], values[:, reader.input_len :]
    loc, scale = (torch.stack(part) for part in zip(*map(reader.decoding, windows), strict=True))
    night = [sun.is_night(reader.block(window)[reader.input_len :]) for window in windows]
    references = {PERSISTENCE: baselines.persistence(inputs, reader.target_len)}
    if has_coordinates(reader.frames):
        seen = slice(reader.input_len - 1, None)  # the last input frame and the targets
        sines = [
            sun.sine_of_elevation(reader.times(one)[seen], place) for one in windows if (place := reader.place(one))
        ]
        skies = [sun.haurwitz(sine) for sine in sines]
        clear = torch.tensor(np.stack(skies), dtype=torch.float32)  # (N, 1 + L, H, W)
        references[SMART_PERSISTENCE] = baselines.smart_persistence(inputs, clear[:, 0], clear[:, 1:])
    issued, daylight = np.array([reader.issued(window) for window in windows]), torch.from_numpy(~np.stack(night))
    return Context(windows, issued, inputs, targets, loc, scale, daylight, references)


Forecaster = Callable[[Task, int], GaussianForecast]
"""(task, its index) -> forecast of its query windows, in the network's units."""
PointForecaster = Callable[[Context], Tensor]
"""Query windows in the units of the frames -> frames (N, L, H, W)."""


def empty_scores(dataset: MetaSolarPredictionDataset) -> LeadTimeScores:
    """Return scores to which nothing has been added, for the lead times and the range of the dataset."""
    attrs, leads = dataset.frames.attrs, np.arange(1, dataset.target_len + 1) * dataset.reader.cadence
    minutes = leads // np.timedelta64(1, "m")
    return LeadTimeScores(minutes.tolist(), value_range=attrs["data_max"] - attrs["data_min"])


def score(
    dataset: MetaSolarPredictionDataset,
    count: int,
    methods: Mapping[str, Forecaster],
    points: Mapping[str, PointForecaster] | None = None,
    *,
    failures: list[str] | None = None,
    poll: Callable[[], None] = lambda: None,
    progress: bool = True,
) -> dict[str, LeadTimeScores]:
    """Score methods and point forecasts on the first ``count`` tasks, and return the scores by name.

    The ranks of the current team share the tasks; all get the scores, bitwise identical to those of one process.

    Args:
        dataset: The tasks.
        count: Number of tasks to score.
        methods: Forecasters by name, such as ``of_learner`` returns.
        points: Point forecasters by name, such as ``reference("persistence")``.
        failures: A list to which a line is appended for each task that is left out of all scores because a forecast was
            not finite; without it such a task raises FloatingPointError.
        poll: Called before every task; may raise KeyboardInterrupt.
        progress: Show a progress bar.
    """
    points = points or {}

    def scored(index: int) -> dict[str, LeadTimeScores] | str:
        poll()
        task, context = dataset[index], context_of(dataset.reader, dataset.windows(index).query)
        scores = {name: empty_scores(dataset) for name in (*points, *methods)}
        try:
            forecasts: dict[str, GaussianForecast | Tensor] = {name: point(context) for name, point in points.items()}
            forecasts |= {name: context.decoded(method(task, index)) for name, method in methods.items()}
            for name, forecast in forecasts.items():
                scores[name].add(
                    forecast, context.targets, task=task.name, references=context.references, daylight=context.daylight
                )
        except FloatingPointError as error:
            if failures is None:
                raise
            return f"{task.name}: {error}"
        return scores

    total = {name: empty_scores(dataset) for name in (*points, *methods)}
    for result in map_tasks(scored, count, label="scores", progress=progress):
        if isinstance(result, dict):
            for name, scores in result.items():
                total[name].merge(scores)
        elif failures is not None:
            failures.append(result)
    return total


def reference(name: str) -> PointForecaster:
    """Return the forecaster that gives one of the context's references."""
    return lambda context: context.references[name]


def of_learner(learner: MetaLearner, *, samples: int, adapted: bool = True, steps: int | None = None) -> Forecaster:
    """Return the forecaster of a learner, for ``score``.

    It raises FloatingPointError for a task whose adaptation diverges.

    Args:
        learner: A fitted learner.
        samples: Weight samples of a forecast.
        adapted: Adapt to the support set of each task; False forecasts with the prior itself.
        steps: Adaptation steps; None takes those of the learner.
    """

    def forecast(task: Task, index: int) -> GaussianForecast:
        posterior = learner.adapt(task.support, steps) if adapted else learner.prior_predictive()
        found = gaussian(finite_forecast(posterior, task.query.x, samples, index))
        for what, values in (("mean", found.means), ("scale", found.scales)):
            if not bool(values.isfinite().all()):
                raise FloatingPointError(f"a {what} of the forecast is not finite")
        return found

    return forecast


def with_shots(forecaster: Forecaster, shots: int) -> Forecaster:
    """Return a forecaster that sees only the first ``shots`` windows of the support set."""
    return lambda task, index: forecaster(task._replace(support=task.support.first(shots)), index)


def gaussian(forecast: object) -> GaussianForecast:
    """Return the forecast if it is Gaussian; raises TypeError otherwise."""
    if not isinstance(forecast, GaussianForecast):
        raise TypeError(
            "maps need a Gaussian likelihood (Gaussian, HeteroscedasticGaussian or CRPSGaussian), got a "
            f"{type(forecast).__name__}"
        )
    return forecast
