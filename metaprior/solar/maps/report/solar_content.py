"""From scores and forecasts to the content of a page: rows, reliability, story and maps."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.comparison import Forecaster
from metaprior.solar.maps.context import Context, context_of
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.report.page.content import Maps, PageContent
from metaprior.solar.maps.report.solar_story import StoryFacts, story
from metaprior.solar.scores.lead_scores import LeadTimeScores
from metaprior.solar.value_units import units_or_words
from metaprior.tasks.task import Task
from metaprior.text_table import Row

__all__ = ["StoryFacts", "maps_of", "page_content", "score_rows", "units_text"]

SHOWN_UNITS = {"W m-2": "W/m²", "W/m2": "W/m²"}


def page_content(
    *,
    title: str,
    ours: str,
    scores: Mapping[str, LeadTimeScores],
    facts: StoryFacts,
    units: str,
    learning_curve: Sequence[Row] = (),
    maps: Sequence[Maps] = (),
    settings: Mapping[str, object] | None = None,
) -> PageContent:
    """A page about ``ours``, one of the methods in ``scores``, beside the others, which have scored the same tasks."""
    for what, name in (("ours", ours), ("rival", facts.rival), ("unadapted", facts.unadapted)):
        if name is not None and name not in scores:
            raise ValueError(f"{what} is {name!r}, which has no scores; there are {', '.join(scores)}")
    return PageContent(
        title=title,
        story=story(ours, scores, facts),
        units=units,
        ours=ours,
        scores=score_rows(scores),
        reliability={name: one.reliability() for name, one in scores.items() if _has_spread(one)},
        learning_curve=list(learning_curve),
        maps=list(maps),
        settings=dict(settings or {}),
    )


def score_rows(scores: Mapping[str, LeadTimeScores]) -> list[Row]:
    """All methods' measures, a row for each method and lead time."""
    return [
        {"method": method, "lead_minutes": row["lead"], **{name: row[name] for name in row if name != "lead"}}
        for method, one in scores.items()
        for row in one.rows()
    ]


def _has_spread(scores: LeadTimeScores) -> bool:
    return "coverage_90" in scores.rows()[0]


def units_text(units: str) -> str:
    """Units of an archive as people write them, and never nothing: texts go on with "in" and the units."""
    return units_or_words(SHOWN_UNITS.get(units, units))


def maps_of(dataset: MetaSolarPredictionDataset, number: int, forecaster: Forecaster, *, window: int = 0) -> Maps:
    """The forecast of one query window of the task with this number, in the frames' own units.

    Its samples are the mean plus std times the standardised errors of the same forecaster in the support windows, one
    for each: errors of neighbouring pixels and lead times then go together as they do in this task, of which the
    forecast itself, pixel by pixel, says nothing.
    """
    task, context = dataset[number], context_of(dataset.reader, dataset.windows(number).query)
    forecast = context.decoded(forecaster(task, number))
    mean, std = forecast.mean[window], forecast.std[window]
    place = dataset.reader.place(context.windows[window])
    return Maps(
        name=_name(dataset, context, window, task),
        issued=str(context.issued[window].astype("datetime64[s]")),
        cadence_minutes=int(cadence_of(dataset.frames.attrs["cadence"]) / np.timedelta64(1, "m")),
        target=context.targets[window].numpy(),
        mean=mean.numpy(),
        std=std.numpy(),
        samples=(mean + std * _past_errors(task, forecaster, number)).numpy(),
        inputs=context.inputs[window].numpy(),
        units=units_text(str(dataset.frames.attrs.get("units", ""))),
        latitude=place.latitude,
        longitude=place.longitude,
    )


def _past_errors(task: Task, forecaster: Forecaster, number: int) -> Tensor:
    """(K, L, H, W): standardised, the same in the network's numbers as in any units."""
    forecast: GaussianForecast = forecaster(Task(task.support, task.support, task.name), number)
    errors: Tensor = (task.support.y - forecast.mean) / forecast.std
    return errors.detach()


def _name(dataset: MetaSolarPredictionDataset, context: Context, window: int, task: Task) -> str:
    """Where it is, in degrees if they are known."""
    place = dataset.reader.place(context.windows[window])
    if place.latitude is None or place.longitude is None:
        return task.name
    y, x = float(np.mean(place.latitude)), float(np.mean(place.longitude))
    return f"{abs(y):.1f}° {'N' if y >= 0 else 'S'}, {abs(x):.1f}° {'E' if x >= 0 else 'W'}"
