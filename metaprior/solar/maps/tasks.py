"""Few-shot forecasting tasks from an archive of frames: windows of one place, of one period, of both, or of neither.

Within a task all support windows come before all query windows and share no frame with them: what is adapted to lies in
the past of what is forecast.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from metaprior.solar import sun
from metaprior.solar.maps.archives.door import cadence_of
from metaprior.solar.maps.units import Place, ScaledValues, Units, Values
from metaprior.solar.maps.windows import ONE_DAY, Days, Times, Window, all_days, gapless_starts
from metaprior.tasks.arguments import check_counts, check_index, generator_of
from metaprior.tasks.task import Examples, Task

By = Literal["time", "place", "period", "place+period"]

ATTEMPTS = 100
"""Places and periods that are tried for a task before it is said that there are none."""
EARLIEST_CUT, LATEST_CUT = 0.25, 0.75
"""Share of a task's windows that may come before its query set."""
MIN_ELEVATION = 10.0
MIN_BRIGHTNESS = 0.08
"""Mean brightness of a patch in daylight, as a share of the archive's range, where the sun's place is not known."""


class Windows(NamedTuple):
    """Where a task's examples come from."""

    support: tuple[Window, ...]
    query: tuple[Window, ...]


class _Found(NamedTuple):
    window: Window
    values: Values


