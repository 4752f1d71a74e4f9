"""Frames are read back as they were written."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives.frames import open_frames
from metaprior.solar.simulator import simulate, write_frames


@pytest.fixture(scope="module")
def frames() -> xr.DataArray:
    return simulate(days=2, size=6, progress=False)


@pytest.mark.parametrize("name", ["sim.nc", "sim.zarr", "sim"])
def test_open_frames_reads_what_was_written(frames: xr.DataArray, name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / name
    write_frames(frames, path)
    again = open_frames(path, progress=False)
    np.testing.assert_array_equal(again.values, frames.values)
    np.testing.assert_array_equal(again["time"], frames["time"])
    assert [entry.name for entry in path.parent.iterdir()] == [name]
    if path.suffix:
        for place in ("latitude", "longitude"):
            np.testing.assert_array_equal(again[place], frames[place])
            assert again[place].dims == frames[place].dims
        assert (again.attrs["units"], again.name) == ("W m-2", "ghi")


def test_files_follow_the_conventions(frames: xr.DataArray, tmp_path: Path) -> None:
    write_frames(frames, tmp_path / "sim.nc")
    with xr.open_dataset(tmp_path / "sim.nc", decode_times=False) as file:
        assert file.attrs["Conventions"] == "CF-1.8"
        assert file["ghi"].dims == ("time", "latitude", "longitude")
        assert file["ghi"].attrs["standard_name"] == "surface_downwelling_shortwave_flux_in_air"
        assert file["time"].attrs["units"] == "minutes since 1970-01-01"
        assert np.diff(file["time"])[0] == 30
        assert "_FillValue" not in file["latitude"].encoding
    assert frames.dims == ("time", "y", "x")
    assert "_FillValue" not in frames["latitude"].encoding


def test_a_folder_with_other_things_is_never_replaced(frames: xr.DataArray, tmp_path: Path) -> None:
    for name in ("data", "data.zarr"):
        (tmp_path / name / "other").mkdir(parents=True)
        (tmp_path / name / "other" / "precious.txt").write_text("mine")
        with pytest.raises(ValueError, match="and it holds other files"):
            write_frames(frames, tmp_path / name, overwrite=True)
        assert (tmp_path / name / "other" / "precious.txt").read_text() == "mine"


def test_what_is_there_stays_unless_it_may_go(frames: xr.DataArray, tmp_path: Path) -> None:
    for name in ("sim.nc", "sim.zarr", "sim"):
        write_frames(frames, tmp_path / name)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            write_frames(frames, tmp_path / name)
        write_frames(frames[:20], tmp_path / name, overwrite=True)
        assert len(open_frames(tmp_path / name, progress=False)) == 20


def test_a_failure_leaves_what_was_there(frames: xr.DataArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frames(frames[:5], tmp_path / "sim")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space left"):
        write_frames(frames, tmp_path / "sim", overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sim"]
    assert len(list((tmp_path / "sim").iterdir())) == 5


def test_frames_without_coordinates_keep_their_dimensions(tmp_path: Path) -> None:
    times = np.datetime64("2025-06-01T10:00", "ns") + np.arange(3) * np.timedelta64(30, "m")
    plain = xr.DataArray(np.ones((3, 2, 4)), {"time": times}, ("time", "y", "x"))
    write_frames(plain, tmp_path / "plain.nc")
    with xr.open_dataset(tmp_path / "plain.nc") as file:
        assert dict(file["frames"].sizes) == {"time": 3, "y": 2, "x": 4}


def test_frames_that_cannot_be_written(frames: xr.DataArray, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"end in .nc or .zarr, or be a folder without suffix, got .csv"):
        write_frames(frames, tmp_path / "sim.csv")
    with pytest.raises(ValueError, match="must have the dimensions"):
        write_frames(frames[0], tmp_path / "sim.nc")
    late = frames.assign_coords(time=frames["time"] + np.timedelta64(10, "s"))
    with pytest.raises(ValueError, match=r"times of npy files must be whole minutes, got 2025-03-01 .*:10"):
        write_frames(late, tmp_path / "sim")
    assert not list(tmp_path.iterdir())
