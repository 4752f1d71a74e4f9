"""Times that CF does not decode: text, numbers, decimal days, and coordinates of another dimension."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from metaprior.solar.maps.archives.frames import open_frames
from tests.solar.maps.archives.test_frames import dataset, half_hours, ramp

SECONDS = half_hours(4).astype("datetime64[s]")
TEXT = [str(time) for time in SECONDS]


@pytest.mark.parametrize(
    ("times", "form"),
    [
        ([one.encode() for one in TEXT], "text"),
        ([one.encode() + b"+00:00" for one in TEXT], "text"),
        (SECONDS.astype(np.int64), "seconds since 1970"),
        (SECONDS.astype(np.int64) * 1000, "milliseconds since 1970"),
        ([int(one[:16].translate(str.maketrans("", "", "-T:"))) for one in TEXT], "YYYYMMDDhhmm"),
    ],
)
def test_plain_hdf5_of_a_square_grid_has_times_and_places(times: list[object], form: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["ghi"] = ramp(4, 3, 3)
        file["lat"], file["lon"], file["time"] = [50.0, 51.0, 52.0], [8.0, 9.0, 10.0], times
    frames = open_frames(tmp_path / "a.h5")
    np.testing.assert_array_equal(frames.time, half_hours(4))
    np.testing.assert_array_equal(frames.values, ramp(4, 3, 3))
    np.testing.assert_array_equal(frames.longitude, [8, 9, 10])
    assert f"times of time are not those of CF: read as {form}" in frames.attrs["findings"]


def test_decimal_days(tmp_path: Path) -> None:
    days = 20240601 + (half_hours(4) - np.datetime64("2024-06-01")) / np.timedelta64(1, "D")
    content = dataset(ramp(4)).assign_coords(time=("time", days, {"units": "day as %Y%m%d.%f"}))
    content.to_netcdf(tmp_path / "a.nc")
    np.testing.assert_array_equal(open_frames(tmp_path / "a.nc").time, half_hours(4))


@pytest.mark.parametrize("many", [False, True])
def test_times_that_are_a_coordinate_of_another_dimension(many: bool, tmp_path: Path) -> None:
    content = dataset(ramp(6), half_hours(6)).rename(time="step").rename_vars(step="valid_time")
    for number, part in enumerate((slice(0, 3), slice(3, 6)) if many else (slice(None),)):
        content.isel(step=part).to_netcdf(tmp_path / f"{number}.nc")
    frames = open_frames(tmp_path)
    np.testing.assert_array_equal(frames.time, half_hours(6))
    np.testing.assert_array_equal(frames.values, ramp(6))


def test_times_that_are_not_understood_are_named(tmp_path: Path) -> None:
    content = dataset(ramp(4))
    content["time"] = ("time", np.arange(4) / 48, {"units": "days since 2024-01-01", "calendar": "noleap"})
    content.to_netcdf(tmp_path / "a.nc")
    with pytest.raises(ValueError, match=r"time holds 2024-01-01 00:00:00 \(units .*calendar 'noleap'\)"):
        open_frames(tmp_path / "a.nc")
    content["time"] = ("time", np.arange(4) + 1.0)
    content.to_netcdf(tmp_path / "b.nc")
    with pytest.raises(ValueError, match=r"Times are not understood: time holds 1\.0\. They must be"):
        open_frames(tmp_path / "b.nc")


@pytest.mark.parametrize("text", ["2024-06-01T09:00:00+02:00", "2024-06-01 07:00:00Z", "01-Jun-2024 07:00:00"])
def test_attributes_state_times_with_their_zone(text: str, tmp_path: Path) -> None:
    for number in range(3):
        one = dataset(ramp(3)).isel(time=number).drop_vars("time")
        one.attrs["start_time"] = text.replace(":00:00", f":{10 * number:02d}:00")
        one.to_netcdf(tmp_path / f"{number}.nc")
    assert str(open_frames(tmp_path).time.values[0])[:16] == "2024-06-01T07:00"


def test_the_variable_may_state_the_time_of_a_file(tmp_path: Path) -> None:
    for number, time in enumerate(half_hours(3)):
        one = dataset(ramp(3), start_time=str(time)[:19].replace("T", " ")).isel(time=number).drop_vars("time")
        one.to_netcdf(tmp_path / f"{number}.nc")
    frames = open_frames(tmp_path)
    np.testing.assert_array_equal(frames.time, half_hours(3))
    assert "times read from the attribute start_time of 3 files" in frames.attrs["findings"]
