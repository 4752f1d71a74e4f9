import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from metaprior.solar import sun
from metaprior.solar.maps import dataset as module
from metaprior.solar.maps import windows as windows_module
from metaprior.solar.maps.archives.archive import lazy_variable
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import Days, all_days, split_days
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues
from metaprior.solar.maps.windows import MIN_BRIGHTNESS, MIN_ELEVATION, UnusableWindow, Window
from metaprior.tasks.task import Task, length_of
from tests.solar.maps.tiny_archive import (
    HALF_HOUR,
    LATITUDE,
    LONGITUDE,
    archive,
    as_frames,
    dataset,
    half_hours,
    irradiance,
)

WAYS = ["time", "place", "period", "place+period"]
SEEN = slice(None, 2)


def all_windows(source: MetaSolarPredictionDataset, count: int = 12) -> list[Window]:
    return [window for index in range(count) for part in source.windows(index) for window in part]


def frames_of(windows: Iterable[Window], length: int = 4) -> set[int]:
    return {window.start + number for window in windows for number in range(length)}


def numbers(task: Task) -> list[torch.Tensor]:
    return [*task.support, *task.query]


def same(one: Task, other: Task) -> bool:
    return one.name == other.name and all(map(torch.equal, numbers(one), numbers(other)))


@pytest.fixture
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 3)


# --- nothing leaks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("coordinates", [True, False])
def test_no_half_hour_is_in_two_of_training_validation_and_test(by: Any, coordinates: bool) -> None:
    frames = archive(11, coordinates=coordinates)
    times = frames["time"].values
    seen = []
    for days in split_days(all_days(times), (0.4, 0.3, 0.3)):
        source = dataset(frames, days=days, by=by, period_days=2)
        seen.append(times[sorted(frames_of(all_windows(source)))])
        assert all((days.first <= seen[-1]) & (seen[-1] < days.stop))
    for before, after in itertools.pairwise(seen):
        assert after.min() - before.max() > np.timedelta64(1, "D")


@pytest.mark.parametrize("by", WAYS)
def test_what_is_adapted_to_lies_in_the_past_of_what_is_forecast(by: Any) -> None:
    source = dataset(by=by)
    for index in range(20):
        support, query = source.windows(index)
        assert (len(support), len(query)) == (3, 4)
        assert len({*support, *query}) == 7
        assert max(frames_of(support)) < min(frames_of(query))


def test_windows_never_cross_a_gap() -> None:
    holes = tuple(np.random.default_rng(0).choice(6 * 48, 40, replace=False).tolist())
    source = dataset(archive(6, without=holes), period_days=6)
    windows = all_windows(source, 20)
    for window in windows:
        assert (np.diff(source.reader.times(window)) == HALF_HOUR).all()
    steps = np.diff(source.frames["time"].values)
    crossing = {start for start in range(len(steps)) if (steps[start : start + 3] != HALF_HOUR).any()}
    assert len(crossing) > 50
    assert not crossing & {window.start for window in windows}


# --- what the windows of a task have in common ------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
def test_one_place_one_period_both_or_neither(by: Any) -> None:
    source = dataset(archive(9), by=by, period_days=3)
    places, spans = [], []
    for index in range(20):
        windows = [*source.windows(index).support, *source.windows(index).query]
        times = source.frames["time"].values[sorted(frames_of(windows))].astype("datetime64[D]")
        places.append({(window.y, window.x) for window in windows})
        spans.append(int((times[-1] - times[0]).astype(int)) + 1)
    corners = set().union(*places)
    assert {y for y, _ in corners} == {x for _, x in corners} == set(range(7)), "every place of a frame can be drawn"
    if "place" in by:
        assert all(len(place) == 1 for place in places)
        assert len(corners) > 10
    else:
        assert min(map(len, places)) > 2
    assert max(spans) <= 3 if "period" in by else max(spans) > 5


def test_a_period_longer_than_the_days_is_all_of_them() -> None:
    assert all_windows(dataset(period_days=99, by="period")) == all_windows(dataset(period_days=6, by="period"))


# --- what is in a task ------------------------------------------------------------------------------------------------


