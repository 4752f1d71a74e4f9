"""Moments of issue: positions around gaps, and nothing of the future in what is known."""

import math

import numpy as np
import pytest
import torch
import xarray as xr

from metaprior.solar import sun
from metaprior.solar.maps.nowcast.inputs import INPUTS, LEADS, prepare
from metaprior.solar.maps.nowcast.moments import LEAST_FRAMES, MOST_DAYS, STEPS, Moments, Rows
from metaprior.solar.simulator import simulate
from metaprior.solar.simulator.worlds import draw_world

HALF_HOUR = np.timedelta64(30, "m")
GONE = (3, 17, 18, 40, 41, 42, 43, 60)
"""Numbers of frames that are missing."""


def archive(days: int = 4, cadence: str = "30min", start: int = 8 * 60, located: bool = True) -> xr.DataArray:
    """Return frames of 6 x 5 pixels, 20 a day, some missing; values tell day, time and place."""
    step = np.timedelta64(int(cadence.removesuffix("min")), "m")
    day, frame = np.divmod(np.arange(20 * days), 20)
    times = (
        np.datetime64("2025-06-01", "ns") + day * np.timedelta64(1, "D") + start * np.timedelta64(1, "m") + frame * step
    )
    place = np.arange(30).reshape(6, 5) / 100
    values = (1000 * day + 10 * frame)[:, None, None] + place
    kept = np.setdiff1d(np.arange(20 * days), GONE)
    coordinates = {"time": ("time", times[kept])}
    if located:
        coordinates |= {"latitude": ("y", np.linspace(40, 41, 6)), "longitude": ("x", np.linspace(5, 6, 5))}
    frames = xr.DataArray(values[kept].astype(np.float32), coordinates, ("time", "y", "x"))
    frames.attrs |= {"cadence": cadence, "units": "1"}
    return frames


@pytest.fixture(scope="module")
def moments() -> Moments:
    return Moments(archive())


def test_positions_are_those_whose_frames_are_there(moments: Moments) -> None:
    there = set(moments.times.tolist())
    step = int(moments.step.astype("timedelta64[ns]").astype(int))
    whole, possible = [], []
    for position, time in enumerate(moments.times.tolist()):
        found = [time + number * step in there for number in STEPS.tolist()]
        if all(found):
            whole.append(position)
        if found[INPUTS - 2] and sum(found[:INPUTS]) >= LEAST_FRAMES:
            possible.append(position)
    assert moments.whole().tolist() == whole
    assert moments.possible().tolist() == possible
    assert 0 < len(whole) < len(possible) < len(moments.times)
    assert set(whole) < set(possible)


def test_inputs_and_targets_are_at_their_times_around_gaps(moments: Moments) -> None:
    for position in moments.possible().tolist():
        batch = moments.batch(position)
        values = torch.cat([batch.frames, batch.targets], 1)[0]
        assert values.shape == (INPUTS + LEADS, 6, 5)
        for number, step in enumerate(STEPS.tolist()):
            time = moments.times[position] + step * HALF_HOUR
            (row,) = np.nonzero(moments.times == time)
            if len(row):
                np.testing.assert_array_equal(values[number], moments.frames.values[row[0]])
            else:
                assert values[number].isnan().all()
        assert values[INPUTS - 1].isfinite().all()
        assert batch.minutes.tolist() == [30.0]


def test_the_last_moments_have_no_targets(moments: Moments) -> None:
    batch = moments.batch(len(moments.times) - 1)
    assert batch.targets.isnan().all()
    assert batch.frames.isfinite().all()


def test_usual_values_are_the_means_of_earlier_days(moments: Moments) -> None:
    position = int(np.flatnonzero(moments.times == np.datetime64("2025-06-03T12:00"))[0])  # frame 8 of the third day
    known = moments.batch(position).known
    for number, step in enumerate(STEPS.tolist()):
        days = [day for day in (0, 1) if 20 * day + 8 + step not in GONE]
        expected = np.mean([1000 * day + 10 * (8 + step) for day in days])
        assert float(known.typical[0, number, 0, 0]) == pytest.approx(expected)
    assert float(known.darkest[0, 0, 0]) == 10 * (8 + STEPS[0])
    first = moments.batch(5).known
    assert first.typical.isnan().all()
    assert first.darkest.isnan().all()


