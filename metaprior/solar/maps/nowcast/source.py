"""Windows of archives and of simulated worlds as tasks, each in the units that its own frames give.

    archive or world -> moments of the days of a purpose -> what was known at each, prepared -> windows cut out -> tasks

A window's inputs and targets are those of ``inputs.prepare``: values are centred and scaled by the frames themselves,
so archives in different units and cadences train one network. Targets that are missing are NaN.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from metaprior.noise import Noise, task_generator
from metaprior.runs.sources import Purpose, TaskSource
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.dataset import EARLIEST_CUT, LATEST_CUT
from metaprior.solar.maps.days import Days, divided
from metaprior.solar.maps.nowcast.adapting import Learned, learned_from
from metaprior.solar.maps.nowcast.bank import DAYS, FRAMES, LENGTH, SIZE, Bank
from metaprior.solar.maps.nowcast.inputs import LEADS
from metaprior.solar.maps.nowcast.moments import STEPS, Moments, Rows
from metaprior.solar.maps.nowcast.task_settings import NowcastTasks, WindowSettings, WorldsTasks
from metaprior.solar.maps.source import described_archive
from metaprior.solar.simulator.worlds import draw_world
from metaprior.tasks.task import Examples, Task, Tasks, check_index
from metaprior.text_table import counted

Positions = NDArray[np.int64]
S = TypeVar("S", bound=WindowSettings)
POOLED_WINDOWS = 16
"""Windows in a batch of the warm start."""
REGION = 256
"""Pixels along each side of the part of larger frames in which motion is estimated; a forecast takes up to 512."""
ATTEMPTS = 100
"""Divisions of the moments that are tried for a task before an error is raised."""
PLACES, LEAST_CONTRAST = 10, 0.2
"""Places that are tried for a window, until it shows something: least standard deviation of its last frame, in units of
the flow's error."""
HEADING = "unseen windows, in units of the error of their own optical flow"


@dataclass(frozen=True, eq=False)
class WindowTasks:
    """Endless tasks from the windows of one archive.

    Args:
        moments: The archive.
        positions: The moments at which forecasts are issued, in the order of time.
        earlier: Those that support sets are drawn from, as far as they are over before the first query window begins.
        settings: Numbers and sizes of windows.
        seed: Task i is a function of it and of i.
        pooled: Whether support and query sets are of the same moments instead, as the warm start has them.
    """

    thread_safe: ClassVar[bool] = True
    moments: Moments
    positions: Positions
    earlier: Positions
    settings: WindowSettings
    seed: int
    pooled: bool = False

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        check_index(index)
        generator, settings = task_generator("nowcast tasks", self.seed, index), self.settings
        k_shot, k_query = settings.k_shot, settings.k_query
        name = f"task {index} of {self.moments.source}"
        if self.pooled:
            both = self._examples(self._lit(self.positions, k_shot + k_query, generator), k_shot + k_query, generator)
            return Task.split(*both, k_shot, name)
        early, late = self._before_and_after(generator)
        return Task(self._examples(early, k_shot, generator), self._examples(late, k_query, generator), name)

    def _before_and_after(self, generator: torch.Generator) -> tuple[Positions, Positions]:
        """Return moments of the support set, and later ones that share no frame with them."""
        settings, moments = self.settings, self.moments
        for _ in range(ATTEMPTS):
            share = EARLIEST_CUT + (LATEST_CUT - EARLIEST_CUT) * float(torch.rand((), generator=generator))
            after = self.positions[round(share * len(self.positions)) :]
            over = moments.times[self.earlier] + LENGTH * moments.step <= moments.times[after[0]]
            early = self._lit(self.earlier[over], settings.k_shot, generator)
            late = self._lit(after, settings.k_query, generator)
            if len(early) and len(late):
                return early, late
        raise self._nothing_to_see()

    def _lit(self, positions: Positions, windows: int, generator: torch.Generator) -> Positions:
        """Return random moments that show something, as many as so many windows are cut from, if there are."""
        order = torch.randperm(len(positions), generator=generator).tolist()
        lit = (position for position in positions[order].tolist() if self.moments.has_structure(position))
        return np.array(list(islice(lit, math.ceil(windows / self.settings.crops))), np.int64)

    def _nothing_to_see(self) -> ValueError:
        return ValueError(
            f"{self.moments.source}: a task needs windows of {LENGTH} frames that show something, and later ones, got "
            f"none among {counted(len(self.positions), 'moment')}. Is it always night, or are values missing "
            "everywhere? Try other days (train_before, test_from) or a longer archive"
        )

    def _examples(self, positions: Positions, count: int, generator: torch.Generator) -> Examples:
        """Return windows of these moments; where moments are fewer than asked for, they are used again."""
        if not len(positions):
            raise self._nothing_to_see()
        wanted = islice(cycle(positions.tolist()), math.ceil(count / self.settings.crops))
        regions = (self._region(position, generator) for position in wanted)
        several = chain.from_iterable(repeat(region, self.settings.crops) for region in regions)
        windows = [_crop(region, self.settings.patch, generator) for region in islice(several, count)]
        return Examples(torch.cat([one.x for one in windows]), torch.cat([one.targets for one in windows]))

    def _region(self, position: int, generator: torch.Generator) -> Learned:
        """Return what the network sees of a moment; of large frames, in a random part of them."""
        size = max(REGION, self.settings.patch)
        if not self.settings.patch or max(self.moments.shape) <= size:
            return learned_from([self.moments.batch(position)])[0]
        part = Rows(*(_span(length, size, generator) for length in self.moments.shape))
        return learned_from([replace(self.moments, part=part).batch(position)])[0]


