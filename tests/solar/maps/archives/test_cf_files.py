"""Folders and patterns of NetCDF and HDF5 files, one for each time step, day or month, as agencies write them."""

import pickle
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives import cf_files
from metaprior.solar.maps.archives.frames import BadFramesSkipped, open_frames
from tests.solar.maps.archives.test_frames import dataset, half_hours, ramp

pytestmark = pytest.mark.filterwarnings("ignore::metaprior.solar.maps.archives.frames.GapsInTime")


def stamp(time: np.datetime64, form: str = "SIS_%Y%m%d_%H%M.nc") -> str:
    text: str = time.astype("datetime64[m]").astype(object).strftime(form)
    return text


def write_steps(
    folder: Path, content: xr.Dataset, form: str = "SIS_%Y%m%d_%H%M.nc", *, keep: str = "axis", **to: Any
) -> Path:
    """Write one file for each time; ``keep`` is how a file states it: "axis", "scalar", "attribute" or "name"."""
    for number, time in enumerate(content["time"].values):
        one = content.isel(time=[number] if keep == "axis" else number)
        if keep in ("attribute", "name"):
            one = one.drop_vars("time")
        if keep == "attribute":
            one.attrs["time_coverage_start"] = f"{str(time)[:19]}Z"
        path = folder / stamp(time, form)
        path.parent.mkdir(parents=True, exist_ok=True)
        one.to_netcdf(path, **to)
    return folder


@pytest.mark.parametrize("keep", ["axis", "scalar", "attribute", "name"])
def test_one_file_for_each_step_wherever_it_states_its_time(keep: str, tmp_path: Path) -> None:
    path = write_steps(tmp_path / "a", dataset(ramp(5)), keep=keep)
    frames = open_frames(path)
    np.testing.assert_array_equal(frames.values, ramp(5))
    np.testing.assert_array_equal(frames.time.values, half_hours(5))
    assert (frames.attrs["units"], frames.attrs["cadence"], frames.latitude.dims) == ("W m-2", "30min", ("y",))
    told = {
        "axis": "times read from the variable time of 5 files",
        "scalar": "times read from the variable time of 5 files",
        "attribute": "times read from the attribute time_coverage_start of 5 files",
        "name": "times read from the names of 5 files (YYYYMMDDhhmm)",
    }
    assert frames.attrs["findings"] == [told[keep], "cadence 30min detected"]
    np.testing.assert_array_equal(frames[[4, 0]][:, ::2, 1].values, ramp(5)[[4, 0]][:, ::2, 1])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(frames)).values, ramp(5))


def test_files_of_several_frames_in_any_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, part in (("c", slice(0, 4)), ("a", slice(4, 9)), ("b", slice(9, 12))):
        dataset(ramp(12)).isel(time=part).to_netcdf(tmp_path / "a" / f"{name}.nc4")
    frames = open_frames(tmp_path / "a")
    np.testing.assert_array_equal(frames.values, ramp(12))
    np.testing.assert_array_equal(frames[3:10, 1:, [0, 3]].values, ramp(12)[3:10, 1:][:, :, [0, 3]])


@pytest.mark.parametrize("pattern", ["*/*.nc", "**/*.nc", "", "day?/SIS*.nc"])
def test_patterns_and_subfolders(pattern: str, tmp_path: Path) -> None:
    content = dataset(ramp(4))
    write_steps(tmp_path / "day1", content.isel(time=slice(0, 2)))
    write_steps(tmp_path / "day2", content.isel(time=slice(2, 4)))
    frames = open_frames(tmp_path / pattern)
    np.testing.assert_array_equal(frames.values, ramp(4))


def test_a_pattern_of_one_file_and_of_none(tmp_path: Path) -> None:
    dataset(ramp(4)).to_netcdf(tmp_path / "whole.nc")
    assert len(open_frames(tmp_path / "w*.nc")) == 4
    with pytest.raises(ValueError, match=r"x\*\.nc: no file has such a name"):
        open_frames(tmp_path / "x*.nc")


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = open_frames(write_steps(tmp_path / "a", dataset(ramp(20))))
    opened: list[str] = []
    real = cf_files.open_dataset
    monkeypatch.setattr(cf_files, "open_dataset", lambda path, *rest: (opened.append(path.name), real(path, *rest))[1])
    frames.close()
    part = frames[3:6]
    assert opened == []
    np.testing.assert_array_equal(part.values, ramp(20)[3:6])
    assert opened == [stamp(time) for time in half_hours(20)[3:6]]
    np.testing.assert_array_equal(part.values, ramp(20)[3:6])
    assert len(opened) == 3, "they are still open"


