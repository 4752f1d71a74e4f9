"""The cadence of an archive is found from its times, which are rounded to its grid and thinned to it."""

from pathlib import Path

import numpy as np
import pytest

from metaprior.solar.maps.archives.cadence import frequent_steps, on_grid
from metaprior.solar.maps.archives.frames import open_frames
from tests.solar.maps.archives.test_frames import file_name, half_hours, ramp, write_folder

START = np.datetime64("2024-06-01T06:00", "ns")
MINUTE = np.timedelta64(1, "m")


def minutes(*values: float) -> np.ndarray:
    return START + (60 * np.array(values)).astype("timedelta64[s]")


@pytest.mark.parametrize("step", [1, 5, 7, 10, 15, 16, 30, 60, 1440])
def test_a_regular_step_is_found_and_nothing_else_is_said(step: int) -> None:
    times = START + 3 * MINUTE + np.arange(50) * step * MINUTE
    found = on_grid(times, None)
    assert found.step == step * MINUTE
    np.testing.assert_array_equal(found.times, times)
    assert found.findings == [f"cadence {step}min detected"]
    assert not len(found.thinned)


def test_steps_of_half_minutes() -> None:
    assert on_grid(START + np.arange(20) * np.timedelta64(150, "s"), None).step == np.timedelta64(150, "s")


@pytest.mark.parametrize("off", [0, 21, 40])
def test_times_of_scans_are_rounded_to_the_grid(off: int) -> None:
    times = START + np.arange(40) * 15 * MINUTE
    jitter = np.random.default_rng(0).integers(-5, 6, 40) + off
    found = on_grid(times + jitter.astype("timedelta64[s]"), None)
    assert found.step == 15 * MINUTE
    np.testing.assert_array_equal(found.times, times)
    assert "times of " in found.findings[1]
    assert "rounded to steps of 15min" in found.findings[1]


def test_times_are_rounded_to_a_cadence_that_is_given_too() -> None:
    times = START + np.arange(40) * 15 * MINUTE
    found = on_grid(times + np.timedelta64(21, "s") * (np.arange(40) % 2), 15 * MINUTE)
    np.testing.assert_array_equal(found.times, times)
    assert found.findings == ["times of 20 frames rounded to steps of 15min, by at most 21 s"]


def test_seconds_behind_a_full_minute_are_no_grid_of_their_own() -> None:
    times = START + np.arange(9) * 5 * MINUTE
    np.testing.assert_array_equal(on_grid(times + np.timedelta64(20, "s"), None).times, times)


def test_missing_frames_and_nights_are_no_cadence() -> None:
    days = [half_hours(16) + np.timedelta64(day, "D") for day in range(5)]
    times = np.delete(np.concatenate(days), [3, 9, 20, 33, 34, 50, 61, 70])
    assert frequent_steps(times) == {1800: 60}
    assert on_grid(times, None).findings == ["cadence 30min detected"]


def test_finer_parts_are_thinned_to_what_most_frames_have() -> None:
    long_ago = START - np.timedelta64(20, "D") + np.arange(900) * 30 * MINUTE
    found = on_grid(np.concatenate([long_ago, START + np.arange(40) * 15 * MINUTE]), None)
    assert found.step == 30 * MINUTE
    assert len(found.thinned) == 20
    assert "899 of 30min, 39 of 15min" in found.findings[-1]
    assert "20 frames between left out; cadence= chooses another" in found.findings[-1]


def test_the_latest_day_decides_between_parts_alike() -> None:
    earlier = START - np.timedelta64(5, "D") + np.arange(120) * 30 * MINUTE
    found = on_grid(np.concatenate([earlier, START + np.arange(130) * 10 * MINUTE]), None)
    assert found.step == 10 * MINUTE
    assert not len(found.thinned), "coarser parts are frames with gaps"


def test_parts_of_which_neither_divides_the_other() -> None:
    times = minutes(*range(0, 2880, 10), *range(2880, 5760, 15))
    found = on_grid(times, None)
    assert found.step == 15 * MINUTE  # that of the latest frames
    assert len(found.thinned) == 192


def test_a_single_odd_frame_is_not_thinned_but_bad(tmp_path: Path) -> None:
    times = half_hours(6)
    times[4] += 7 * MINUTE
    assert not len(on_grid(times, None).thinned)
    path = write_folder(tmp_path / "a", ramp(6), times)
    with pytest.raises(ValueError, match=rf"{file_name(times[4])}: .* is off the cadence"):
        open_frames(path)


def test_a_cadence_that_is_asked_for_thins_finer_frames(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "a", ramp(12), minutes(*range(0, 120, 10)))
    frames = open_frames(path, cadence="30min")
    assert frames.attrs["cadence"] == "30min"
    np.testing.assert_array_equal(frames.values, ramp(12)[::3])
    assert any("8 frames between left out" in told for told in frames.attrs["findings"])
    assert open_frames(path).attrs["cadence"] == "10min"


def test_the_cadence_of_the_last_frames_is_taken_and_others_are_told() -> None:
    start = np.datetime64("2024-06-01T06:00", "ns")
    minutes = [*range(0, 180, 15), *range(180, 360, 5), *range(360, 660, 15)]
    found = on_grid(start + np.array(minutes) * np.timedelta64(1, "m"), None)
    assert found.step == np.timedelta64(15, "m")
    minutes = [*range(0, 180, 15), *range(180, 360, 5)]
    found = on_grid(start + np.array(minutes) * np.timedelta64(1, "m"), None)
    assert found.step == np.timedelta64(5, "m")
    assert any("other steps are longer (12 of 15min)" in line for line in found.findings)