def test_examples_are_what_the_windows_say() -> None:
    source = dataset(units=ScaledValues(0.0, 500.0))
    task, values = source[3], source.frames.values
    for part, windows in zip((task.support, task.query), source.windows(3), strict=True):
        for x, y, (start, row, column) in zip(*part, windows, strict=True):
            expected = torch.from_numpy(values[start : start + 4, row : row + 6, column : column + 6]) / 250 - 1
            torch.testing.assert_close(torch.cat([x, y]), expected, rtol=1e-6, atol=1e-6)
    first = source.windows(3).support[0]
    day = str(source.reader.times(first)[0])[:10]
    assert task.name == f"task 3 at row {first.y}, column {first.x} from {day}"


def test_the_archives_range_is_the_scale_unless_another_is_given() -> None:
    assert dataset().units == ScaledValues(0.0, 1100.0)


def test_in_clear_sky_index_the_suns_course_is_known() -> None:
    source = dataset(units=ClearSkyIndex())
    task, (window, *_) = source[0], source.windows(0).query
    assert [tuple(one.shape) for one in numbers(task)] == [(3, 4, 6, 6), (3, 2, 6, 6), (4, 4, 6, 6), (4, 2, 6, 6)]
    rows, columns = LATITUDE[window.y : window.y + 6], LONGITUDE[window.x : window.x + 6]
    times = source.reader.times(window)
    sine = np.sin(np.radians(sun.elevation(times, rows, columns)))
    np.testing.assert_allclose(task.query.x[0, 2:], sine[2:], atol=1e-6)
    index = source.reader.read(window) / sun.clear_sky(times, rows, columns)
    np.testing.assert_allclose(task.query.x[0, SEEN], index[SEEN] / 0.6 - 1, atol=1e-5)
    np.testing.assert_allclose(task.query.y[0], index[2:] / 0.6 - 1, atol=1e-5)


@pytest.fixture
def sines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.datetime64, int]]:
    """Return the first time and the number of rows of every sine of the sun's elevation that is computed."""
    computed: list[tuple[np.datetime64, int]] = []
    compute = sun.sine_of_elevation

    def noted(times: np.ndarray, place: sun.Place) -> np.ndarray:
        computed.append((times[0], len(place.latitude)))
        return compute(times, place)

    monkeypatch.setattr(sun, "sine_of_elevation", noted)
    return computed


def test_the_sun_over_a_window_is_computed_once(sines: list[tuple[np.datetime64, int]]) -> None:
    source = dataset(units=ClearSkyIndex())
    sines.clear()
    source[0]
    patches = [first for first, rows in sines if rows == 6]
    windows = source.windows(0)
    expected = [source.reader.times(window)[0] for window in (*windows.support, *windows.query)]
    assert patches == expected, "once for each of the seven examples, and not at all for windows in the dark"
    sines.clear()
    source[0]
    assert [rows for _, rows in sines].count(6) == 7
    assert not any(rows == 2 and first in expected for first, rows in sines), "the day over whole frames is known"


def test_units_that_do_not_look_at_the_sun_do_not_compute_it(sines: list[tuple[np.datetime64, int]]) -> None:
    source = dataset(by="time")
    sines.clear()
    source[0]
    assert sines
    assert {rows for _, rows in sines} == {2}, "only the two rows that tell day from night"


def test_whole_frames_in_daylight_tell_that_a_patch_is_and_otherwise_the_patch_does() -> None:
    reader = dataset().reader
    for window in (Window(start, y, x) for start in range(0, 48, 5) for y in (0, 6) for x in (0, 3)):
        place = reader.place(window)
        assert place is not None
        lowest = float(sun.elevation(reader.times(window), place.latitude, place.longitude).min())
        over_frames = reader.lowest_over_frames(window.start)
        assert over_frames <= lowest + 1e-9 or lowest < 0
        for enough in (0.0, max(0.0, (over_frames + lowest) / 2), 10.0, 40.0, 89.0):
            read = True
            try:
                reader.read_in_daylight(window, enough)
            except UnusableWindow:
                read = False
            assert read == (lowest >= enough)
    assert dataset(archive(coordinates=False)).reader.lowest_over_frames(0) == -np.inf


def test_the_whole_frame_is_a_patch_too() -> None:
    source = dataset(archive()[:, :7], patch=None)
    assert source[0].support.x.shape == (3, 2, 7, 12)
    assert {(window.y, window.x) for window in all_windows(source, 3)} == {(0, 0)}
    with pytest.raises(ValueError, match=r"patch must fit into frames of \(7, 12\) pixels, got 8"):
        dataset(archive()[:, :7], patch=8)


