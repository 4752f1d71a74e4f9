"""Settings of tasks from frames: the keys of ``[tasks]``, checked without opening anything."""

import math
import shlex
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from metaprior.checks import check_counts
from metaprior.noise import Noise
from metaprior.runs.config import Choice
from metaprior.runs.sources import TaskSettings
from metaprior.tasks.task import Examples, Task

if TYPE_CHECKING:
    import xarray as xr

    from metaprior.solar.maps.source import SolarSource

NETWORKS = ("unet", "bayesian_unet")
SCALES = {"gaussian": False, "heteroscedastic": True, "crps": True}
"""Whether a likelihood needs scales that the network outputs."""
KEPT_BYTES = 2**29
"""Archives up to this size (as float32) are kept in memory."""


@dataclass(frozen=True, kw_only=True)
class SolarTasks(TaskSettings):
    """Settings that do not depend on where frames come from; the others are those of ``MetaSolarPredictionDataset``.

    Args:
        patch: Pixels along each side; 0 is the whole frame.
        min_elevation: Lowest sun, in degrees, of a window in daylight, where coordinates are known.
        units: What the network sees: "scaled" values, or the "clear_sky" index (irradiance with coordinates).
        data_min, data_max: Values that are scaled to -1 and 1; the default is the range of the training days.
        train_before, test_from: Days (UTC) that end training and begin testing, with at least one day between that
            belongs to neither; either follows from the other. Validation has the last 15 % of the days before
            ``train_before``. Without both, 70 % of the days are for training, 15 % for validation, 15 % for testing. If
            there are too few days for that, hours in daylight are divided in the same way.
    """

    input_len: int = 4
    target_len: int = 4
    k_shot: int = 5
    k_query: int = 10
    by: Literal["time", "place", "period", "place+period"] = "place+period"
    patch: int = 32
    period_days: int = 3
    min_elevation: float = 10.0
    units: Literal["scaled", "clear_sky"] = "scaled"
    data_min: float | None = None
    data_max: float | None = None
    train_before: str | None = None
    test_from: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        counts = ("input_len", "target_len", "k_shot", "k_query", "period_days")
        check_counts(**{name: getattr(self, name) for name in counts})
        if self.patch < 0:
            raise ValueError(f"patch must be a number of pixels, or 0 for the whole frame, got {self.patch}")
        if not 0 <= self.min_elevation < 90:
            raise ValueError(f"min_elevation must be 0 to 90 degrees, got {self.min_elevation}")
        given = {name: getattr(self, name) for name in ("data_min", "data_max") if getattr(self, name) is not None}
        for name, value in given.items():
            if self.units == "clear_sky":
                raise ValueError(f'{name} must be left out unless units = "scaled"; the clear-sky index needs no range')
            if not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        if len(given) == 2 and not given["data_min"] < given["data_max"]:
            raise ValueError(f"data_min must be less than data_max, got {self.data_min} and {self.data_max}")
        check_dates(self.train_before, self.test_from)

    @property
    def known(self) -> int:
        """Number of input channels after the frames, which state what is known about the target times."""
        return self.target_len if self.units == "clear_sky" else 0

    def open(self, *, progress: bool) -> "SolarSource":
        """Open or simulate the frames, which needs the extra ``solar``."""
        from metaprior.solar.maps.source import SolarSource

        return SolarSource(self, self.frames(progress=progress), progress=progress)

    def frames(self, *, progress: bool) -> "xr.DataArray":
        """Return the frames, opened or simulated."""
        raise NotImplementedError

    def misfits(self, model: Choice, likelihood: Choice) -> list[str]:
        """Return what does not fit network and likelihood, one line each, naming both keys."""
        if model.kind not in NETWORKS:
            return [f"model.kind is {model.kind!r}; these tasks are maps, for {' or '.join(NETWORKS)}"]
        given, least = model.arguments, least_pixels(model)
        lines = [
            f"model.{key} is {given[key]}, tasks.{key} is {getattr(self, key)}; they must be equal"
            for key in ("input_len", "target_len")
            if given[key] != getattr(self, key)
        ]
        if given["known"] != self.known:
            why = "one channel for each target frame" if self.known else "nothing is known in advance"
            lines.append(
                f'model.known is {given["known"]}, but with tasks.units "{self.units}" and tasks.target_len '
                f"{self.target_len} it must be {self.known} ({why})"
            )
        if 0 < self.patch < least:
            levels = f"model.levels {given['levels']} needs at least {least}"
            lines.append(f"tasks.patch is {self.patch} pixels, but {levels}")
        needed = SCALES.get(likelihood.kind)
        if needed is None:
            lines.append(f"likelihood.kind is {likelihood.kind!r}; frames are real numbers, for {', '.join(SCALES)}")
        elif given["scales"] is not needed:
            needs = f"but likelihood.kind {likelihood.kind!r} needs {needed}"
            lines.append(f"model.scales is {given['scales']}, {needs}".lower())
        return lines

    def next_commands(self, run: Path) -> list[str]:
        """Return the command that writes the page of a run."""
        return [shlex.join(["metaprior", "report", str(run)])]

    def task_of_the_size(self, model: Choice) -> Task | None:
        """Return a task of noise with the shapes of the real ones; None for whole frames, whose size is not known."""
        size = self.patch or getattr(self, "size", 0)
        if not size:
            return None
        noise = Noise(self.seed).fork("planning")

        def examples(count: int, which: str) -> Examples:
            inputs = torch.empty(count, self.input_len + self.known, size, size)
            targets = torch.empty(count, self.target_len, size, size)
            return Examples(noise.fork(f"{which} x").normal(inputs), noise.fork(f"{which} y").normal(targets))

        return Task(examples(self.k_shot, "support"), examples(self.k_query, "query"), "noise of the size")


