import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benchmarks.common.data_folder import data_folder
from metaprior.solar.maps.archives import npy_folder
from metaprior.solar.maps.archives.frames import GapsInTime, open_frames

START = np.datetime64("2024-06-01T09:00", "ns")
STEP = np.timedelta64(30, "m")


def half_hours(count: int) -> np.ndarray:
    return START + np.arange(count) * STEP


def ramp(count: int, rows: int = 3, columns: int = 4, dtype: str = "float32") -> np.ndarray:
    """Values that tell their own place: 100 t + 10 y + x."""
    t, y, x = np.ogrid[:count, :rows, :columns]
    return (100 * t + 10 * y + x).astype(dtype)


def file_name(time: np.datetime64) -> str:
    return str(time.astype("datetime64[m]")).replace("T", "_").replace(":", "") + ".npy"


def write_folder(folder: Path, values: np.ndarray, times: np.ndarray | None = None) -> Path:
    folder.mkdir()
    for time, frame in zip(half_hours(len(values)) if times is None else times, values, strict=True):
        np.save(folder / file_name(time), frame)
    return folder


def dataset(values: np.ndarray, times: np.ndarray | None = None, **attrs: str) -> xr.Dataset:
    """Irradiance north of Frankfurt, by day, described as CF asks for."""
    latitude = ("lat", 50 + 0.1 * np.arange(values.shape[1]), {"units": "degrees_north"})
    longitude = ("lon", 8 + 0.1 * np.arange(values.shape[2]), {"standard_name": "longitude", "units": "degrees_east"})
    coords = {"time": half_hours(len(values)) if times is None else times, "lat": latitude, "lon": longitude}
    described = {"units": "W/m2", "long_name": "irradiance", **attrs}
    return xr.Dataset({"ghi": (("time", "lat", "lon"), values, described)}, coords)


def write(kind: str, tmp_path: Path, values: np.ndarray, times: np.ndarray | None = None) -> Path:
    """The same frames in any of the formats."""
    path = tmp_path / f"archive{'' if kind == 'folder' else '.' + kind}"
    if kind == "folder":
        write_folder(path, values, times)
    elif kind == "npz":
        np.savez_compressed(path, time=half_hours(len(values)) if times is None else times, brightness=values)
    elif kind == "nc":
        dataset(values, times).to_netcdf(path)
    else:
        dataset(values, times).to_zarr(path, consolidated=False)
    return path


KINDS = ["folder", "npz", "nc", "zarr"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_frames(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, ramp(5))
    frames = open_frames(path)
    assert frames.dims == ("time", "y", "x")
    assert frames.dtype == np.float32
    np.testing.assert_array_equal(frames.values, ramp(5))
    np.testing.assert_array_equal(frames.time.values, half_hours(5))
    expected = {"source": str(path), "cadence": "30min", "data_min": 0.0, "data_max": 423.0, "skipped": [], "gaps": []}
    assert {key: frames.attrs[key] for key in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_any_block_can_be_read_in_any_order(kind: str, tmp_path: Path) -> None:
    frames, values = open_frames(write(kind, tmp_path, ramp(6))), ramp(6)
    np.testing.assert_array_equal(frames[2:4, 1:, :2].values, values[2:4, 1:, :2])
    np.testing.assert_array_equal(frames[3].values, values[3])
    np.testing.assert_array_equal(frames[-1, 2, 1].values, values[-1, 2, 1])
    np.testing.assert_array_equal(frames[1:][:, ::2][::2, :, ::-1].values, values[1:][:, ::2][::2, :, ::-1])
    np.testing.assert_array_equal(frames[[4, 0, 5]][:, [2, 0], 1].values, values[[4, 0, 5]][:, [2, 0], 1])
    points = {"time": xr.DataArray([0, 5], dims="p"), "y": xr.DataArray([2, 1], dims="p")}
    np.testing.assert_array_equal(frames.isel(points).values, values[[0, 5], [2, 1]])


@pytest.mark.parametrize("kind", KINDS)
def test_frames_go_to_other_processes(kind: str, tmp_path: Path) -> None:
    frames = open_frames(write(kind, tmp_path, ramp(3)))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(frames)).values, ramp(3))


