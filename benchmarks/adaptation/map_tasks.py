"""Tasks of satellite maps whose support windows are of the day before their query windows (the extra ``solar``)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch

from benchmarks.solar.archives import Archive, Part
from metaprior.noise import task_generator
from metaprior.solar.maps.days import ONE_DAY, Days
from metaprior.solar.maps.windows import MIN_ELEVATION, UnusableWindow, Window, WindowReader
from metaprior.tasks.task import Examples, Task, check_index

ATTEMPTS = 100
"""Places and days that are tried for a task before an error is raised."""


@dataclass(frozen=True)
class DayBefore:
    """Endless tasks of a random place: support windows of one day, query windows of the next, all in daylight.

    Args:
        archive: the frames and their days.
        part: "train", "validation" or "test".
        sizes: numbers of support windows, of which each task draws one.
        k_query: number of query windows.
        patch: pixels along each side.
        seed: seed of all draws.
    """

    thread_safe: ClassVar[bool] = True
    archive: Archive
    part: Part
    sizes: Sequence[int]
    k_query: int
    patch: int
    seed: int

    @cached_property
    def reader(self) -> WindowReader:
        """The reader of windows, four frames to see and four to forecast."""
        return WindowReader(self.archive.frames[self.part], 4, 4, self.archive.units, self.patch)

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        check_index(index)
        generator = task_generator("day before", self.seed, index)
        for _ in range(ATTEMPTS):
            if task := self._drawn(generator):
                return task
        raise ValueError(f"no task found in {ATTEMPTS} attempts on {self.archive.days[self.part]}: use fewer windows")

    def _drawn(self, generator: torch.Generator) -> Task | None:
        """Return a task of a random place and two random days; None if one of them has too few windows."""

        def random(count: int) -> int:
            return int(torch.randint(count, (), generator=generator))

        days, (height, width) = self.archive.days[self.part], self.reader.frames.shape[1:]
        day = days.first + random(days.count - 1) * ONE_DAY
        place = random(height - self.patch + 1), random(width - self.patch + 1)
        support = self._examples(day, self.sizes[random(len(self.sizes))], place, generator)
        query = self._examples(day + ONE_DAY, self.k_query, place, generator)
        return Task(support, query, f"row {place[0]}, column {place[1]} on {day}") if support and query else None

    def _examples(
        self, day: np.datetime64, count: int, place: tuple[int, int], generator: torch.Generator
    ) -> Examples | None:
        """Return ``count`` random windows of a day, or None if fewer are in daylight."""
        reader, found = self.reader, []
        starts = Days(day, day + ONE_DAY).select(reader.archive_times, reader.starts(), reader.length)
        for number in torch.randperm(len(starts), generator=generator).tolist():
            window = Window(int(starts[number]), *place)
            with suppress(UnusableWindow):
                found.append(reader.example(window, reader.read_in_daylight(window, MIN_ELEVATION)))
            if len(found) >= max(1, count):
                x, y = (torch.stack(values)[:count] for values in zip(*found, strict=True))
                return Examples(x, y)
        return None