@pytest.mark.parametrize("cadence", ["30min", "60min", "720min"])
def test_nothing_of_the_future_is_known(cadence: str) -> None:
    frames = archive(days=3, cadence=cadence, start=0)
    frames = frames.sortby("time")
    frames = frames.isel(time=np.unique(frames["time"].values, return_index=True)[1])
    moments = Moments(frames)
    for position in range(0, len(moments.times), 7):
        changed = frames.copy(deep=True)
        changed.values[position + 1 :] = -1e6
        before, after = moments.batch(position), Moments(changed).batch(position)
        for one, other in ((before.frames, after.frames), *zip(before.known, after.known, strict=True)):
            assert torch.equal(one.nan_to_num(-7), other.nan_to_num(-7))
        one, other = (prepare(batch.frames, batch.known, batch.minutes).x for batch in (before, after))
        assert torch.equal(one, other)


def test_a_forecast_does_not_need_what_follows_it(moments: Moments) -> None:
    for position in (30, 50):
        before = moments.batch(position)
        ended = Moments(moments.frames[: position + 1]).batch(position)
        for one, other in ((before.frames, ended.frames), *zip(before.known, ended.known, strict=True)):
            assert torch.equal(one.nan_to_num(-7), other.nan_to_num(-7))
        assert ended.targets.isnan().all()


def test_only_the_latest_days_are_averaged() -> None:
    moments = Moments(archive(days=MOST_DAYS + 4))
    last = moments.whole()[-1]
    day, frame = divmod(round(float(moments.frames[last, 0, 0])), 1000)
    typical = moments.batch(int(last)).known.typical[0, INPUTS - 1, 0, 0]
    days = range(day - MOST_DAYS, day)
    expected = [1000 * one + frame for one in days if 20 * one + frame // 10 not in GONE]
    assert float(typical) == pytest.approx(np.mean(expected))


def test_the_sun_is_known_at_all_times_where_coordinates_are() -> None:
    moments = Moments(archive())
    known = moments.batch(10).known
    times = moments.times[10] + STEPS * HALF_HOUR
    frames = moments.frames
    expected = np.sin(np.radians(sun.elevation(times, frames["latitude"].values, frames["longitude"].values)))
    np.testing.assert_allclose(known.sine[0], expected, atol=1e-6)
    assert Moments(archive(located=False)).batch(10).known.sine.isnan().all()


def test_a_part_is_that_part_of_everything(moments: Moments) -> None:
    part = Moments(moments.frames, Rows(slice(1, 5), slice(2, 5)))
    assert part.shape == (4, 3)
    whole, some = moments.batch(50), part.batch(50)
    cut = (..., slice(1, 5), slice(2, 5))
    pairs = zip((whole.frames, whole.targets, *whole.known), (some.frames, some.targets, *some.known), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one[cut], other, equal_nan=True)


def test_missing_pixels_do_not_enter_means() -> None:
    frames = archive(days=3)
    frames.values[frames["time"].values < np.datetime64("2025-06-02"), 2, 2] = math.nan
    moments = Moments(frames)
    position = int(np.flatnonzero(moments.times == np.datetime64("2025-06-03T14:00"))[0])
    typical = moments.batch(position).known.typical[0, 1]
    assert float(typical[2, 2]) == pytest.approx(float(typical[2, 1]) + 500 + 0.01)


def test_archives_of_worlds_and_of_the_simulated_region_have_moments() -> None:
    world = draw_world(3, size=24, days=2, frames=10, cadence=15, kind="irradiance")
    moments = Moments(world.to_frames())
    assert moments.whole().tolist() == [3, 4, 5, 13, 14, 15]
    batch = moments.batch(13)
    np.testing.assert_array_equal(batch.targets[0], world.values[1, 4:8])
    np.testing.assert_array_equal(batch.known.typical[0], world.values[0, :8])
    assert torch.isfinite(prepare(batch.frames, batch.known, batch.minutes).x).all()
    region = Moments(simulate(days=2, size=8, start="2025-06-01", progress=False))
    assert len(region.whole()) > 20
    assert all(
        torch.isfinite(prepare(one.frames, one.known, one.minutes).x).all() for one in map(region.batch, (5, 40))
    )