def test_only_the_files_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = open_frames(write_folder(tmp_path / "a", ramp(6)))
    asked: list[str] = []
    real = npy_folder._mapped
    monkeypatch.setattr(npy_folder, "_mapped", lambda path: (asked.append(path.name), real(path))[1])
    part = frames[1:5][:, 1:2]
    assert asked == []
    assert part[1:3].values.shape == (2, 1, 4)
    assert asked == [file_name(time) for time in half_hours(4)[2:]]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float64", ">f4"])
def test_other_types_become_float32_when_read(dtype: str, tmp_path: Path) -> None:
    values = ramp(2).astype(dtype)
    frames = open_frames(write_folder(tmp_path / "a", values))
    assert frames[1].values.dtype == np.float32
    np.testing.assert_array_equal(frames.values, values.astype(np.float32))


def test_attributes_of_a_netcdf_file_are_kept(tmp_path: Path) -> None:
    dataset(ramp(3), standard_name="surface_downwelling_shortwave_flux_in_air").to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    assert frames.name == "ghi"
    assert frames.attrs["units"] == "W m-2"  # of several spellings the one of CF
    assert frames.attrs["long_name"] == "irradiance"
    assert frames.attrs["standard_name"] == "surface_downwelling_shortwave_flux_in_air"
    assert frames.latitude.dims == ("y",)
    np.testing.assert_allclose(frames[:, 1:].latitude, [50.1, 50.2])
    np.testing.assert_allclose(frames.longitude, [8, 8.1, 8.2, 8.3])


def test_axes_are_found_in_any_order_and_packed_values_are_unpacked(tmp_path: Path) -> None:
    turned = dataset(ramp(3)).transpose("lon", "time", "lat").rename(lat="row")
    packing = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 100.0, "_FillValue": -999}
    turned.to_netcdf(tmp_path / "a.nc", encoding={"ghi": packing})
    frames = open_frames(tmp_path / "a.nc")
    np.testing.assert_array_equal(frames[1:, :, 2].values, ramp(3)[1:, :, 2])
    assert frames.latitude.dims == ("y",)


@pytest.mark.parametrize("kind", ["nc", "zarr"])
@pytest.mark.parametrize("turned", [{"lat"}, {"lon"}, {"lat", "lon"}])
def test_a_file_and_its_mirrored_twin_open_to_the_same_frames(kind: str, turned: set[str], tmp_path: Path) -> None:
    file = dataset(ramp(5))
    paths = [tmp_path / f"{name}.{kind}" for name in ("file", "twin")]
    for path, content in zip(paths, (file, file.isel(dict.fromkeys(turned, slice(None, None, -1)))), strict=True):
        content.to_netcdf(path) if kind == "nc" else content.to_zarr(path, consolidated=False)
    one, other = (open_frames(path) for path in paths)
    assert one.attrs.pop("source") != other.attrs.pop("source")
    assert not other.variable._in_memory, "turning reads nothing"
    np.testing.assert_array_equal(other[1:4, ::2, [2, 0]].values, ramp(5)[1:4, ::2, [2, 0]])
    np.testing.assert_array_equal(other[2, -1].values, ramp(5)[2, -1])
    xr.testing.assert_identical(one, other)
    assert other.latitude.values.tolist() == sorted(other.latitude.values)
    assert other.longitude.values.tolist() == sorted(other.longitude.values)


@pytest.mark.parametrize(
    ("longitude", "first"),
    [([178.0, 179, -180, -179], 0), ([-179.0, -180, 179, 178], 3), ([358.0, 359, 0, 1], 0), ([3.0, 1, 2, 4], 0)],
)
def test_columns_run_eastward_also_over_the_date_line(longitude: list[float], first: int, tmp_path: Path) -> None:
    """Those that run neither way stay as they are."""
    times = half_hours(3) + np.timedelta64(12 if abs(longitude[0]) > 90 and longitude[0] < 300 else 0, "h")
    dataset(ramp(3), times).assign_coords(lon=("lon", longitude, {"units": "degrees_east"})).to_netcdf(
        tmp_path / "a.nc"
    )
    frames = open_frames(tmp_path / "a.nc")
    assert frames.longitude.values.tolist() == (longitude[::-1] if first else longitude)
    assert frames[0, 0, 0].item() == first


