"""Forecast maps from archives of frames: load, select, window, sample; baselines, scores, prediction, report.

    from metaprior.solar.maps import ClearSkyIndex, MetaSolarPredictionDataset, all_days, open_frames, split_days

The names below are imported on first use: they need xarray and pvlib, ``pip install 'metaprior[solar]'``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaprior.solar.maps.archives.archive import BadFramesSkipped, GapsInTime
    from metaprior.solar.maps.archives.frames import open_frames
    from metaprior.solar.maps.baselines import error_scale, persistence, smart_persistence, with_noise
    from metaprior.solar.maps.comparison import (
        PERSISTENCE,
        SMART_PERSISTENCE,
        context_of,
        of_learner,
        reference,
        score,
        with_shots,
    )
    from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
    from metaprior.solar.maps.days import Days, all_days, split_days, split_times
    from metaprior.solar.maps.forecast_file import read_forecast, write_forecast
    from metaprior.solar.maps.nowcast.forecaster import Nowcaster
    from metaprior.solar.maps.nowcast.nowcasting import Nowcast, nowcast_archive
    from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues
    from metaprior.solar.maps.windows import Window, WindowReader

MODULES = {
    "archives.archive": ("BadFramesSkipped", "GapsInTime"),
    "archives.frames": ("open_frames",),
    "baselines": ("error_scale", "persistence", "smart_persistence", "with_noise"),
    "comparison": ("PERSISTENCE", "SMART_PERSISTENCE", "context_of", "of_learner", "reference", "score", "with_shots"),
    "dataset": ("MetaSolarPredictionDataset",),
    "days": ("Days", "all_days", "split_days", "split_times"),
    "forecast_file": ("read_forecast", "write_forecast"),
    "nowcast.forecaster": ("Nowcaster",),
    "nowcast.nowcasting": ("Nowcast", "nowcast_archive"),
    "units": ("ClearSkyIndex", "ScaledValues"),
    "windows": ("Window", "WindowReader"),
}
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}

__all__ = [
    "PERSISTENCE",
    "SMART_PERSISTENCE",
    "BadFramesSkipped",
    "ClearSkyIndex",
    "Days",
    "GapsInTime",
    "MetaSolarPredictionDataset",
    "Nowcast",
    "Nowcaster",
    "ScaledValues",
    "Window",
    "WindowReader",
    "all_days",
    "context_of",
    "error_scale",
    "nowcast_archive",
    "of_learner",
    "open_frames",
    "persistence",
    "read_forecast",
    "reference",
    "score",
    "smart_persistence",
    "split_days",
    "split_times",
    "with_noise",
    "with_shots",
    "write_forecast",
]


def __getattr__(name: str) -> object:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)