def _span(length: int, size: int, generator: torch.Generator) -> slice:
    """Return a random part of so many pixels, or all of fewer."""
    start = int(torch.randint(max(length - size, 0) + 1, (), generator=generator))
    return slice(start, start + size)


def _crop(region: Learned, patch: int, generator: torch.Generator) -> Learned:
    """Return a random patch of a region, one that shows something and has targets if there is."""
    cut = region
    for _ in range(PLACES if patch else 0):
        rows, columns = (_span(length, patch, generator) for length in region.x.shape[-2:])
        cut = Learned(*(part[..., rows, columns] for part in region))
        last = cut.x[:, 0]
        if float(last.std()) > LEAST_CONTRAST and bool(cut.targets.isfinite().any()):
            break
    return cut


def positions_within(moments: Moments, days: Days) -> Positions:
    """Return the moments of an archive all of whose frames are of these days; raise ValueError if there is none."""
    positions = moments.whole()
    first, last = (moments.times[positions] + step * moments.step for step in (STEPS[0], LEADS))
    inside = positions[(first >= days.first) & (last < days.stop)]
    if not len(inside):
        raise ValueError(
            f"{moments.source}: there must be {LENGTH} frames in a row, {moments.step_text} apart, within {days}, got "
            "none. Try other days (train_before, test_from) or another cadence"
        )
    return inside


class ArchiveSource(TaskSource):
    """The moments of an archive, divided by days."""

    heading = HEADING

    def __init__(self, settings: NowcastTasks, frames: xr.DataArray) -> None:
        super().__init__(settings.seed)
        if settings.patch > min(frames.shape[1:]):
            raise ValueError(f"patch must fit into frames of {frames.shape[1:]} pixels, got {settings.patch}")
        self.settings, self.moments = settings, Moments(frames)
        times = self.moments.times
        self.days = divided(times, self._lit_times, LENGTH, settings.train_before, settings.test_from)
        self.positions = {purpose: positions_within(self.moments, days) for purpose, days in self.days.items()}

    def _lit_times(self) -> Times:
        times = self.moments.times
        return times[[self.moments.has_structure(position) for position in range(len(times))]]

    @property
    def summary(self) -> str:  # type: ignore[override]
        """Number, size and days of the frames."""
        frames, days = self.moments.frames, ", ".join(f"{purpose} {part}" for purpose, part in self.days.items())
        size = " x ".join(map(str, frames.shape[1:]))
        return f"{self.moments.source}: {len(frames)} frames of {size} pixels, {self.moments.step_text} apart; {days}"

    def tasks(self, purpose: Purpose, count: int | None = None) -> WindowTasks:
        """Return endless tasks of the days of this purpose; to validate and to test, support sets may be older."""
        positions = self.positions[purpose]
        earlier = positions if purpose == "train" else self.moments.whole()
        return WindowTasks(self.moments, positions, earlier, self.settings, self.seed_of(purpose))

    def pooled(self, meta_batch: int) -> WindowTasks:
        """Return tasks of the training days for the warm start, of which ``meta_batch`` have 16 windows together."""
        seed, positions = Noise(self.seed).fork("pooled tasks").seed, self.positions["train"]
        settings = pooled_settings(self.settings, meta_batch)
        return WindowTasks(self.moments, positions, positions, settings, seed, pooled=True)

    def describe(self) -> dict[str, Any]:
        """Return facts that show whether the archive or its division has changed."""
        return described_archive(self.moments.frames, self.days)