def test_a_single_row_has_no_direction(tmp_path: Path) -> None:
    dataset(ramp(3, rows=1)).to_netcdf(tmp_path / "a.nc")
    np.testing.assert_array_equal(open_frames(tmp_path / "a.nc").values, ramp(3, rows=1))


def test_axes_of_a_projection_run_to_the_north_and_the_east(tmp_path: Path) -> None:
    renamed = dataset(ramp(3)).rename(lat="y", lon="x")
    for axis, metres in (("y", [9.0, 8.0, 7.0]), ("x", [1.0, 2.0, 3.0, 4.0])):
        renamed[axis] = (axis, metres, {"units": "m"})
    renamed.to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    np.testing.assert_array_equal(frames.y, [7, 8, 9])
    np.testing.assert_array_equal(frames.values, ramp(3)[:, ::-1])
    assert frames.y.attrs["standard_name"] == "projection_y_coordinate"
    assert "latitude" not in frames.coords


def test_rows_that_are_only_counted_keep_their_order(tmp_path: Path) -> None:
    dataset(ramp(3)).rename(lat="y", lon="x").assign_coords(y=[2, 1, 0], x=[0, 1, 2, 3]).to_netcdf(tmp_path / "a.nc")
    np.testing.assert_array_equal(open_frames(tmp_path / "a.nc").values, ramp(3))


def test_times_in_days_of_floating_point_are_those_that_were_meant(tmp_path: Path) -> None:
    days = {"time": {"units": "days since 1949-12-01", "dtype": "float64"}}
    dataset(ramp(48) / 10, half_hours(48)).to_netcdf(tmp_path / "a.nc", encoding=days)
    np.testing.assert_array_equal(open_frames(tmp_path / "a.nc").time.values, half_hours(48))


def test_one_of_several_variables_is_chosen_by_name(tmp_path: Path) -> None:
    both = dataset(ramp(3))
    both["twice"] = 2 * both.ghi
    both.to_netcdf(tmp_path / "a.nc")
    np.savez(tmp_path / "a.npz", time=half_hours(3), ghi=ramp(3), twice=2 * ramp(3), note=np.zeros(2))
    for path in (tmp_path / "a.nc", tmp_path / "a.npz"):
        np.testing.assert_array_equal(open_frames(path, variable="twice").values, 2 * ramp(3))


def test_missing_times_are_gaps_with_a_warning(tmp_path: Path) -> None:
    times = np.delete(half_hours(12), [2, 6, 7, 8])
    path = write_folder(tmp_path / "a", ramp(8), times)
    with pytest.warns(
        GapsInTime, match=r"a: 2 gaps in time, 4 frames missing; no window crosses them:\n  2024-06-01T09:30"
    ):
        frames = open_frames(path)
    assert frames.attrs["gaps"] == [
        "2024-06-01T09:30 to 2024-06-01T10:30: 1 missing",
        "2024-06-01T11:30 to 2024-06-01T13:30: 3 missing",
    ]
    np.testing.assert_array_equal(frames.time.values, times)


def test_nights_are_no_gaps_and_outages_as_long_as_nights_are(tmp_path: Path) -> None:
    times = np.concatenate([half_hours(16) + np.timedelta64(day, "D") for day in range(4)])
    frames = open_frames(write_folder(tmp_path / "days", ramp(64), times))  # a warning would be an error
    assert frames.attrs["gaps"] == []
    outage = np.delete(np.arange(64), np.arange(17, 31))
    with pytest.warns(GapsInTime, match=r"1 gap in time, 14 frames missing, besides 3 nights; no window crosses them"):
        frames = open_frames(write_folder(tmp_path / "outage", ramp(50), times[outage]))
    (line,) = frames.attrs["gaps"]
    assert line.endswith(": 14 missing")
    lost_day = np.delete(np.arange(64), np.arange(16, 32))
    with pytest.warns(GapsInTime, match=r"1 gap in time, 80 frames missing, besides 1 night; no window"):
        open_frames(write_folder(tmp_path / "lost", ramp(48), times[lost_day]))