def test_plain_hdf5_without_scales_of_its_dimensions(tmp_path: Path) -> None:
    for number, time in enumerate(half_hours(4)):
        with netCDF4.Dataset(tmp_path / stamp(time, "LSASAF_MSG_DSSF_%Y%m%d%H%M.h5"), "w") as file:
            file.createDimension("rows", 3)
            file.createDimension("columns", 4)
            values = file.createVariable("DSSF", "i2", ("rows", "columns"), fill_value=-1)
            values.scale_factor, values.units = 0.1, "W/m^2"
            values[:] = ramp(4)[number]
            file.createVariable("quality", "i2", ("rows", "columns")).flag_meanings = "good bad"
    frames = open_frames(tmp_path)
    np.testing.assert_allclose(frames.values, ramp(4), atol=1e-4)
    assert frames.name == "DSSF"
    assert frames.attrs["units"] == "W m-2"


def test_dimensions_of_length_one_are_left_out(tmp_path: Path) -> None:
    content = dataset(ramp(4))
    content["ghi"] = content["ghi"].expand_dims(level=[2.0], axis=1)
    content.to_netcdf(tmp_path / "a.nc")
    np.testing.assert_array_equal(open_frames(tmp_path / "a.nc").values, ramp(4))


def test_a_pattern_of_times_comes_before_what_files_state(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "a", dataset(ramp(4)), "%d.%m.%Y at %H-%M.nc")
    shifted = write_steps(tmp_path / "b", dataset(ramp(4)), "%d.%m.%Y at %H-%M.nc", keep="name")
    for one in (path, shifted):
        frames = open_frames(one, time_pattern="%d.%m.%Y at %H-%M")
        np.testing.assert_array_equal(frames.time.values, half_hours(4))
    with pytest.raises(ValueError, match=r"no times were found .* Give the form .* time_pattern="):
        open_frames(shifted)
    with pytest.raises(ValueError, match=r"no times of the form '%Y' were|time_pattern must be a pattern"):
        open_frames(shifted, time_pattern="%Y")
    whole = tmp_path / "c"
    whole.mkdir()
    for part in (slice(0, 2), slice(2, 4)):
        dataset(ramp(4)).isel(time=part).to_netcdf(whole / f"2024060{1 + (part.start > 0)}.nc")
    with pytest.raises(ValueError, match=r"time_pattern= is for files of one frame, and 20240601\.nc has 2"):
        open_frames(whole, time_pattern="%Y%m%d")


def spoiled(folder: Path, case: str) -> str:
    """Change the third file, and return what is said of it."""
    path = folder / stamp(half_hours(6)[2])
    with xr.open_dataset(path) as file:
        content = file.load()
    if case == "damaged":
        path.write_bytes(path.read_bytes()[:300])
        return "cannot be read as NetCDF"
    changed = {
        "smaller": lambda: content.isel(lat=slice(0, 2)),
        "other units": lambda: content.assign(ghi=content["ghi"].assign_attrs(units="K")),
        "other variable": lambda: content.rename(ghi="dni"),
        "other place": lambda: content.assign_coords(lat=content["lat"] + 1.0),
        "no time": lambda: content.isel(time=0, drop=True),
    }[case]()
    path.unlink()
    changed.to_netcdf(path)
    return {
        "smaller": "frames of 2 x 4 pixels, but 5 of 6 files have 3 x 4",
        "other units": "values in 'K', but 5 of 6 files have 'W/m2'",
        "other variable": "must hold ghi over time, lat, lon, as the other files, got no such variable",
        "other place": "its coordinates differ from those of SIS_20240601_0900.nc",
        "no time": "must hold ghi over time, lat, lon",
    }[case]


@pytest.mark.parametrize("case", ["damaged", "smaller", "other units", "other variable", "other place", "no time"])
def test_a_file_that_differs_is_named_or_left_out(case: str, tmp_path: Path) -> None:
    folder = write_steps(tmp_path / "a", dataset(ramp(6)))
    said = spoiled(folder, case)
    with pytest.raises(ValueError, match=r'SIS_20240601_1000\.nc: .*on_bad="skip" leaves') as error:
        open_frames(folder)
    assert said in str(error.value)
    with pytest.warns(BadFramesSkipped, match="1 bad frame left out"):
        frames = open_frames(folder, on_bad="skip")
    np.testing.assert_array_equal(frames.values, np.delete(ramp(6), 2, axis=0))