def pooled_settings(settings: S, meta_batch: int) -> S:
    """Return settings whose tasks have a share of the windows of a pooled batch, at least two."""
    windows = max(2, round(POOLED_WINDOWS / meta_batch))
    return replace(settings, k_shot=windows // 2, k_query=windows - windows // 2)


@dataclass(frozen=True)
class WorldWindows:
    """Endless tasks, each from a simulated world of its own."""

    thread_safe: ClassVar[bool] = True
    settings: WorldsTasks
    seed: int
    pooled: bool = False

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        check_index(index)
        generator = task_generator("worlds", self.seed, index)
        number = int(torch.randint(2**62, (), generator=generator))
        moments = Moments(draw_world(number, size=SIZE, days=DAYS, frames=FRAMES).to_frames())
        positions = moments.whole()
        return WindowTasks(moments, positions, positions, self.settings, number, pooled=self.pooled)[index]


@dataclass(frozen=True, eq=False)
class BankWindows:
    """Endless tasks whose windows are of any worlds of a bank."""

    thread_safe: ClassVar[bool] = True
    bank: Bank
    settings: WorldsTasks
    seed: int

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        check_index(index)
        settings = self.settings
        size = settings.k_shot + settings.k_query
        batches = self.bank.batches(size=size, crop=settings.patch or SIZE, seed=self.seed, first=index)
        seen = learned_from([next(batches)])[0]
        return Task.split(*seen, settings.k_shot, f"task {index} of {self.bank.folder}")


class WorldSource(TaskSource):
    """Simulated worlds; those to validate and to test are never trained on."""

    heading = HEADING
    summary = "simulated worlds, others for each purpose"

    def __init__(self, settings: WorldsTasks) -> None:
        super().__init__(settings.seed)
        self.settings = settings

    @cached_property
    def bank(self) -> Bank | None:
        """The worlds that were drawn before, if any."""
        if self.settings.bank is None:
            return None
        folder = Path(self.settings.bank)
        facts = folder / "facts.npy"
        if not facts.exists():
            raise FileNotFoundError(
                f"bank must be a folder of worlds, got {folder}, which has no {facts.name}. Try "
                "metaprior.solar.maps.nowcast.bank.Bank(folder, 1000).draw(seed=0), or leave it out"
            )
        return Bank(folder, len(np.load(facts, mmap_mode="r")))

    def tasks(self, purpose: Purpose, count: int | None = None) -> Tasks:
        """Return endless tasks; a bank is to train on alone."""
        if purpose == "train" and self.bank:
            return BankWindows(self.bank, self.settings, self.seed)
        return WorldWindows(self.settings, self.seed_of(purpose))

    def pooled(self, meta_batch: int) -> Tasks:
        """Return tasks for the warm start, of which ``meta_batch`` have 16 windows together."""
        settings, seed = pooled_settings(self.settings, meta_batch), Noise(self.seed).fork("pooled tasks").seed
        return BankWindows(self.bank, settings, seed) if self.bank else WorldWindows(settings, seed, pooled=True)

    def describe(self) -> dict[str, Any]:
        """Return the number of worlds in the bank."""
        return {} if self.bank is None else {"worlds": self.bank.worlds}
