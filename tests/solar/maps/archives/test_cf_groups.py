"""Frames in groups of a file, and variables of several channels."""

import pickle
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from metaprior.solar.maps.archives.frames import open_frames
from tests.solar.maps.archives.test_cf_files import stamp
from tests.solar.maps.archives.test_frames import dataset, half_hours, ramp


def write_groups(folder: Path, groups: dict[str, np.ndarray], other: str = "") -> None:
    folder.mkdir()
    for number, time in enumerate(half_hours(4)):
        with netCDF4.Dataset(folder / stamp(time), "w") as file:
            for name, values in groups.items():
                group = file.createGroup(name)
                group.createDimension("y", values.shape[1])
                group.createDimension("x", values.shape[2])
                group.createVariable("radiance", "f4", ("y", "x"))[:] = values[number]
                group["radiance"].units = "mW m-2"
            if other:
                group = file.createGroup(other)
                group.createDimension("n", 2)
                group.createVariable("quality", "f4", ("n",))[:] = 0
            file.time_coverage_start = f"{str(time)[:19]}Z"


def test_frames_of_a_group(tmp_path: Path) -> None:
    write_groups(tmp_path / "a", {"data/measured": ramp(4)}, other="state")
    frames = open_frames(tmp_path / "a", value_units="!K")
    assert frames.name == "radiance"
    np.testing.assert_array_equal(frames.values, ramp(4))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(frames)).values, ramp(4))
    assert frames.attrs["findings"][0] == "times read from the attribute time_coverage_start of 4 files"


def test_one_of_several_groups_is_chosen(tmp_path: Path) -> None:
    write_groups(tmp_path / "a", {"vis/measured": ramp(4), "ir/measured": ramp(4) + 1})
    with pytest.raises(ValueError, match=r"variable= \(vis/measured/radiance, ir/measured/radiance\)"):
        open_frames(tmp_path / "a")
    frames = open_frames(tmp_path / "a", variable="ir/measured/radiance", value_units="!K")
    np.testing.assert_array_equal(frames.values, ramp(4) + 1)


def test_groups_of_other_sizes(tmp_path: Path) -> None:
    write_groups(tmp_path / "a", {"fine": ramp(4, 6, 8), "coarse": ramp(4)})
    frames = open_frames(tmp_path / "a", variable="coarse/radiance", value_units="!K")
    np.testing.assert_array_equal(frames.values, ramp(4))


def channels(count: int = 2) -> xr.Dataset:
    """Frames as public archives of satellites have them: y and x descend, channels last."""
    values = np.stack([ramp(4) + 1000 * number for number in range(count)], -1)
    coords = {"time": half_hours(4), "y_osgb": [3e3, 2e3, 1e3], "x_osgb": [0.0, 1e3, 2e3, 3e3]}
    names = {"variable": np.array(["HRV", "IR_108"][:count], dtype=object)}
    return xr.Dataset({"data": (("time", "y_osgb", "x_osgb", "variable"), values)}, {**coords, **names})


@pytest.mark.parametrize("kind", ["nc", "zarr", "files"])
def test_a_channel_is_a_variable(kind: str, tmp_path: Path) -> None:
    path, content = tmp_path / f"a.{kind}", channels()
    if kind == "nc":
        content.to_netcdf(path)
    elif kind == "zarr":
        content.to_zarr(path, consolidated=False)
    else:
        path.mkdir()
        for number in range(2):
            content.isel(time=slice(2 * number, 2 * number + 2)).to_netcdf(path / f"{number}.nc")
    with pytest.raises(ValueError, match=r"variable= \(data\[HRV\], data\[IR_108\]\)"):
        open_frames(path)
    frames = open_frames(path, variable="data[IR_108]")
    np.testing.assert_array_equal(np.sort(frames.values.ravel()), np.sort((ramp(4) + 1000).ravel()))


def test_one_channel_with_chunks_of_many_frames(tmp_path: Path) -> None:
    channels(1).to_zarr(tmp_path / "a.zarr", consolidated=False, encoding={"data": {"chunks": (4, 3, 4, 1)}})
    assert open_frames(tmp_path / "a.zarr").shape == (4, 3, 4)


def test_steps_without_times_are_no_channels(tmp_path: Path) -> None:
    content = dataset(ramp(4)).assign_coords(time=np.arange(4.0))
    content.to_netcdf(tmp_path / "a.nc")
    with pytest.raises(ValueError, match="Times are not understood"):
        open_frames(tmp_path / "a.nc")
