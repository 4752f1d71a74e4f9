"""From settings to tasks: frames that are opened or simulated once, their days divided, and how the network sees them.

    settings -> frames -> days to train, to validate, to test -> units (range of the training days) -> tasks

What is learned or scaled comes from the training days alone. (Which pixels are dark, where the sun's place is not
known, and the range that structural similarity is measured by are of the whole archive: neither is seen by a network.)
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
from tqdm import tqdm

from metaprior.noise import Noise
from metaprior.runs.folder import RunFolder, RunFolderError
from metaprior.runs.sources import LearnedRun, Purpose, TaskSource
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import ONE_DAY, Days, all_days, split_days
from metaprior.solar.maps.task_settings import FrameTasks, SimulatedTasks, SolarTasks
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, Units
from metaprior.solar.simulator import simulate
from metaprior.solar.value_units import IRRADIANCE

DESCRIPTION = "solar.json"
"""File of a run's folder that says what frames it is about."""
TOLD = {"units": dict, "cadence": str, "value_units": str, "long_name": str, "data_min": float, "data_max": float}
"""What it has to say besides the days, and how."""
VALIDATION_SHARE = 0.15
"""Of the days before ``train_before``."""
POOLED_WINDOWS = 32
"""Windows in a batch of the warm start."""
KEPT_BYTES = 2**29
"""Archives up to this size (as float32) are kept in memory: tasks read the same windows again and again."""
FRAMES_AT_ONCE = 64


