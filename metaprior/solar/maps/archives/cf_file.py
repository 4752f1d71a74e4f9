"""A NetCDF or Zarr file that follows the CF conventions: axes found by what they say of themselves, values decoded."""

import math
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from metaprior.solar.maps.archives.archive import (
    LARGEST_BLOCK_BYTES,
    NUMERIC,
    Archive,
    Index,
    Positions,
    Times,
    Values,
    as_range,
    at_time,
    most_frames_at_once,
    to_float32,
)
from metaprior.solar.maps.archives.value_units import IRRADIANCE, IRRADIANCE_SPELLINGS

PLACES = {
    "latitude": ({"lat", "latitude"}, {"degrees_north", "degree_north", "degrees_n", "degree_n"}, 90.0),
    "longitude": ({"lon", "longitude"}, {"degrees_east", "degree_east", "degrees_e", "degree_e"}, 360.0),
}
"""How a coordinate of places can be told: its names, its units in small letters, and how large it can be."""


@dataclass(frozen=True)
class CFReader:
    """A variable (time, y, x) of an open file, decoded when it is read."""

    path: Path
    times: Times
    variable: xr.Variable
    together: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, rows and columns."""
        frames, rows, columns = self.variable.shape
        return frames, rows, columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type after decoding."""
        dtype: np.dtype[Any] = self.variable.dtype
        return dtype

    def called(self, position: int) -> str:
        """The file, the number and the time."""
        return f"{self.path}, frame {position} ({at_time(self.times[position])})"

    def read(self, frames: Positions, rows: Index, columns: Index) -> Values:
        """A block as float32, missing values as NaN."""
        return to_float32(np.asarray(self.variable[as_range(frames), rows, columns].values))


def read_cf(path: Path, variable: str | None, engine: Literal["netcdf4", "zarr"]) -> Archive:
    """The one variable of three dimensions, one of them time, or the one that ``variable`` names."""
    dataset = _open(path, engine)
    data = _choose(path, dataset, variable)
    time = _time_axis(data)
    y, x = _y_and_x(data, [dim for dim in data.dims if dim != time])
    if data.dtype.kind not in NUMERIC or not data.size:
        raise ValueError(f"{path}: {data.name} has to hold numbers, got {data.dtype} of shape {data.shape}")
    times = _whole_seconds(data[time].values)
    together = int(data.encoding.get("preferred_chunks", {}).get(time, 1))
    if data.encoding.get("preferred_chunks"):
        _tell_of_large_chunks(path, data, time, engine)
    data = _turned(data, y, x)
    reader = CFReader(path, times, data.variable.transpose(time, y, x), together)
    return Archive(times, reader, str(data.name), _attributes(data), _coordinates(path, data, y, x), dataset.close)