def least_pixels(model: Choice) -> int:
    """Return the least pixels along each side for a network that halves them at every level."""
    return int(2 ** model.arguments["levels"])


@dataclass(frozen=True, kw_only=True)
class FrameTasks(SolarTasks):
    """Tasks from an archive of frames, which is opened by ``open_frames`` with the settings below."""

    path: str
    variable: str | None = None
    cadence: str = "auto"
    time_pattern: str | None = None
    on_bad: Literal["raise", "skip"] = "raise"
    missing: Literal["bad", "keep"] = "bad"
    value_units: str | None = None
    long_name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, example in (("value_units", "W m-2"), ("long_name", "brightness of the sky")):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise ValueError(
                    f'{name} must be a text such as "{example}", got {value!r}. Leave it out if it is not known'
                )

    def frames(self, *, progress: bool) -> "xr.DataArray":
        """Open the archive."""
        names = ("variable", "cadence", "time_pattern", "on_bad", "missing", "value_units", "long_name")
        return opened_archive(self.path, progress=progress, **{name: getattr(self, name) for name in names})


def opened_archive(path: str, *, progress: bool, **how: Any) -> "xr.DataArray":
    """Open an archive; small ones are read into memory, because tasks read the same windows repeatedly.

    Args:
        path: Where it is.
        progress: Whether to show a bar.
        how: Other arguments of ``open_frames``.
    """
    from metaprior.solar.maps.archives.frames import open_frames

    try:
        frames = open_frames(path, progress=progress, **how)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}. Give yours by --set tasks.path=PATH, or make some: metaprior simulate --out {path}"
        ) from None
    return frames.load() if 4 * frames.size <= KEPT_BYTES else frames


@dataclass(frozen=True, kw_only=True)
class SimulatedTasks(SolarTasks):
    """Tasks from the simulator: ``days`` of maps of ``size`` x ``size`` pixels, beginning with the day ``start``.

    The seed is that of the weather and of the tasks. Frames are simulated in memory when the run begins.
    """

    days: int = 60
    size: int = 96
    start: str = "2025-03-01"
    units: Literal["scaled", "clear_sky"] = "clear_sky"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(days=self.days, size=self.size)
        _check_day("start", self.start)
        if self.patch > self.size:
            raise ValueError(f"patch must be at most size ({self.size}), or 0 for the whole frame, got {self.patch}")

    def frames(self, *, progress: bool) -> "xr.DataArray":
        """Simulate the frames."""
        from metaprior.solar.simulator import simulate

        return simulate(days=self.days, size=self.size, seed=self.seed, start=self.start, progress=progress)


def check_dates(train_before: str | None, test_from: str | None) -> None:
    """Raise unless each of the dates that divide an archive is a day or left out, and the second is the later one."""
    _check_day("train_before", train_before)
    _check_day("test_from", test_from)
    if train_before and test_from and not train_before < test_from:
        raise ValueError(
            "test_from must be at least a day after train_before, so that no windows of the two are close, got "
            f"{test_from} and {train_before}"
        )


def _check_day(name: str, day: str | None) -> None:
    """Raise unless a day is left out or written as 2026-02-10; 20260210 would not sort beside it."""
    try:
        valid = day is None or date.fromisoformat(day).isoformat() == day
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"{name} must be a day such as 2026-02-10, got {day!r}")


KINDS: dict[str, type[SolarTasks]] = {"frames": FrameTasks, "simulated": SimulatedTasks}
"""Settings by their name in a configuration, ``tasks.kind``."""
