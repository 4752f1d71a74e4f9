"""Few-shot forecasting tasks from an archive of frames: windows of one place, of one period, of both, or of neither.

All support windows of a task come before all its query windows and share no frame with them: a network adapts to the
past of what it forecasts.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from metaprior.checks import check_counts
from metaprior.noise import task_generator
from metaprior.solar import sun
from metaprior.solar.maps.archives.archive import Values
from metaprior.solar.maps.days import ONE_DAY, Days, all_days
from metaprior.solar.maps.units import ScaledValues, Units
from metaprior.solar.maps.windows import MIN_ELEVATION, UnusableWindow, Window, WindowReader
from metaprior.tasks.task import Examples, Task, check_index

By = Literal["time", "place", "period", "place+period"]

ATTEMPTS = 100
"""Places and periods that are tried for a task before an error is raised."""
WindowValues = tuple[Window, Values]
"""A window and the values that were read from it."""
EARLIEST_CUT, LATEST_CUT = 0.25, 0.75
"""Limits of the share of a task's windows that come before its query set."""


class Windows(NamedTuple):
    """The windows of a task's examples."""

    support: tuple[Window, ...]
    query: tuple[Window, ...]


@dataclass(frozen=True, eq=False)
class MetaSolarPredictionDataset:
    """Tasks: forecast ``target_len`` frames from ``input_len`` frames after adaptation to ``k_shot`` windows.

    Task i, with ``k_query`` windows to forecast, is a function of ``seed`` and i, so any process can make any task at
    any time. ``tasks_per_epoch`` is the number of tasks; without it the source is endless.

    Args:
        frames: What ``open_frames`` returns; only windows that are used are read.
        days: The days that contain all frames of all windows; None is all days of the archive.
        by: What the windows of a task have in common. "time": nothing (each has a random place and time); "place":
            the patch; "period": ``period_days`` days; "place+period": both.
        patch: Pixels along each side; None is the whole frame.
        period_days: Length of a period.
        units: How the network sees values; None scales from the frames' ``data_min`` and ``data_max``.
        min_elevation: Lowest sun, in degrees, of a window in daylight; below 10 a clear-sky index means little.

    x has shape (k, input_len + known, H, W), y (k, target_len, H, W). All frames of a window are in daylight: by the
    sun where coordinates are known, otherwise by the patch's mean brightness. Windows with missing values are left out.
    ``reader`` is the ``WindowReader`` that reads the windows.
    """

    thread_safe: ClassVar[bool] = True
    frames: xr.DataArray
    days: Days | None = None
    input_len: int = 4
    target_len: int = 4
    k_shot: int = 5
    k_query: int = 10
    tasks_per_epoch: int | None = None
    by: By = "place+period"
    patch: int | None = 32
    period_days: int = 3
    units: Units | None = None
    min_elevation: float = MIN_ELEVATION
    seed: int = 0
    reader: WindowReader = field(init=False, repr=False)
    _days: Days = field(init=False, repr=False)
    _starts: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        attrs = self.frames.attrs
        units = self.units or ScaledValues(attrs["data_min"], attrs["data_max"])
        reader = WindowReader(self.frames, self.input_len, self.target_len, units, self.patch)
        counts = {name: getattr(self, name) for name in ("input_len", "target_len", "k_shot", "k_query", "period_days")}
        check_counts(**counts, patch=reader.shape[0])
        if self.tasks_per_epoch is not None:
            check_counts(tasks_per_epoch=self.tasks_per_epoch)
        if self.by not in get_args(By):
            raise ValueError(f"by must be one of {', '.join(get_args(By))}, got {self.by!r}")
        if self.patch is not None and self.patch > min(self.frames.shape[1:]):
            raise ValueError(f"patch must fit into frames of {self.frames.shape[1:]} pixels, got {self.patch}")
        units.known(reader.sine(Window(0, 0, 0)), reader.shape)  # may need coordinates
        days, starts = self.days or all_days(reader.archive_times), reader.starts()
        inside = days.select(reader.archive_times, starts, reader.length)
        computed = {"units": units, "reader": reader, "days": days, "_days": days, "_starts": inside}
        for name, value in computed.items():
            object.__setattr__(self, name, value)
        if len(inside) < self.k_shot + self.k_query:
            raise ValueError(
                f"a task needs {self.k_shot + self.k_query} windows (k_shot + k_query) of {reader.length} frames "
                f"without a gap, got {len(inside)} within {days} ({len(starts)} on all days of the archive). Use more "
                "days, a smaller input_len or target_len, or fewer examples"
            )

    def __len__(self) -> int:
        """Return ``tasks_per_epoch``; raises TypeError for an endless source."""
        if self.tasks_per_epoch is None:
            raise TypeError("an endless source of tasks has no length; set tasks_per_epoch")
        return self.tasks_per_epoch

    def __getitem__(self, index: int) -> Task:
        """Return the task with this index."""
        drawn = self._draw(index)
        support, query = (self._examples(part) for part in (drawn[: self.k_shot], drawn[self.k_shot :]))
        (start, y, x), _ = drawn[0]
        where, day = f" at row {y}, column {x}", self.reader.archive_times[start].astype("datetime64[D]")
        return Task(support, query, f"task {index}{where if 'place' in self.by else ''} from {day}")

    def windows(self, index: int) -> Windows:
        """Return the windows of the examples of the task with this index."""
        windows = tuple(window for window, _ in self._draw(index))
        return Windows(windows[: self.k_shot], windows[self.k_shot :])

    def _examples(self, drawn: list[WindowValues]) -> Examples:
        x, y = zip(*(self.reader.example(*one) for one in drawn), strict=True)
        return Examples(torch.stack(x), torch.stack(y))

    def _draw(self, index: int) -> list[WindowValues]:
        """Draw support windows, then query windows, of the first random place and period that have enough."""
        check_index(index, self.tasks_per_epoch)
        generator = task_generator("solar tasks", self.seed, index)
        for attempt in range(ATTEMPTS):
            if attempt == 1:
                self._check_enough_daylight()
            early, late = self._before_and_after(self._period(generator), generator)
            place = self._random_place(generator) if "place" in self.by else None
            support = self._daylight(early, self.k_shot, place, generator)
            query = support and self._daylight(late, self.k_query, place, generator)
            if support and query:
                return [*support, *query]
        raise ValueError(
            f"no task found in {ATTEMPTS} attempts: a task needs {self.k_shot} windows of {self.reader.length} frames "
            f"in daylight, and later {self.k_query} more, by {self.by} within {self._days}. Is it always night, or are "
            "values missing everywhere? Otherwise use fewer examples, shorter windows, or longer periods"
        )

    def _check_enough_daylight(self) -> None:
        """Raise if the sun is high in too few windows at any place: other places and periods would be no better.

        Every patch contains one of the pixels that are its own size apart, so only these are checked.
        """
        if self.reader.archive_place is None:
            return
        height, width = self.reader.shape
        place = self.reader.archive_place.part(slice(None, None, height), slice(None, None, width))
        lit, needed = 0, self.k_shot + self.k_query
        for start in self._starts.tolist():
            heights = sun.degrees_of(sun.sine_of_elevation(self.reader.times(Window(start, 0, 0)), place))
            lit += bool((heights.min(0) >= self.min_elevation).any())
            if lit == needed:
                return
        raise ValueError(
            f"a task needs {needed} windows (k_shot + k_query) of {self.reader.length} frames in which the sun stays "
            f"at {self.min_elevation:g} degrees or more (min_elevation) somewhere on the map, got {lit} of the "
            f"{len(self._starts)} within {self._days}. Are times UTC? Otherwise use other days, a lower min_elevation, "
            "shorter windows or fewer examples"
        )

    def _period(self, generator: torch.Generator) -> NDArray[np.int64]:
        """Return the starts of the windows in a random period, or in all days."""
        if "period" not in self.by or self._days.count <= self.period_days:
            return self._starts
        first = self._days.first + _random_int(self._days.count - self.period_days + 1, generator) * ONE_DAY
        period = Days(first, first + self.period_days * ONE_DAY)
        return period.select(self.reader.archive_times, self._starts, self.reader.length)

    def _before_and_after(
        self, starts: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Divide windows in time, so that no window before shares a frame with one after."""
        share = EARLIEST_CUT + (LATEST_CUT - EARLIEST_CUT) * float(torch.rand((), generator=generator))
        count = round(share * len(starts))
        early = starts[:count]
        return early, starts[starts >= early[-1] + self.reader.length] if count else starts[:0]

    def _random_place(self, generator: torch.Generator) -> tuple[int, int]:
        free = [whole - part + 1 for whole, part in zip(self.frames.shape[1:], self.reader.shape, strict=True)]
        return _random_int(free[0], generator), _random_int(free[1], generator)

    def _daylight(
        self, starts: NDArray[np.int64], count: int, place: tuple[int, int] | None, generator: torch.Generator
    ) -> list[WindowValues] | None:
        """Return ``count`` random windows in daylight, at one place or each at its own; None if there are fewer."""
        drawn: list[WindowValues] = []
        for number in torch.randperm(len(starts), generator=generator).tolist():
            window = Window(int(starts[number]), *(place or self._random_place(generator)))
            with suppress(UnusableWindow):
                drawn.append((window, self.reader.read_in_daylight(window, self.min_elevation)))
            if len(drawn) == count:
                return drawn
        return None


def _random_int(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))