# --- a task is a function of seed and index ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
def test_an_index_alone_is_the_index_in_order(by: Any) -> None:
    source = dataset(by=by)
    in_order = [source[index] for index in range(6)]
    alone = dataset(by=by)
    for index in (5, 0, 3):
        assert same(alone[index], in_order[index])
    assert not same(in_order[0], in_order[1])
    assert not same(replace(source, seed=1)[0], in_order[0])


def test_the_global_generators_are_neither_read_nor_moved() -> None:
    source, state, numpys = dataset(), torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    first = source[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpys).all()  # type: ignore[index]
    torch.manual_seed(1)
    assert same(source[0], first)
    torch.set_rng_state(state)


def test_with_tasks_per_epoch_there_is_an_end() -> None:
    endless, finite = dataset(), dataset(tasks_per_epoch=5)
    assert (length_of(endless), length_of(finite)) == (None, 5)
    assert same(endless[4], finite[4])
    assert endless.windows(10**9)
    with pytest.raises(IndexError, match="there is no task 5; indices are 0 to 4"):
        finite[5]
    with pytest.raises(IndexError, match="there is no task -1"):
        endless[-1]
    with pytest.raises(TypeError, match="has no length; set tasks_per_epoch"):
        len(endless)


# --- daylight and missing values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_elevation", [MIN_ELEVATION, 45.0])
def test_by_the_sun_all_of_a_window_is_in_daylight(min_elevation: float) -> None:
    frames = archive()
    bright = frames.copy(data=np.full(frames.shape, 1000.0, np.float32))  # values that say nothing about night
    source = dataset(bright, min_elevation=min_elevation)
    lowest = []
    for window in all_windows(source, 20):
        place = source.reader.place(window)
        lowest.append(sun.elevation(source.reader.times(window), place.latitude, place.longitude).min())
    assert min_elevation <= min(lowest) < min_elevation + 8


def test_without_coordinates_daylight_is_bright() -> None:
    source = dataset(archive(coordinates=False))
    dimmest = [source.reader.read(window).mean((1, 2)).min() for window in all_windows(source, 20)]
    assert min(dimmest) >= MIN_BRIGHTNESS * 1100
    assert min(dimmest) < 3 * MIN_BRIGHTNESS * 1100
    source.frames[:96] = 0.07 * 1100
    assert min(window.start for window in all_windows(dataset(source.frames, by="time"), 12)) >= 96


@pytest.mark.usefixtures("few_attempts")
def test_around_the_earth_there_is_always_a_night() -> None:
    """Frames whose corners are all at noon, with midnight between them."""
    longitude, times = np.linspace(0.0, 345.0, 24), half_hours(4)
    values = np.full((len(times), 3, 24), 500.0, np.float32)
    frames = as_frames(values, times, latitude=np.array([5.0, 0.0, -5.0]), longitude=longitude)
    with pytest.raises(ValueError, match="Is it always night"):
        dataset(frames, patch=None, by="time")[0]