def _open(path: Path, engine: Literal["netcdf4", "zarr"]) -> xr.Dataset:
    # A folder on this machine is listed in no time: Zarr's consolidated metadata would only be one more thing to miss.
    options: dict[str, Any] = {"consolidated": False} if engine == "zarr" else {}
    try:
        return xr.open_dataset(path, engine=engine, cache=False, decode_timedelta=False, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        kind = "Zarr" if engine == "zarr" else "NetCDF"
        raise OSError(f"{path}: cannot be read as {kind} ({error}); it is truncated, damaged or other") from error


def _choose(path: Path, dataset: xr.Dataset, variable: str | None) -> xr.DataArray:
    shapes = ", ".join(f"{name} {dict(array.sizes)}" for name, array in dataset.data_vars.items()) or "nothing"
    fitting = [name for name, array in dataset.data_vars.items() if array.ndim == 3 and _time_axis(array) is not None]
    wanted = fitting if variable is None else [name for name in fitting if name == variable]
    if len(wanted) == 1:
        return dataset[wanted[0]]
    asked = "one variable" if variable is None else f"a variable {variable!r}"
    advice = "; name one with variable=" if variable is None and fitting else ""
    raise ValueError(
        f"{path}: expected {asked} with the dimensions time, y and x and known times, found {shapes}{advice}"
    )


def _time_axis(data: xr.DataArray) -> Hashable | None:
    """The dimension whose coordinate was decoded to times."""
    return next((dim for dim in data.dims if dim in data.coords and data[dim].dtype.kind == "M"), None)


def _whole_seconds(times: Times) -> Times:
    """Times to the nearest second: those stored as days in floating point are off by microseconds."""
    nanoseconds = times.astype("datetime64[ns]")
    return (nanoseconds + np.timedelta64(500, "ms")).astype("datetime64[s]").astype("datetime64[ns]")


def _y_and_x(data: xr.DataArray, dims: list[Hashable]) -> tuple[Hashable, Hashable]:
    """Rows and columns: as the axes say; otherwise the order of the file is kept."""
    first, second = dims
    swapped = _points_to(data, first) == "x" or _points_to(data, second) == "y"
    return (second, first) if swapped else (first, second)


def _points_to(data: xr.DataArray, dim: Hashable) -> str | None:
    if _place(data, "latitude", dim) is not None:
        return "y"
    if _place(data, "longitude", dim) is not None:
        return "x"
    attrs = data[dim].attrs if dim in data.coords else {}
    said = attrs.get("axis", str(dim)).lower()
    return said if said in ("y", "x") else None


def _place(data: xr.DataArray, kind: str, *dims: Hashable) -> xr.DataArray | None:
    """The coordinate over exactly these dimensions that is latitude or longitude."""
    names, units, _ = PLACES[kind]
    coordinate: xr.DataArray
    for name, coordinate in data.coords.items():
        attrs = coordinate.attrs
        says_so = attrs.get("standard_name") == kind or str(attrs.get("units")).lower() in units
        if set(coordinate.dims) == set(dims) and (says_so or str(name).lower() in names):
            return coordinate
    return None


def _tell_of_large_chunks(path: Path, data: xr.DataArray, time: Hashable, engine: Literal["netcdf4", "zarr"]) -> None:
    """Warn where a file's own chunks make it slow to read by frames, or take more memory than a block may.

    A chunk is unpacked as a whole, whatever is wanted of it; only another file can change that.
    """
    chunks: Mapping[Hashable, int] = data.encoding["preferred_chunks"]
    size = math.prod(chunks.values()) * np.dtype(data.encoding.get("dtype", data.dtype)).itemsize
    most = most_frames_at_once(*(length for dim, length in data.sizes.items() if dim != time))
    times_over = math.ceil(min(chunks[time], data.sizes[time]) / most)
    costs = []
    if size > LARGEST_BLOCK_BYTES:
        costs.append("any reading needs memory for whole chunks, so its peak is not bounded here")
    if times_over > 1:
        costs.append(f"to check the frames, {most} or fewer at a time, every chunk is unpacked {times_over} times")
    if costs:
        shape, dims = " x ".join(str(chunks[dim]) for dim in data.dims), ", ".join(map(str, data.dims))
        warnings.warn(
            f"{path}: {data.name} is stored in chunks of {shape} values ({dims}), {size / 2**20:,.1f} MiB each: "
            f"{'; '.join(costs)}. Store it anew in chunks of few frames: {_rechunking(data, time, engine)}",
            stacklevel=5,
        )


def _rechunking(data: xr.DataArray, time: Hashable, engine: Literal["netcdf4", "zarr"]) -> str:
    """How: into chunks of whole frames that are small beside a block."""
    grid = {dim: length for dim, length in data.sizes.items() if dim != time}
    few = max(1, most_frames_at_once(*grid.values()) // 8)
    shape = {dim: grid.get(dim, min(few, data.sizes[time])) for dim in data.dims}
    if engine == "netcdf4":
        return f"nccopy -c {','.join(f'{dim}/{length}' for dim, length in shape.items())} OLD.nc NEW.nc"
    return f"chunks {tuple(shape.values())}, with to_zarr of xarray (docs/solar/frames.md has the lines)"


def _turned(data: xr.DataArray, y: Hashable, x: Hashable) -> xr.DataArray:
    """With the first row in the south and the first column in the west, as the simulator has it; nothing is read.

    A network that has learned how clouds move over one archive would otherwise see another one's weather mirrored.
    Where places are not known, or are not in order, the file's own order is kept.
    """
    latitude, longitude = _place(data, "latitude", y), _place(data, "longitude", x)
    if latitude is None or longitude is None:
        return data
    northward = np.diff(latitude.values.astype(np.float64))
    eastward = np.diff(longitude.values.astype(np.float64))
    eastward -= 360 * np.sign(eastward) * (np.abs(eastward) > 180)  # from 179 to -180 degrees is a step to the east
    both = ((y, northward), (x, eastward))
    return data.isel({dim: slice(None, None, -1) for dim, steps in both if steps.size and (steps < 0).all()})


def _coordinates(path: Path, data: xr.DataArray, y: Hashable, x: Hashable) -> dict[str, xr.Variable]:
    """Latitude (y) and longitude (x) where they are known, otherwise the file's own axes."""
    latitude, longitude = _place(data, "latitude", y), _place(data, "longitude", x)
    if latitude is not None and longitude is not None:
        return {
            "latitude": _degrees(path, latitude, "latitude", "y"),
            "longitude": _degrees(path, longitude, "longitude", "x"),
        }
    if _place(data, "latitude", y, x) is not None:
        warnings.warn(
            f"{path}: latitude and longitude are given for every pixel; only grids with one latitude for each row and "
            "one longitude for each column are known here, so night is told by brightness",
            stacklevel=5,
        )
    named = {"y": y, "x": x}
    return {
        name: xr.Variable(name, data[dim].values, data[dim].attrs) for name, dim in named.items() if dim in data.coords
    }


def _degrees(path: Path, coordinate: xr.DataArray, kind: str, dim: str) -> xr.Variable:
    limit = PLACES[kind][2]
    values = np.asarray(coordinate.values, dtype=np.float64)
    if not (np.abs(values) <= limit).all():
        raise ValueError(f"{path}: {coordinate.name} has to lie within {-limit:g} and {limit:g} degrees, got {values}")
    unit = "degrees_north" if kind == "latitude" else "degrees_east"
    return xr.Variable(dim, coordinate.values, {"standard_name": kind, "long_name": kind, "units": unit})


def _attributes(data: xr.DataArray) -> dict[str, str]:
    """Units, names: what the file says of itself, with one spelling of W m-2."""
    known = {key: str(data.attrs[key]) for key in ("units", "long_name", "standard_name") if key in data.attrs}
    if known.get("units") in IRRADIANCE_SPELLINGS:
        known["units"] = IRRADIANCE
    return known
