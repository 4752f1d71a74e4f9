"""What the inputs of a nowcast are worth: the same networks without one of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.result import Row
from benchmarks.worlds.products import Archive
from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.nowcast import inputs
from metaprior.solar.maps.nowcast.backtest import score_forecast
from metaprior.solar.maps.nowcast.bank import Batch
from metaprior.solar.maps.nowcast.forecaster import Nowcaster


def worth_of_inputs(prior: Nowcaster, name: str, archives: list[Archive]) -> Row:
    """Return by how many per cent the CRPS rises without each input, with the trained spread."""
    found: dict[str, list[float]] = {"all": [], **{what: [] for what in WITHOUT}}
    for archive in archives:
        for position in archive.issues.tolist():
            window = archive.moments.batch(position)
            forecasts = {"all": prior.predict(window), **{what: left(prior, window) for what, left in WITHOUT.items()}}
            for what, forecast in forecasts.items():
                found[what].append(float(score_forecast(forecast, window.targets).crps.mean()) / archive.unit)
    whole = float(np.nanmean(found.pop("all")))
    rises = {f"without_{what}": 100 * (float(np.nanmean(each)) / whole - 1) for what, each in found.items()}
    return {"part": "worth of inputs", "product": name, **rises}


def _without_sun(prior: Nowcaster, window: Batch) -> GaussianForecast:
    unknown = torch.full_like(window.known.sine, torch.nan)
    return prior.predict(window._replace(known=window.known._replace(sine=unknown)))


def _without_days(prior: Nowcaster, window: Batch) -> GaussianForecast:
    sine, typical, darkest = window.known
    unknown = (torch.full_like(maps, torch.nan) for maps in (typical, darkest))
    return prior.predict(window._replace(known=inputs.Known(sine, *unknown)))


def _without_motion(prior: Nowcaster, window: Batch) -> GaussianForecast:
    with _still_air():
        return prior.predict(window)


@contextmanager
def _still_air() -> Iterator[None]:
    def still(frames: Tensor) -> Tensor:
        return frames.new_zeros(len(frames), 2, *frames.shape[-2:])

    with mock.patch.object(inputs, "estimate_flow", still):
        yield


WITHOUT: dict[str, Callable[[Nowcaster, Batch], GaussianForecast]] = {
    "motion": _without_motion,
    "sun": _without_sun,
    "earlier_days": _without_days,
}