def test_all_problems_are_said_at_once_with_what_settles_them(tmp_path: Path) -> None:
    content = dataset(ramp(6))
    content["dni"] = content["ghi"] * 2
    folder = write_steps(tmp_path / "a", content)
    (folder / stamp(half_hours(6)[4])).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="a: 5 problems:") as error:
        open_frames(folder, cadence="soon", missing="ignore", value_units="K")  # type: ignore[arg-type]
    for said in (
        'cadence must be a positive length of time such as "30min" or "1h", got \'soon\'',
        "missing must be",
        "Name one with variable= (ghi, dni)",
        'value_units="!K"',
        "SIS_20240601_1100.nc: cannot be read as NetCDF",
    ):
        assert said in str(error.value)


def test_many_bad_frames_are_said_at_once(tmp_path: Path) -> None:
    values = ramp(12)
    values[[2, 5, 9], 0, 0] = np.nan
    folder = write_steps(tmp_path / "a", dataset(values))
    with pytest.raises(
        ValueError, match=r"3 frames cannot be used:(\n  .*SIS_20240601_\d{4}.*){3}\nRepair or remove them"
    ):
        open_frames(folder)


def test_holes_are_kept_on_demand_and_empty_frames_left_out(tmp_path: Path) -> None:
    values = ramp(10)
    values[2:5, 1] = np.nan
    values[8:] = np.nan
    dataset(values).to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc", missing="keep")
    np.testing.assert_array_equal(frames.values, values[:8])
    assert "3 frames with missing values kept (30 % of all)" in frames.attrs["findings"]
    assert "2 frames without any value (night, or empty) left out" in frames.attrs["findings"]
    values[3, 0, 0] = np.inf
    dataset(values).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(ValueError, match="1 of 12 values are infinite"):
        open_frames(tmp_path / "b.nc", missing="keep")


@pytest.mark.parametrize("many", [False, True])
def test_values_outside_the_valid_range_are_missing(many: bool, tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, size in (("time", 4), ("y", 3), ("x", 4)):
            file.createDimension(name, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "minutes since 2024-06-01 09:00"
        time[:] = 30 * np.arange(4)
        values = file.createVariable("C", "i2", ("time", "y", "x"))
        values.set_auto_maskandscale(False)
        values.scale_factor, values.add_offset, values.valid_range = 0.5, 10.0, np.array([0, -6], "i2")
        values._Unsigned, values.units = "true", "1"
        stored = (100 * np.arange(48).reshape(4, 3, 4)).astype("u2")
        stored[1, 0, 0], stored[2, 0, 1] = 65533, 65530
        values[:] = stored.view("i2")
    path = tmp_path / "a.nc"
    if many:
        with xr.open_dataset(path, mask_and_scale=False) as whole:
            for number in range(4):
                (tmp_path / "many").mkdir(exist_ok=True)
                whole.isel(time=[number]).to_netcdf(tmp_path / "many" / f"{number}.nc")
        path = tmp_path / "many"
    frames = open_frames(path, missing="keep")
    expected = stored * 0.5 + 10
    expected[1, 0, 0] = np.nan
    np.testing.assert_array_equal(frames.values, expected)


def test_every_file_has_a_packing_of_its_own(tmp_path: Path) -> None:
    for number, time in enumerate(half_hours(3)):
        with netCDF4.Dataset(tmp_path / stamp(time), "w") as file:
            for name, size in (("y", 3), ("x", 4)):
                file.createDimension(name, size)
            values = file.createVariable("B", "i2", ("y", "x"))
            values.scale_factor, values.valid_max, values.SCALING_FACTOR = 2.0**-number, np.int16(1000), 10.0
            values[:] = ramp(3)[number]
            values.set_auto_maskandscale(False)
            values[2, 3] = 1001
    frames = open_frames(tmp_path, missing="keep")
    expected = ramp(3)
    expected[:, 2, 3] = np.nan
    np.testing.assert_array_equal(frames.values, expected)
    assert "not applied, because they are no attributes of CF: SCALING_FACTOR = 10.0" in frames.attrs["findings"]


def test_a_thousand_files_open_in_seconds(tmp_path: Path) -> None:
    import time

    times = half_hours(1)[0] + np.arange(200) * np.timedelta64(1, "m")
    folder = write_steps(tmp_path / "a", dataset(ramp(200) % 1000, times))
    before = time.process_time()
    assert len(open_frames(folder)) == 200
    assert time.process_time() - before < 4  # 1,000 in 20; usually in 3
