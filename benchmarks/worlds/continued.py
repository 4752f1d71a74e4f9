"""Further training on an archive: the prior's first network trained on the training days, scored as in ``solar``.

The test tasks are those of ``python -m benchmarks solar``: the same patches and windows, in the units of the frames. A
nowcast sees the whole frame and what was known at the time of issue. The learning rate, and the spread at each lead
time, are chosen on the validation days.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

import metaprior as mp
from benchmarks.common.benchmark import Context
from benchmarks.common.budget import Fitted, fit_within, one_thread
from benchmarks.common.data import HIMAWARI
from benchmarks.common.result import Row
from benchmarks.solar.archives import Archive, Part, himawari
from benchmarks.solar.methods import TEST_SEED, TRAINING_SEED, VALIDATION_SEED
from benchmarks.worlds.settings import Settings
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.comparison import Forecaster, score
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.nowcast.calibrating import fitted_factors
from metaprior.solar.maps.nowcast.forecaster import Nowcaster, trained_network
from metaprior.solar.maps.nowcast.likelihood import NowcastLikelihood
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.source import WindowTasks, positions_within
from metaprior.solar.maps.nowcast.task_settings import WindowSettings
from metaprior.solar.scores.lead_scores import LeadTimeScores

PRODUCT = "Himawari-9, 30 min"
MOMENTS, CROPS = 4, 4
"""Moments of a training step, and windows that are cut out of each."""
SEEDS: dict[Part, int] = {"validation": VALIDATION_SEED, "test": TEST_SEED}


class Trained(NamedTuple):
    """A forecaster after further training, what that took, its learning rate, and the score on validation tasks."""

    forecaster: Nowcaster
    fitted: Fitted
    rate: float
    validation_crps: float


def continued(context: Context[Settings], prior: Nowcaster) -> list[Row]:
    """Return the scores before and after further training; none without the data."""
    if not (context.data / HIMAWARI.files[0]).is_file():
        return []
    settings, archive = context.settings, himawari(context.data)
    moments = Moments(archive.frames["test"])
    first = Nowcaster(prior.networks[:1], (1.0,), prior.factors)
    with one_thread():
        found = [train(moments, archive, first.networks[0], settings, rate) for rate in settings.continued_rates]
        best = min(found, key=lambda one: one.validation_crps)
        before = with_spread(first, moments, archive, settings)
        count = settings.continued_tasks
        zero, own = (scores(one, moments, archive, "test", count, settings) for one in (before, best.forecaster))
    return [
        {
            "part": "continued on training days",
            "product": PRODUCT,
            "tasks": count,
            "cpu_seconds": round(best.fitted.seconds, 1),
            "steps": best.fitted.warm_start,
            "learning_rate": best.rate,
            "crps_validation": best.validation_crps,
            "crps_zero_shot": float(zero.row()["crps"]),
            "crps": float(own.row()["crps"]),
            "coverage": float(own.row()["coverage_90"]),
        }
    ]


def headline_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the CRPS after further training, if it was measured."""
    return {"continued_crps": float(rows[0]["crps"])} if rows else {}


def train(moments: Moments, archive: Archive, network: NowcastNetwork, settings: Settings, rate: float) -> Trained:
    """Return the network after further training, as ``[[tasks]]`` of kind "nowcast" with ``meta.warm_start`` do."""
    windows = WindowSettings(k_shot=CROPS // 2, k_query=CROPS // 2, crops=CROPS)
    days = positions_within(moments, archive.days["train"])
    tasks = WindowTasks(moments, days, days, windows, TRAINING_SEED, pooled=True)
    inner = mp.Descent(steps=0, kl_weight=0.0)
    learner = mp.MetaLearner(
        network, NowcastLikelihood(), adaptation=inner, relative_sigma=0.0, memory="4GiB", standardize=False
    )
    how = mp.MetaTraining(meta_batch=MOMENTS, warm_start_lr=rate, pretrained=True, scales_first=0.0)
    fitted = fit_within(learner, tasks, how, seconds=settings.continued_seconds, warm_share=1.0, progress=False)
    own = with_spread(Nowcaster((trained_network(learner),), (1.0,)), moments, archive, settings)
    found = scores(own, moments, archive, "validation", settings.validation_tasks, settings)
    return Trained(own, fitted, rate, float(found.row()["crps"]))


def with_spread(forecaster: Nowcaster, moments: Moments, archive: Archive, settings: Settings) -> Nowcaster:
    """Return the forecaster with the spread that holds on the validation tasks."""
    tasks = archive.tasks("validation", seed=VALIDATION_SEED, **settings.continued_sizes)
    forecast = on_patches(forecaster, moments, tasks)
    some = [tasks[index] for index in range(settings.validation_tasks)]
    factors = fitted_factors([forecast(task, index) for index, task in enumerate(some)], [one.query.y for one in some])
    return forecaster.with_factors([own * new for own, new in zip(forecaster.factors, factors, strict=True)])


def scores(
    forecaster: Nowcaster, moments: Moments, archive: Archive, part: Part, count: int, settings: Settings
) -> LeadTimeScores:
    """Return the scores on tasks of the benchmark ``solar``."""
    tasks = archive.tasks(part, seed=SEEDS[part], **settings.continued_sizes)
    return score(tasks, count, {"": on_patches(forecaster, moments, tasks)}, progress=False)[""]


def on_patches(forecaster: Nowcaster, moments: Moments, tasks: MetaSolarPredictionDataset) -> Forecaster:
    """Return the forecasts of whole frames as those of a task's patches, in the units of the task."""

    @cache
    def whole(position: int) -> GaussianForecast:
        return forecaster.predict(moments.batch(position))

    def forecast(task: mp.Task, index: int) -> GaussianForecast:
        means, scales, weights = [], [], None
        for window in tasks.windows(index).query:
            frame = whole(window.start + tasks.input_len - 1)
            loc, scale = tasks.reader.decoding(window)
            height, width = tasks.reader.shape
            rows, columns = slice(window.y, window.y + height), slice(window.x, window.x + width)
            means.append((frame.means[..., rows, columns] - loc) / scale)
            scales.append(frame.scales[..., rows, columns] / scale)
            weights = frame.weights
        return GaussianForecast(torch.cat(means, 1), torch.cat(scales, 1), weights=weights)

    return forecast