class SolarSource(TaskSource):
    """Frames, and the days of each purpose: ``tasks`` gives tasks of them."""

    file = DESCRIPTION

    def __init__(
        self, settings: SolarTasks, frames: xr.DataArray, days: Mapping[Purpose, Days], *, progress: bool = True
    ) -> None:
        super().__init__(settings.seed)
        self.settings, self.frames, self.days, self.progress = settings, frames, days, progress

    @cached_property
    def units(self) -> Units:
        """How the network sees values."""
        settings, frames = self.settings, self.frames
        if settings.units == "clear_sky":
            check_irradiance(frames)
            return ClearSkyIndex()
        low, high = settings.data_min, settings.data_max
        if low is None or high is None:
            found = range_of(frames, self.days["train"], progress=self.progress)
            low, high = (found[0] if low is None else low), (found[1] if high is None else high)
        return ScaledValues(low, high)

    def tasks(self, purpose: Purpose, count: int | None = None) -> MetaSolarPredictionDataset:
        """Endless tasks of the days of this purpose."""
        settings = self.settings
        return self._dataset(purpose, self.seed_of(purpose), settings.k_shot, settings.k_query, settings.by)

    def pooled(self, meta_batch: int) -> MetaSolarPredictionDataset:
        """The training days without any order, for the warm start: each window of another time and place.

        ``meta_batch`` of these tasks together have about 32 windows.
        """
        windows, seed = max(2, round(POOLED_WINDOWS / meta_batch)), Noise(self.seed).fork("pooled tasks").seed
        return self._dataset("train", seed, windows // 2, windows - windows // 2, "time")

    def _dataset(
        self,
        purpose: Purpose,
        seed: int,
        k_shot: int,
        k_query: int,
        by: Literal["time", "place", "period", "place+period"],
    ) -> MetaSolarPredictionDataset:
        settings = self.settings
        return MetaSolarPredictionDataset(
            self.frames,
            self.days[purpose],
            input_len=settings.input_len,
            target_len=settings.target_len,
            k_shot=k_shot,
            k_query=k_query,
            by=by,
            patch=settings.patch or None,
            period_days=settings.period_days,
            units=self.units,
            min_elevation=settings.min_elevation,
            seed=seed,
        )

    @property
    def heading(self) -> str:  # type: ignore[override]
        """What an evaluation is in: scores by lead time are in the frames' own units."""
        return f"unseen tasks, in the network's numbers ({self.units})"

    @property
    def summary(self) -> str:  # type: ignore[override]
        """What frames a run is about."""
        days = ", ".join(f"{purpose} {part}" for purpose, part in self.days.items())
        return f"{len(self.frames)} frames of {' x '.join(map(str, self.frames.shape[1:]))} pixels; days: {days}"

    def check_description(self, run: RunFolder) -> None:
        """See ``TaskSource``."""
        if (run.path / self.file).exists():
            described_frames(run)
        super().check_description(run)

    def finish(self, end: LearnedRun) -> list[Path]:
        """Write scores by lead time and maps to look at; return the picture of the first."""
        from metaprior.solar.maps.finishing import finish_maps

        return finish_maps(self, end)

    def describe(self) -> dict[str, Any]:
        """What has to be known to forecast other frames alike, and to notice that these have changed; as JSON."""
        frames, times = self.frames, self.frames["time"].values.astype("datetime64[s]")
        return {
            "units": units_json(self.units),
            "cadence": frames.attrs["cadence"],
            "value_units": str(frames.attrs.get("units", "1")),
            "long_name": str(frames.attrs.get("long_name", frames.name)),
            "data_min": float(frames.attrs["data_min"]),
            "data_max": float(frames.attrs["data_max"]),
            "coordinates": {"latitude", "longitude"} <= set(frames.coords),
            "frames": len(frames),
            "shape": list(frames.shape[1:]),
            "first": str(times[0]),
            "last": str(times[-1]),
            "days": {purpose: [str(days.first), str(days.stop - ONE_DAY)] for purpose, days in self.days.items()},
        }


def open_source(settings: SolarTasks, *, progress: bool = True) -> SolarSource:
    """Open, or simulate, what the settings name. Small archives are read into memory."""
    if isinstance(settings, SimulatedTasks):
        frames = simulate(
            days=settings.days, size=settings.size, seed=settings.seed, start=settings.start, progress=progress
        )
    elif isinstance(settings, FrameTasks):
        frames = open_frames(
            settings.path,
            variable=settings.variable,
            cadence=settings.cadence,
            on_bad=settings.on_bad,
            value_units=settings.value_units,
            long_name=settings.long_name,
            progress=progress,
        )
        frames = frames.load() if 4 * frames.size <= KEPT_BYTES else frames
    else:
        raise TypeError(f"settings have to be FrameTasks or SimulatedTasks, got {type(settings).__name__}")
    _check_cadence(frames)
    return SolarSource(settings, frames, divided_days(settings, all_days(frames["time"].values)), progress=progress)


def _check_cadence(frames: xr.DataArray) -> None:
    """Lead times are told in minutes."""
    if cadence_of(frames.attrs["cadence"]) % np.timedelta64(1, "m"):
        raise ValueError(f"cadence {frames.attrs['cadence']!r} is no whole number of minutes; take every n-th frame")


def divided_days(settings: SolarTasks, days: Days) -> dict[Purpose, Days]:
    """The days of each purpose, with at least one day between any two."""
    if settings.train_before is None and settings.test_from is None:
        train, val, test = split_days(days)
        return {"train": train, "val": val, "test": test}
    before, start = _dates(settings)
    if not (days.first < before and start < days.stop):
        raise ValueError(
            f"train_before {before} and test_from {start} leave nothing to train on or nothing to test on: the frames "
            f"are of {days}"
        )
    train, val = split_days(Days(days.first, before), (1 - VALIDATION_SHARE, VALIDATION_SHARE))
    return {"train": train, "val": val, "test": Days(start, days.stop)}


def _dates(settings: SolarTasks) -> tuple[np.datetime64, np.datetime64]:
    """End of training and begin of testing; of one of them the other follows, a day away."""
    before, start = (
        None if text is None else np.datetime64(text, "D") for text in (settings.train_before, settings.test_from)
    )
    if before is None:
        assert start is not None
        return start - ONE_DAY, start
    return before, before + ONE_DAY if start is None else start


def check_irradiance(frames: xr.DataArray) -> None:
    """Raise unless a clear-sky index can be had of these frames."""
    source = frames.attrs.get("source", "the frames")
    if not {"latitude", "longitude"} <= set(frames.coords):
        raise ValueError(
            f'{source}: there is no latitude and longitude, which tasks.units = "clear_sky" needs; use NetCDF or Zarr '
            'with CF coordinates, or units = "scaled"'
        )
    if frames.attrs.get("units") != IRRADIANCE:
        raise ValueError(
            f'{source}: values are in {frames.attrs.get("units", "unknown units")!r}, and tasks.units = "clear_sky" is '
            f'for irradiance in {IRRADIANCE}; use units = "scaled"'
        )


def range_of(frames: xr.DataArray, days: Days, *, progress: bool = True) -> tuple[float, float]:
    """Smallest and largest finite value of these days, a few frames at a time."""
    times = frames["time"].values
    inside = np.flatnonzero((times >= days.first) & (times < days.stop))
    low, high = np.inf, -np.inf
    starts = range(0, len(inside), FRAMES_AT_ONCE)
    for start in tqdm(starts, desc="range of the training days", disable=not progress, delay=1):
        chosen = inside[start : start + FRAMES_AT_ONCE]
        values = np.asarray(frames.variable[chosen[0] : chosen[-1] + 1].values)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low < high:
        raise ValueError(f"{frames.attrs.get('source', 'the frames')}: no two different values within {days}")
    return low, high


def units_json(units: Units) -> dict[str, Any]:
    """For a file."""
    if isinstance(units, ClearSkyIndex):
        return {"kind": "clear_sky", "highest": units.highest}
    if isinstance(units, ScaledValues):
        return {"kind": "scaled", "data_min": units.data_min, "data_max": units.data_max}
    raise TypeError(f"units have to be ClearSkyIndex or ScaledValues, got {type(units).__name__}")


def units_from_json(content: Mapping[str, Any]) -> Units:
    """What ``units_json`` wrote."""
    arguments = {name: value for name, value in content.items() if name != "kind"}
    kinds: dict[str, type[ClearSkyIndex] | type[ScaledValues]] = {"clear_sky": ClearSkyIndex, "scaled": ScaledValues}
    if content.get("kind") not in kinds:
        raise ValueError(f"units are one of {', '.join(kinds)}; got {content.get('kind')!r}")
    return kinds[content["kind"]](**arguments)


def described_frames(run: RunFolder) -> dict[str, Any]:
    """Return what a run's folder says about its frames, or raise RunFolderError."""
    content = run.read_json(DESCRIPTION)
    told: dict[str, Any] = content if isinstance(content, dict) else {}
    days = told.get("days")
    wrong = [key for key, kind in TOLD.items() if not isinstance(told.get(key), kind)]
    if not isinstance(days, dict) or not all(_are_days(days.get(purpose)) for purpose in ("train", "test")):
        wrong.append("days")
    if wrong:
        raise RunFolderError(
            f"{run.path / DESCRIPTION} is damaged: it does not tell the frames of the run (missing, or of another "
            f"kind: {', '.join(wrong)}); restore it from a copy. Without one: remove it, {run.how_to_go_on}, which "
            "writes it"
        )
    return told


def _are_days(value: object) -> bool:
    """Whether these are a first and a last one."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(day, str) for day in value)
