"""The source of a run's tasks: frames that are opened or simulated once, divided by days.

    settings -> frames -> days to train, to validate, to test -> units (range of the training days) -> tasks

Everything that is learned or scaled comes from the training days alone. The range of the whole archive decides only
which pixels are dark, where coordinates are not known, and scales structural similarity: no network sees it.
"""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from metaprior.files import named_after
from metaprior.noise import Noise
from metaprior.progress import track
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.sources import LearnedRun, Purpose, TaskSource
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import Days, divided
from metaprior.solar.maps.task_settings import FrameTasks, SolarTasks
from metaprior.solar.maps.units import (
    ClearSkyIndex,
    ScaledValues,
    Units,
    check_clear_sky,
    has_coordinates,
    units_to_json,
)
from metaprior.solar.maps.windows import UnusableWindow, Window, WindowReader, times_in_daylight

DESCRIPTION = "solar.json"
"""File of a run's folder that describes its frames."""
DESCRIBED = {"units": dict, "cadence": str, "value_units": str, "long_name": str, "data_min": float, "data_max": float}
"""Keys of that file, besides the days, and their types."""
POOLED_WINDOWS = 32
"""Windows in a batch of the warm start."""
FRAMES_AT_ONCE = 64
MOST_TRIED = 500
"""Windows, the latest first, that are tried for a forecast."""


class SolarSource(TaskSource):
    """Frames and the days of each purpose, from which tasks are drawn."""

    file = DESCRIPTION

    def __init__(self, settings: SolarTasks, frames: xr.DataArray, *, progress: bool = True) -> None:
        super().__init__(settings.seed)
        if cadence_of(frames.attrs["cadence"]) % np.timedelta64(1, "m"):
            raise ValueError(
                f"cadence must be a whole number of minutes, as lead times are, got {frames.attrs['cadence']!r}. Take "
                "every n-th frame"
            )
        self.settings, self.frames, self.progress = settings, frames, progress
        self.days = self._divided()

    def _divided(self) -> dict[str, Days]:
        """Return the days of each purpose; if they are few, spans of hours with frames in daylight."""
        settings, frames = self.settings, self.frames
        length, dates = settings.input_len + settings.target_len, (settings.train_before, settings.test_from)
        return divided(frames["time"].values, lambda: times_in_daylight(frames, settings.min_elevation), length, *dates)

    @cached_property
    def units(self) -> Units:
        """How the network sees values."""
        settings, frames = self.settings, self.frames
        if settings.units == "clear_sky":
            check_clear_sky(frames)
            return ClearSkyIndex()
        low, high = settings.data_min, settings.data_max
        if low is None or high is None:
            least, largest = range_of(frames, self.days["train"], progress=self.progress)
            low, high = (least if low is None else low), (largest if high is None else high)
        return ScaledValues(low, high)

    def tasks(self, purpose: Purpose, count: int | None = None) -> MetaSolarPredictionDataset:
        """Return endless tasks of the days of this purpose."""
        settings, names = self.settings, ("input_len", "target_len", "k_shot", "k_query", "by", "period_days")
        return MetaSolarPredictionDataset(
            self.frames,
            self.days[purpose],
            **{name: getattr(settings, name) for name in names},
            patch=settings.patch or None,
            units=self.units,
            min_elevation=settings.min_elevation,
            seed=self.seed_of(purpose),
        )

    def pooled(self, meta_batch: int) -> MetaSolarPredictionDataset:
        """Return tasks of the training days for the warm start, in which each window has a random time and place.

        ``meta_batch`` of these tasks have about 32 windows together.
        """
        windows, seed = max(2, round(POOLED_WINDOWS / meta_batch)), Noise(self.seed).fork("pooled tasks").seed
        k_shot, k_query = windows // 2, windows - windows // 2
        return replace(self.tasks("train"), k_shot=k_shot, k_query=k_query, by="time", seed=seed)

    @property
    def heading(self) -> str:  # type: ignore[override]
        """Heading of an evaluation, whose numbers are in the network's units."""
        return f"unseen tasks, in the network's units ({self.units})"

    @property
    def summary(self) -> str:  # type: ignore[override]
        """Number, size and days of the frames."""
        days = ", ".join(f"{purpose} {part}" for purpose, part in self.days.items())
        return f"{len(self.frames)} frames of {' x '.join(map(str, self.frames.shape[1:]))} pixels; days: {days}"

    def check_description(self, run: RunFolder) -> None:
        """Raise ``RunFolderError`` if the run was begun with other frames, or its description is damaged."""
        if (run.path / self.file).exists():
            described_frames(run)
        super().check_description(run)

    def finish(self, end: LearnedRun) -> list[Path]:
        """Write scores by lead time and example forecasts; return the picture of the first."""
        from metaprior.solar.maps.run_scores import finish_maps

        return finish_maps(self, end)

    def next_commands(self, run: Path) -> list[str]:
        """Return the command that forecasts from the latest frames of the archive that are followed by daylight."""
        if not isinstance(self.settings, FrameTasks):
            return []
        path, at = self.settings.path, latest_issue(self.tasks("test").reader, self.settings.min_elevation)
        if at is None:
            return []
        options = ["--support", path, "--inputs", path, "--at", at, "--out", named_after(run, "forecast.nc")]
        return [shlex.join(["metaprior", "predict", str(run), *options])]

    def describe(self) -> dict[str, Any]:
        """Return (JSON) what forecasts of other frames need, and what shows that the frames have changed."""
        return {"units": units_to_json(self.units), **described_archive(self.frames, self.days)}