@dataclass(frozen=True, eq=False)
class MetaSolarPredictionDataset:
    """Tasks: forecast ``target_len`` frames from ``input_len`` frames, ``k_shot`` windows to adapt to.

    Task i is a function of ``seed`` and i, so any process can make any of them at any time. With ``tasks_per_epoch``
    there are so many tasks; without, the source is endless.

    Args:
        frames: what ``open_frames`` returns; only the windows that are asked for are read.
        days: the days that all frames of all windows lie in; None are all days.
        by: what the windows of a task have in common. "time": nothing (the seeds' random windows, each at a random
            place); "place": the patch; "period": ``period_days`` days; "place+period": both.
        patch: pixels along each side; None is the whole frame.
        units: how the network sees values; None scales from the frames' ``data_min`` and ``data_max``.
        min_elevation: of the sun in degrees, for a window of daylight; under 10 a clear-sky index means little.

    x has shape (k, input_len + known, H, W), y (k, target_len, H, W). All frames of a window are in daylight: by the
    sun where coordinates are known, otherwise by the patch's mean brightness. Windows with missing values are left out.
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
    _starts: NDArray[np.int64] = field(init=False, repr=False)
    _times: Times = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("input_len", "target_len", "k_shot", "k_query", "period_days")}
        check_counts(**counts, patch=self.shape[0])
        if self.tasks_per_epoch is not None:
            check_counts(tasks_per_epoch=self.tasks_per_epoch)
        if self.by not in get_args(By):
            raise ValueError(f"by is one of {', '.join(get_args(By))}; got {self.by!r}")
        if self.patch is not None and self.patch > min(self.frames.shape[1:]):
            raise ValueError(f"patch is {self.patch} pixels, but frames have {self.frames.shape[1:]}")
        times = self.frames["time"].values
        object.__setattr__(self, "_times", times)
        object.__setattr__(self, "days", self.days or all_days(times))
        if self.units is None:
            attrs = self.frames.attrs
            object.__setattr__(self, "units", ScaledValues(attrs["data_min"], attrs["data_max"]))
        self._units.known(times[:1], self.place_of(Window(0, 0, 0)), self.shape)  # units that need coordinates say so
        starts = gapless_starts(times, cadence_of(self.frames.attrs["cadence"]), self.length)
        object.__setattr__(self, "_starts", self._days.holds(times, starts, self.length))
        self._check_enough_windows(len(starts))

    def _check_enough_windows(self, in_all: int) -> None:
        needed = self.k_shot + self.k_query
        if len(self._starts) < needed:
            raise ValueError(
                f"there are {len(self._starts)} windows of {self.length} frames without a gap within {self._days} "
                f"({in_all} on all days of the archive), and a task needs {needed} (k_shot + k_query); use more days, "
                "a smaller input_len or target_len, or fewer examples"
            )

    @property
    def length(self) -> int:
        """Frames in a window."""
        return self.input_len + self.target_len

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a patch."""
        height, width = self.frames.shape[1:]
        return (height, width) if self.patch is None else (self.patch, self.patch)

    @property
    def input_channels(self) -> int:
        """Channels of x: input frames, and what is known about the target times."""
        return self.input_len + self._units.known_per_target * self.target_len

    @property
    def _days(self) -> Days:
        assert self.days is not None
        return self.days

    @property
    def _units(self) -> Units:
        assert self.units is not None
        return self.units

    def __len__(self) -> int:
        """``tasks_per_epoch``; TypeError where there is no end."""
        if self.tasks_per_epoch is None:
            raise TypeError("these tasks have no end; tasks_per_epoch sets one")
        return self.tasks_per_epoch

    def __getitem__(self, index: int) -> Task:
        """The task with this index."""
        found = self._draw(index)
        support, query = (self._examples(part) for part in (found[: self.k_shot], found[self.k_shot :]))
        return Task(support, query, self._name(index, found))

    def windows(self, index: int) -> Windows:
        """Where the examples of the task with this index come from."""
        windows = tuple(one.window for one in self._draw(index))
        return Windows(windows[: self.k_shot], windows[self.k_shot :])

    def times_of(self, window: Window) -> Times:
        """When its frames are."""
        return self._times[window.start : window.start + self.length]

    def place_of(self, window: Window) -> Place:
        """Coordinates of its rows and columns."""
        rows, columns = self._slices(window)
        known = self.frames.coords
        if "latitude" not in known or "longitude" not in known:
            return Place(None, None)
        return Place(known["latitude"].values[rows], known["longitude"].values[columns])

    def read(self, window: Window) -> Values:
        """Its frames in their own units, (length, H, W)."""
        rows, columns = self._slices(window)
        block = self.frames.variable[window.start : window.start + self.length, rows, columns]
        return np.asarray(block.values, np.float32)

    def block(self, window: Window) -> xr.DataArray:
        """Its frames with their coordinates, not read yet."""
        rows, columns = self._slices(window)
        return self.frames[window.start : window.start + self.length, rows, columns]

    def example(self, window: Window, values: Values | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """x and y of one window."""
        values = self.read(window) if values is None else values
        times, place = self.times_of(window), self.place_of(window)
        seen = self._units.encode(values, times, place)
        known = self._units.known(times[self.input_len :], place, self.shape)
        x = np.concatenate([seen[: self.input_len], known])
        return torch.from_numpy(x), torch.from_numpy(seen[self.input_len :])

    def _slices(self, window: Window) -> tuple[slice, slice]:
        height, width = self.shape
        return slice(window.y, window.y + height), slice(window.x, window.x + width)

    def _examples(self, found: list[_Found]) -> Examples:
        x, y = zip(*(self.example(*one) for one in found), strict=True)
        return Examples(torch.stack(x), torch.stack(y))

    def _name(self, index: int, found: list[_Found]) -> str:
        first = found[0].window
        day = self._times[first.start].astype("datetime64[D]")
        where = f" at row {first.y}, column {first.x}" if "place" in self.by else ""
        return f"task {index}{where} from {day}"

    def _draw(self, index: int) -> list[_Found]:
        """Support windows, then query windows, of the first place and period that have enough."""
        check_index(index, self.tasks_per_epoch)
        generator = generator_of("solar tasks", self.seed, index)
        for attempt in range(ATTEMPTS):
            if attempt == 1:
                self._check_enough_daylight()
            early, late = self._before_and_after(self._period(generator), generator)
            place = self._random_place(generator) if "place" in self.by else None
            support = self._daylight(early, self.k_shot, place, generator)
            if support is None:
                continue
            query = self._daylight(late, self.k_query, place, generator)
            if query is not None:
                return [*support, *query]
        raise ValueError(
            f"no task found in {ATTEMPTS} attempts: {self.k_shot} windows of {self.length} frames in daylight, and "
            f"later {self.k_query} more, by {self.by} within {self._days}. Is it always night, or are values missing "
            "everywhere? Else use fewer examples, shorter windows, or longer periods"
        )

    def _check_enough_daylight(self) -> None:
        """Raise if the sun is high in too few windows at any place, for then other places and periods are no better.

        Every patch has one of the pixels that are its own size apart, so these are enough to look at.
        """
        whole, (height, width) = self.frames.coords, self.shape
        if "latitude" not in whole or "longitude" not in whole:
            return
        latitude, longitude = whole["latitude"].values[::height], whole["longitude"].values[::width]
        lit, needed = 0, self.k_shot + self.k_query
        for start in self._starts.tolist():
            heights = sun.elevation(self._times[start : start + self.length], latitude, longitude)
            lit += bool((heights.min(0) >= self.min_elevation).any())
            if lit == needed:
                return
        raise ValueError(
            f"in {lit} of the {len(self._starts)} windows of {self.length} frames within {self._days} the sun stays at "
            f"{self.min_elevation:g} degrees or more (min_elevation) somewhere on the map, and a task needs {needed} "
            "(k_shot + k_query). Are times UTC? Else use other days, a lower min_elevation, shorter windows or fewer "
            "examples"
        )

    def _period(self, generator: torch.Generator) -> NDArray[np.int64]:
        """Starts of the windows in a random period, or in all days."""
        if "period" not in self.by or self._days.count <= self.period_days:
            return self._starts
        offset = _random_int(self._days.count - self.period_days + 1, generator)
        first = self._days.first + offset * ONE_DAY
        return Days(first, first + self.period_days * ONE_DAY).holds(self._times, self._starts, self.length)

    def _before_and_after(
        self, starts: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cut in time: no window before shares a frame with one after."""
        share = EARLIEST_CUT + (LATEST_CUT - EARLIEST_CUT) * float(torch.rand((), generator=generator))
        count = round(share * len(starts))
        early = starts[:count]
        return early, starts[starts >= early[-1] + self.length] if count else starts[:0]

    def _random_place(self, generator: torch.Generator) -> tuple[int, int]:
        free = [whole - part + 1 for whole, part in zip(self.frames.shape[1:], self.shape, strict=True)]
        return _random_int(free[0], generator), _random_int(free[1], generator)

    def _daylight(
        self,
        starts: NDArray[np.int64],
        count: int,
        place: tuple[int, int] | None,
        generator: torch.Generator,
    ) -> list[_Found] | None:
        """``count`` windows in daylight, at one place or each at its own; None if there are fewer."""
        found: list[_Found] = []
        for number in torch.randperm(len(starts), generator=generator).tolist():
            window = Window(int(starts[number]), *(place or self._random_place(generator)))
            values = self._in_daylight(window)
            if values is not None:
                found.append(_Found(window, values))
                if len(found) == count:
                    return found
        return None

    def _in_daylight(self, window: Window) -> Values | None:
        """The window's values, if all its frames are in daylight and none is missing."""
        lowest = lowest_sun(self.times_of(window), self.place_of(window))
        if lowest is not None and lowest < self.min_elevation:
            return None
        values = self.read(window)
        if lowest is None and not is_bright(values, self.frames):
            return None
        return values if np.isfinite(values).all() else None


def lowest_sun(times: Times, place: Place) -> float | None:
    """The sun's lowest elevation in degrees at these times and in this patch; None where it is not known."""
    if place.latitude is None or place.longitude is None:
        return None
    # Along a column the sun is lowest at an end; along a row that holds for patches, but not around the Earth.
    return float(sun.elevation(times, place.latitude[[0, -1]], place.longitude).min())


def is_bright(values: Values, frames: xr.DataArray) -> bool:
    """Whether all of some frames (T, H, W) are bright enough for daylight, by the range of their archive."""
    low, high = frames.attrs["data_min"], frames.attrs["data_max"]
    return bool(values.mean((1, 2)).min() >= low + MIN_BRIGHTNESS * (high - low))


def _random_int(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))