def test_missing_values_at_night_are_kept(tmp_path: Path) -> None:
    values = ramp(20)  # 12:00 to 21:30 UTC; near Frankfurt the sun sinks below 5 degrees before 19:00
    times = half_hours(20) + np.timedelta64(3, "h")
    values[-3:, 1] = np.nan  # 20:30 and later
    dataset(values, times).to_netcdf(tmp_path / "a.nc")
    frames = open_frames(tmp_path / "a.nc")
    np.testing.assert_array_equal(frames.values, values)
    assert frames.attrs["data_max"] == np.nanmax(values)


def test_other_cadences(tmp_path: Path) -> None:
    times = START + np.arange(4) * np.timedelta64(10, "m")
    frames = open_frames(write_folder(tmp_path / "a", ramp(4), times), cadence="10min")
    assert frames.attrs["cadence"] == "10min"
    assert len(frames) == 4


# VmHWM and not ru_maxrss, which a new process inherits from the one that started it.
PEAKS = """
import re, sys
from pathlib import Path
from metaprior.solar.maps.archives.frames import open_frames
for folder in sys.argv[1:]:
    frames = open_frames(folder, progress=False)
    assert frames[-4:, 100:132, 100:132].values.shape == (4, 32, 32)
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a peak")


def large_folder(folder: Path, count: int) -> Path:
    """This many frames of 512 x 512, 1 MiB each to whoever reads them, and one on the disk."""
    folder.mkdir()
    np.save(folder / ".frame.npy", np.linspace(0, 1, 512 * 512, dtype=np.float32).reshape(512, 512))
    for time in half_hours(count):
        os.link(folder / ".frame.npy", folder / file_name(time))
    return folder


def peaks_in_mib(*folders: Path) -> list[int]:
    """Peak memory of a fresh process after opening one folder after the other."""
    command = [sys.executable, "-c", PEAKS, *map(str, folders)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
    return [int(line) for line in done.stdout.split()]


@needs_proc
def test_memory_does_not_grow_with_the_number_of_frames(tmp_path: Path) -> None:
    few, many = peaks_in_mib(large_folder(tmp_path / "few", 100), large_folder(tmp_path / "many", 500))
    assert many - few < 20  # 400 frames of 1 MiB more
    assert many < 500


@needs_proc
@pytest.mark.slow
def test_twenty_thousand_frames_stay_under_500_megabytes(tmp_path: Path) -> None:
    (peak,) = peaks_in_mib(large_folder(tmp_path / "archive", 20_000))
    assert peak < 500


def public(name: str) -> Path:
    path = data_folder() / name
    if not path.is_file():
        pytest.skip(f"{path} is not there (METAPRIOR_DATA names the folder)")
    return path


def test_sarah_opens_as_it_is_with_its_missing_values_at_dusk() -> None:
    frames = open_frames(public("sarah_sis/SARAH-SIS.nc"))
    assert frames.shape == (48, 61, 51)
    assert frames.attrs["units"] == "W m-2"
    assert frames.attrs["standard_name"] == "surface_downwelling_shortwave_flux_in_air"
    assert frames.attrs["data_max"] == 285.0
    assert int(np.isnan(frames.values).sum()) == 2550
    np.testing.assert_allclose(frames.latitude[[0, -1]], [49, 52])
    np.testing.assert_allclose(frames.longitude[[0, -1]], [5, 7.5])


def test_himawari_opens_with_its_gaps() -> None:
    path = public("himawari9/himawari9_lum_30min_256.npz")
    with pytest.warns(GapsInTime, match="9 gaps in time, 13 frames missing"):
        frames = open_frames(path)
    assert frames.shape == (899, 256, 256)
    assert (frames.attrs["data_min"], frames.attrs["data_max"]) == (0.0, 255.0)