def test_windows_with_missing_values_are_left_out() -> None:
    frames = archive()
    frames[:, 6, 6] = np.nan  # in most patches
    frames[3 * 48 : 4 * 48] = np.nan  # a whole day
    frames[20] = np.nan
    source = dataset(frames, by="place", min_elevation=20.0)
    windows = all_windows(source, 12)
    for window in windows:
        assert np.isfinite(source.reader.read(window)).all()
    assert {window.start // 48 for window in windows} == {0, 1, 2, 4, 5}
    assert all(torch.isfinite(one).all() for one in numbers(source[0]))


# --- lazily -----------------------------------------------------------------------------------------------------------


class Counting:
    """Frames that record what is read of them."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.read_blocks: list[tuple[list[int], slice, slice]] = []

    def read(self, frames: np.ndarray, rows: Any, columns: Any) -> np.ndarray:
        self.read_blocks.append((list(frames), rows, columns))
        return self.values[frames][:, rows, columns]


def counted() -> tuple[Counting, xr.DataArray]:
    times = half_hours(6)
    frames = Counting(irradiance(times))
    return frames, as_frames(
        lazy_variable(frames.values.shape, frames.values.dtype, frames.read),
        times,
        latitude=LATITUDE,
        longitude=LONGITUDE,
    )


def test_only_the_windows_that_are_asked_for_are_read() -> None:
    reader, frames = counted()
    source = dataset(frames, units=ClearSkyIndex())
    assert reader.read_blocks == [], "nothing is read before a task is asked for"
    task = source[1]
    found = source.windows(1)
    windows = [*found.support, *found.query]
    expected = [(list(range(w.start, w.start + 4)), slice(w.y, w.y + 6, 1), slice(w.x, w.x + 6, 1)) for w in windows]
    assert reader.read_blocks[:7] == expected, "each of the seven windows once, and no more of it than its patch"
    assert same(task, dataset(units=ClearSkyIndex())[1])
    source.reader.block(windows[0])
    assert len(reader.read_blocks) == 14, "windows(1) reads them again; a block reads nothing"


# --- what users are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
def test_where_the_sun_is_never_high_enough_that_is_said_at_once(by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    north = archive().assign_coords(latitude=("y", 88 - 0.1 * np.arange(12)))
    asked: list[object] = []

    def low(times: np.ndarray, place: sun.Place) -> float:
        asked.append((times[0], len(place.latitude)))
        return -3.0

    monkeypatch.setattr(windows_module, "lowest_sun", low)
    with pytest.raises(
        ValueError,
        match=r"a task needs 7 windows \(k_shot \+ k_query\) of 4 frames in which the sun stays at 10 degrees or more "
        r"\(min_elevation\) somewhere on the map, got 0 of the 285 within 2024-03-04 to 2024-03-09\. Are times UTC\?",
    ):
        dataset(north, by=by)[0]
    assert len(asked) == len(set(asked)), "no window was looked at twice"


def test_a_sun_that_is_high_over_some_patch_is_never_denied() -> None:
    """Frames over half of the Earth, so that it is day over one patch and night, or winter, over the other."""
    axes = {"latitude": ("y", 75 - 9.0 * np.arange(12)), "longitude": ("x", 15.0 * np.arange(12))}
    wide = archive(2).assign_coords(axes)
    high = {"by": "time", "min_elevation": 40.0, "patch": 3}
    source = dataset(wide, **high)
    corners = list(itertools.product(range(10), range(10)))
    lowest = [
        max(windows_module.lowest_sun(source.reader.times(window), source.reader.place(window)) for window in windows)
        for windows in ([Window(start, *corner) for corner in corners] for start in range(93))
    ]
    lit = sum(height >= 40 for height in lowest)
    assert 20 < lit < 93
    dataset(wide, **high, k_shot=1, k_query=lit - 1)._check_enough_daylight()
    with pytest.raises(ValueError, match=r"a task needs 93 .* 40 degrees or more .* got \d+ of the 93 "):
        dataset(wide, **high, k_shot=1, k_query=92)._check_enough_daylight()


@pytest.mark.usefixtures("few_attempts")
def test_where_it_is_always_night_that_is_said() -> None:
    dark = archive(coordinates=False)
    with pytest.raises(
        ValueError,
        match=r"no task found in 3 attempts: a task needs 3 windows of 4 frames in daylight, and later 4 more, "
        r"by place\+period within 2024-03-04 to 2024-03-09\. Is it always night, or are values missing",
    ):
        dataset(dark.copy(data=np.full_like(dark.values, 30.0)))[0]
    with pytest.raises(ValueError, match="or are values missing everywhere"):
        dataset(archive().where(False))[0]


def test_too_few_windows_are_counted() -> None:
    message = (
        r"a task needs 50 windows \(k_shot \+ k_query\) of 4 frames without a gap, got 45 within 2024-03-05 to "
        r"2024-03-05 \(93 on all days of the archive\)\. Use more days, a smaller input_len or target_len, or"
    )
    days = Days(np.datetime64("2024-03-05"), np.datetime64("2024-03-06"))
    with pytest.raises(ValueError, match=message):
        dataset(archive(2), days=days, k_shot=20, k_query=30)


def test_clear_sky_units_without_coordinates_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="the clear-sky index needs frames with latitude and longitude"):
        dataset(archive(1, coordinates=False), units=ClearSkyIndex())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": "region"}, r"by must be one of time, place, period, place\+period, got 'region'"),
        ({"patch": 13}, r"patch must fit into frames of \(12, 12\) pixels, got 13"),
        ({"patch": 0}, "patch .* at least 1, got 0"),
        ({"k_shot": 0}, "k_shot .* at least 1, got 0"),
        ({"target_len": 0}, "target_len .* at least 1, got 0"),
        ({"period_days": 0}, "period_days .* at least 1, got 0"),
        ({"tasks_per_epoch": 0}, "tasks_per_epoch .* at least 1, got 0"),
    ],
)
def test_impossible_arguments_say_what_is_possible(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset(archive(1), **changes)
