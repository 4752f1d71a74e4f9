"""From settings to tasks: days apart, a range that knows nothing of the test days, and what is refused."""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives.notes import OnBad
from metaprior.solar.maps.dataset import By
from metaprior.solar.maps.days import Days, divide_days
from metaprior.solar.maps.source import SolarSource, range_of
from metaprior.solar.maps.task_settings import FrameTasks, SimulatedTasks, SolarTasks
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, units_from_json, units_to_json
from metaprior.solar.maps.windows import MIN_ELEVATION
from metaprior.solar.simulator import Simulator, write_frames

SMALL: dict[str, Any] = {"input_len": 2, "target_len": 2, "k_shot": 2, "k_query": 2, "patch": 4}


def frames_of_days(days: int, *, units: str = "1") -> xr.DataArray:
    """Bright frames from 6 to 18 o'clock without coordinates; values of a day lie between its number and 1 more."""
    hours = np.arange(12, 37) * np.timedelta64(30, "m")
    times = np.concatenate(
        [np.datetime64("2026-02-01", "ns") + day * np.timedelta64(1, "D") + hours for day in range(days)]
    )
    generator = np.random.default_rng(0)
    number = (np.arange(len(times)) // len(hours))[:, None, None]
    values = (10 + number + generator.random((len(times), 8, 8))).astype(np.float32)
    values[0, 0, 0] = 0.0  # the archive's darkest, so that all else is bright
    attrs = {"units": units, "cadence": "30min", "data_min": float(values.min()), "data_max": float(values.max())}
    return xr.DataArray(values, {"time": ("time", times)}, ("time", "y", "x"), "luminance", attrs)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "frames.nc"
    write_frames(frames_of_days(10), path)
    return path


def source_of(path: Path, **changes: Any) -> Any:
    return FrameTasks(path=str(path), **{**SMALL, **changes}).open(progress=False)


def test_settings_repeat_the_choices_of_dataset_and_loader() -> None:
    """Settings are read without the extra that opens frames, so they repeat these choices."""
    assert get_args(get_type_hints(SolarTasks)["by"]) == get_args(By)
    assert get_args(get_type_hints(FrameTasks)["on_bad"]) == get_args(OnBad)
    assert SolarTasks().min_elevation == MIN_ELEVATION


def test_the_range_is_that_of_the_training_days_alone(archive: Path) -> None:
    source = source_of(archive)
    assert str(source.days["train"]) == "2026-02-01 to 2026-02-05"
    units = source.units
    assert units.data_min == 0
    assert 14 < units.data_max < 15  # day 4 has 14 to 15; the archive goes up to 20
    assert source_of(archive, data_max=30.0).units == ScaledValues(0.0, 30.0)
    assert source_of(archive, data_min=-1.0, data_max=30.0).units == ScaledValues(-1.0, 30.0)
    assert range_of(source.frames, Days("2026-02-03", "2026-02-04")) == pytest.approx((12, 13), abs=0.02)  # type: ignore[arg-type]


def test_no_frame_is_in_two_purposes_and_a_day_lies_between(archive: Path) -> None:
    source = source_of(archive)
    seen = {
        purpose: {
            source.tasks(purpose, 0).reader.times(window)[number].astype("datetime64[D]")
            for index in range(5)
            for part in source.tasks(purpose, 0).windows(index)
            for window in part
            for number in (0, -1)
        }
        for purpose in ("train", "val", "test")
    }
    assert max(seen["train"]) + np.timedelta64(2, "D") <= min(seen["val"])
    assert max(seen["val"]) + np.timedelta64(2, "D") <= min(seen["test"])


def test_given_dates_are_kept_and_validation_is_the_last_of_the_days_before() -> None:
    days = Days("2026-01-30", "2026-02-18")  # type: ignore[arg-type]
    found = divide_days(days, "2026-02-10", "2026-02-11")
    texts = {purpose: str(part) for purpose, part in found.items()}
    assert texts == {
        "train": "2026-01-30 to 2026-02-06",
        "val": "2026-02-08 to 2026-02-09",
        "test": "2026-02-11 to 2026-02-17",
    }
    assert divide_days(days, "2026-02-10", None) == divide_days(days, None, "2026-02-11") == found
    with pytest.raises(ValueError, match="leave nothing to train on or nothing to test on"):
        divide_days(days, "2026-03-10", None)


def test_the_warm_starts_windows_are_about_32_together_from_everywhere(archive: Path) -> None:
    source = source_of(archive)
    for meta_batch, windows in ((4, 8), (5, 6), (64, 2)):
        pooled = source.pooled(meta_batch)
        assert pooled.k_shot + pooled.k_query == windows
    first = source.pooled(4).windows(0)
    assert len({(window.y, window.x) for part in first for window in part}) > 1
    assert source.pooled(4).days == source.days["train"]


def test_settings_go_on_to_the_tasks(archive: Path) -> None:
    tasks = source_of(archive, by="period", patch=0, period_days=2, min_elevation=7.0, seed=3).tasks("train")
    assert (tasks.by, tasks.patch, tasks.period_days, tasks.min_elevation, tasks.seed) == ("period", None, 2, 7.0, 3)
    assert tasks[0].query.x.shape == (2, 2, 8, 8)


def test_simulated_frames_are_seen_as_clear_sky_index_and_described() -> None:
    settings = SimulatedTasks(**SMALL, days=5, size=8, start="2025-06-01", train_before="2025-06-04")
    source = settings.open(progress=False)
    assert source.units == ClearSkyIndex()
    assert source.tasks("train")[0].support.x.shape == (2, 4, 4, 4)  # 2 frames, and the sun at 2 target times
    told = source.describe()
    assert (told["value_units"], told["shape"], told["coordinates"]) == ("W m-2", [8, 8], True)
    assert told["days"]["test"] == ["2025-06-05", "2025-06-05"]


def test_units_survive_a_file() -> None:
    for units in (ClearSkyIndex(1.3), ScaledValues(-1.0, 2.5)):
        assert units_from_json(units_to_json(units)) == units
    with pytest.raises(ValueError, match="got 'kelvin'"):
        units_from_json({"kind": "kelvin"})


def test_a_clear_sky_index_needs_coordinates_and_irradiance(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'tasks.units = "clear_sky" needs latitude and longitude'):
        _ = source_of(archive, units="clear_sky").units
    placed = frames_of_days(5).assign_coords(
        latitude=("y", np.linspace(0, 1, 8)), longitude=("x", np.linspace(0, 1, 8))
    )
    write_frames(placed, tmp_path / "placed.nc")
    with pytest.raises(ValueError, match=r"values must be irradiance in W m-2 .*, got '1'"):
        _ = source_of(tmp_path / "placed.nc", units="clear_sky").units


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": -1}, "patch must be"),
        ({"k_shot": 0}, "k_shot .* at least 1"),
        ({"min_elevation": 90.0}, "min_elevation must be 0 to 90"),
        ({"data_min": 2.0, "data_max": 1.0}, "data_min must be less"),
        ({"data_min": 2.0, "units": "clear_sky"}, 'data_min must be left out unless units = "scaled"'),
        ({"data_max": float("nan")}, "data_max must be a finite number"),
        ({"train_before": "February"}, "train_before must be a day such as"),
        ({"train_before": "20260210"}, "train_before must be a day such as"),
        ({"train_before": "2026-02-10", "test_from": "2026-02-10"}, "at least a day after train_before"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SolarTasks(**changes)


@pytest.mark.parametrize("name", ["value_units", "long_name"])
def test_a_blank_description_of_the_values_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a text such as .*, got ' '\. Leave it out"):
        FrameTasks(path="frames", **{name: " "})  # type: ignore[arg-type]


def test_what_is_said_of_the_values_is_in_the_description(tmp_path: Path) -> None:
    frames = frames_of_days(10)
    np.savez(tmp_path / "frames.npz", time=frames["time"].values, luminance=frames.values)
    plain = source_of(tmp_path / "frames.npz").describe()
    told = source_of(tmp_path / "frames.npz", value_units="K", long_name="cloud top").describe()
    assert (plain["value_units"], plain["long_name"]) == ("1", "luminance")
    assert {**plain, "value_units": "K", "long_name": "cloud top"} == told


def test_a_patch_larger_than_the_map_and_a_start_that_is_no_day_are_refused() -> None:
    with pytest.raises(ValueError, match=r"patch must be at most size \(16\), .* got 32"):
        SimulatedTasks(size=16)
    with pytest.raises(ValueError, match="start must be a day"):
        SimulatedTasks(start="spring")


def test_a_day_of_five_minutes_has_tasks_of_every_purpose_that_share_nothing() -> None:
    frames = Simulator(days=1, size=12, start="2025-06-01", cadence="5min").frames(progress=False)
    settings = FrameTasks(path="", k_shot=1, k_query=2, input_len=3, target_len=2, patch=8, units="clear_sky")
    source = SolarSource(settings, frames, progress=False)
    used = {}
    for purpose in ("train", "val", "test"):
        tasks = source.tasks(purpose)  # type: ignore[arg-type]
        windows = [window for part in tasks.windows(0) for window in part]
        used[purpose] = {time for window in windows for time in tasks.reader.times(window)}
    assert max(used["train"]) + 5 * np.timedelta64(5, "m") < min(used["val"])
    assert max(used["val"]) + 5 * np.timedelta64(5, "m") < min(used["test"])
    assert source.describe()["days"]["train"][0].startswith("2025-06-01T")