def described_archive(frames: xr.DataArray, days: Mapping[str, Days]) -> dict[str, Any]:
    """Return facts (JSON) about frames and their division, which show whether either has changed."""
    times = frames["time"].values.astype("datetime64[s]")
    return {
        "cadence": frames.attrs["cadence"],
        "value_units": str(frames.attrs.get("units", "1")),
        "long_name": str(frames.attrs.get("long_name", frames.name)),
        "data_min": float(frames.attrs["data_min"]),
        "data_max": float(frames.attrs["data_max"]),
        "coordinates": has_coordinates(frames),
        "frames": len(frames),
        "shape": list(frames.shape[1:]),
        "first": str(times[0]),
        "last": str(times[-1]),
        "days": {purpose: [str(part.first), str(part.last)] for purpose, part in days.items()},
    }


def latest_issue(reader: WindowReader, min_elevation: float) -> str | None:
    """Return the latest time at which whole frames can be forecast, as ``metaprior predict --at`` takes it."""
    whole = replace(reader, patch=None)
    for start in whole.starts()[::-1][:MOST_TRIED].tolist():
        with suppress(UnusableWindow):
            whole.read_in_daylight(Window(start, 0, 0), min_elevation, whole.input_len)
            return str(whole.issued(Window(start, 0, 0)).astype("datetime64[m]"))
    return None


def range_of(frames: xr.DataArray, days: Days, *, progress: bool = True) -> tuple[float, float]:
    """Return the smallest and largest finite value of these days, reading a few frames at a time."""
    times = frames["time"].values
    inside = np.flatnonzero((times >= days.first) & (times < days.stop))
    low, high = np.inf, -np.inf
    starts = range(0, len(inside), FRAMES_AT_ONCE)
    for start in track(starts, "range of the training days", unit="parts", show=progress):
        chosen = inside[start : start + FRAMES_AT_ONCE]
        values = np.asarray(frames.variable[chosen[0] : chosen[-1] + 1].values)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low < high:
        raise ValueError(f"{frames.attrs.get('source', 'the frames')}: all values within {days} are equal or missing")
    return low, high


def described_frames(run: RunFolder) -> dict[str, Any]:
    """Return the description of a run's frames; raises RunFolderError if it is damaged."""
    content = run.read_json(DESCRIPTION)
    described: dict[str, Any] = content if isinstance(content, dict) else {}
    days = described.get("days")
    wrong = [key for key, kind in DESCRIBED.items() if not isinstance(described.get(key), kind)]
    pairs = [days.get(purpose) for purpose in ("train", "test")] if isinstance(days, dict) else [None]
    if not all(isinstance(pair, list) and [type(day) for day in pair] == [str, str] for pair in pairs):
        wrong.append("days")
    if wrong:
        raise RunFolderError(
            f"{run.path / DESCRIPTION} is damaged: it must describe the frames of the run (missing or invalid: "
            f"{', '.join(wrong)}). Restore it from a copy. Without one: remove it, {run.how_to_go_on}, which writes it"
        )
    return described
