"""Settings of tasks from windows as the network of nowcasts sees them: keys of ``[tasks]``; nothing is opened here."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from metaprior.checks import check_counts
from metaprior.files import named_after
from metaprior.noise import Noise
from metaprior.runs.config import Choice
from metaprior.runs.sources import TaskSettings
from metaprior.solar.maps.nowcast.bank import COARSE, SIZE
from metaprior.solar.maps.nowcast.inputs import CHANNELS, LEADS
from metaprior.solar.maps.task_settings import check_dates, opened_archive
from metaprior.tasks.task import Examples, Task

if TYPE_CHECKING:
    import xarray as xr

    from metaprior.solar.maps.nowcast.source import ArchiveSource, WorldSource

LEAST_PATCH = 16
"""Pixels along each side that show motion."""
KIND = "nowcast"
"""Kind of the network and of the likelihood that these tasks are for."""


@dataclass(frozen=True, kw_only=True)
class WindowSettings(TaskSettings):
    """Settings that archives and simulated worlds have in common.

    Args:
        k_shot, k_query: Windows to adapt to, and later ones to forecast.
        patch: Pixels of a window along each side; 0 is the whole frame. Motion is estimated before it is cut out.
        crops: Windows that are cut out of the frames of one moment, at places of their own.
    """

    commands_of_several: ClassVar[bool] = True
    k_shot: int = 4
    k_query: int = 8
    patch: int = 80
    crops: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(**{name: getattr(self, name) for name in ("k_shot", "k_query", "crops")})
        if self.patch and self.patch < LEAST_PATCH:
            raise ValueError(f"patch must be at least {LEAST_PATCH} pixels, or 0 for the whole frame, got {self.patch}")

    def misfits(self, model: Choice, likelihood: Choice) -> list[str]:
        """Return what does not fit network and likelihood, one line each."""
        named = {"model": model.kind, "likelihood": likelihood.kind}
        return [f"{key}.kind is {own!r}; these tasks need {KIND!r}" for key, own in named.items() if own != KIND]

    def task_of_the_size(self, model: Choice) -> Task | None:
        """Return a task of noise with the shapes of the real ones; None for whole frames, whose size is not known."""
        if not self.patch:
            return None
        noise = Noise(self.seed).fork("planning")

        def examples(count: int, which: str) -> Examples:
            x, y = (torch.empty(count, channels, self.patch, self.patch) for channels in (CHANNELS, LEADS))
            return Examples(noise.fork(f"{which} x").normal(x), noise.fork(f"{which} y").normal(y))

        return Task(examples(self.k_shot, "support"), examples(self.k_query, "query"), "noise of the size")


def command_of(archive: str, run: Path) -> str:
    """Return the command that forecasts an archive with the network of a run."""
    out = named_after(run, "forecast.nc")
    return shlex.join(["metaprior", "nowcast", archive, "--prior", str(run), "--out", out])


@dataclass(frozen=True, kw_only=True)
class NowcastTasks(WindowSettings):
    """Tasks from an archive of any product, which is opened by ``open_frames``.

    Args:
        path: The archive.
        variable, cadence, time_pattern, on_bad, missing, value_units: See ``open_frames``.
        train_before, test_from: Days (UTC) that divide the archive, as for ``kind = "frames"``.
    """

    path: str
    variable: str | None = None
    cadence: str = "auto"
    time_pattern: str | None = None
    on_bad: Literal["raise", "skip"] = "raise"
    missing: Literal["bad", "keep"] = "keep"
    value_units: str | None = None
    train_before: str | None = None
    test_from: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dates(self.train_before, self.test_from)

    def open(self, *, progress: bool) -> "ArchiveSource":
        """Open the archive, which needs the extra ``solar``."""
        from metaprior.solar.maps.nowcast.source import ArchiveSource

        return ArchiveSource(self, self.frames(progress=progress))

    def frames(self, *, progress: bool) -> "xr.DataArray":
        """Open the frames."""
        names = ("variable", "cadence", "time_pattern", "on_bad", "missing", "value_units")
        return opened_archive(self.path, progress=progress, **{name: getattr(self, name) for name in names})

    def next_commands(self, run: Path) -> list[str]:
        """Return the command that forecasts the archive with the run's network."""
        return [command_of(self.path, run)]


@dataclass(frozen=True, kw_only=True)
class WorldsTasks(WindowSettings):
    """Tasks from simulated worlds; each task is of a world of its own, which is drawn when it is asked for.

    Args:
        bank: Folder of worlds that were drawn before (``Bank.draw``). Windows to train on are taken from it, each of
            any of the worlds, which saves the time of drawing; ``crops`` plays no part there.
    """

    bank: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch > SIZE:
            raise ValueError(f"patch must be at most {SIZE}, the pixels of a world, or 0 for all, got {self.patch}")
        if self.bank is not None and self.patch % COARSE:
            raise ValueError(f"patch must be a multiple of {COARSE} with a bank, got {self.patch}")

    def open(self, *, progress: bool) -> "WorldSource":
        """Prepare to draw worlds, which needs the extra ``solar``."""
        from metaprior.solar.maps.nowcast.source import WorldSource

        return WorldSource(self)

    def next_commands(self, run: Path) -> list[str]:
        """Return the command that forecasts an archive with the run's network."""
        return [command_of("archive.nc", run)]
