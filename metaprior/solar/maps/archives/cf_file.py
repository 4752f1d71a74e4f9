"""A NetCDF or Zarr file that follows the CF conventions: axes are found by their attributes, values are decoded."""

import math
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from metaprior.solar.maps.archives.archive import LARGEST_BLOCK_BYTES, NUMBERS, Archive, frames_per_block
from metaprior.solar.value_units import one_spelling

Engine = Literal["netcdf4", "zarr"]


class Geographic(NamedTuple):
    """How a coordinate of places is recognised, its units as written to frames, and its largest absolute value."""

    names: set[str]
    units: str
    limit: float
    dim: str


GEOGRAPHIC = {
    "latitude": Geographic({"lat", "latitude"}, "degrees_north", 90.0, "y"),
    "longitude": Geographic({"lon", "longitude"}, "degrees_east", 360.0, "x"),
}


def read_cf(path: Path, variable: str | None, engine: Engine) -> Archive:
    """Return the archive of the one variable with three dimensions, one of them time, or of the named variable."""
    dataset = _open(path, engine)
    data = _choose(path, dataset, variable)
    time = _time_axis(data)
    y, x = _y_and_x(data, [dim for dim in data.dims if dim != time])
    if data.dtype.kind not in NUMBERS or not data.size:
        raise ValueError(f"{path}: {data.name} must hold numbers, got {data.dtype} of shape {data.shape}")
    exact = data[time].values.astype("datetime64[ns]")  # times stored as days in floating point are off by microseconds
    times = (exact + np.timedelta64(500, "ms")).astype("datetime64[s]").astype("datetime64[ns]")
    frames_per_chunk = int(data.encoding.get("preferred_chunks", {}).get(time, 1))
    if data.encoding.get("preferred_chunks"):
        _warn_of_large_chunks(path, data, time, engine)
    data = _oriented(data, y, x)
    attrs = {key: str(data.attrs[key]) for key in ("units", "long_name", "standard_name") if key in data.attrs}
    if "units" in attrs:
        attrs["units"] = one_spelling(attrs["units"])
    values, coords = data.variable.transpose(time, y, x), _coordinates(path, data, y, x)
    return Archive(path, times, values, str(data.name), attrs, coords, frames_per_chunk, close=dataset.close)


def _open(path: Path, engine: Engine) -> xr.Dataset:
    # Listing a local folder is fast: consolidated metadata of Zarr would only be one more thing that can be missing.
    options: dict[str, Any] = {"consolidated": False} if engine == "zarr" else {}
    try:
        return xr.open_dataset(path, engine=engine, cache=False, decode_timedelta=False, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        kind = "Zarr" if engine == "zarr" else "NetCDF"
        raise OSError(
            f"{path}: cannot be read as {kind} ({error}); it is truncated, damaged or of another format"
        ) from error


def _choose(path: Path, dataset: xr.Dataset, variable: str | None) -> xr.DataArray:
    suitable = [name for name, array in dataset.data_vars.items() if array.ndim == 3 and _time_axis(array) is not None]
    chosen = suitable if variable is None else [name for name in suitable if name == variable]
    if len(chosen) == 1:
        return dataset[chosen[0]]
    shapes = ", ".join(f"{name} {dict(array.sizes)}" for name, array in dataset.data_vars.items()) or "nothing"
    required = "one variable" if variable is None else f"a variable {variable!r}"
    advice = ". Name one with variable=" if variable is None and suitable else ""
    raise ValueError(
        f"{path}: there must be {required} with the dimensions time, y and x and decodable times, got {shapes}{advice}"
    )


def _time_axis(data: xr.DataArray) -> Hashable | None:
    """Return the dimension whose coordinate was decoded to times."""
    return next((dim for dim in data.dims if dim in data.coords and data[dim].dtype.kind == "M"), None)


def _y_and_x(data: xr.DataArray, dims: list[Hashable]) -> tuple[Hashable, Hashable]:
    """Return the dimensions of rows and columns: by their coordinates, otherwise in the order of the file."""
    first, second = dims
    swapped = _direction(data, first) == "x" or _direction(data, second) == "y"
    return (second, first) if swapped else (first, second)


def _direction(data: xr.DataArray, dim: Hashable) -> str | None:
    for kind, geographic in GEOGRAPHIC.items():
        if _find(data, kind, dim) is not None:
            return geographic.dim
    attrs = data[dim].attrs if dim in data.coords else {}
    axis = attrs.get("axis", str(dim)).lower()
    return axis if axis in ("y", "x") else None


def _find(data: xr.DataArray, kind: str, *dims: Hashable) -> xr.DataArray | None:
    """Return the coordinate over exactly these dimensions that is latitude or longitude."""
    geographic = GEOGRAPHIC[kind]
    unit = geographic.units.removeprefix("degrees_")  # degrees_north, degree_north, degrees_N and degree_N
    spellings = {f"{word}_{end}" for word in ("degrees", "degree") for end in (unit, unit[0])}
    coordinate: xr.DataArray
    for name, coordinate in data.coords.items():
        attrs = coordinate.attrs
        stated = attrs.get("standard_name") == kind or str(attrs.get("units")).lower() in spellings
        if set(coordinate.dims) == set(dims) and (stated or str(name).lower() in geographic.names):
            return coordinate
    return None


def _places(data: xr.DataArray, y: Hashable, x: Hashable) -> dict[str, xr.DataArray]:
    """Return latitude of the rows and longitude of the columns, if the data have them."""
    coordinates = {kind: _find(data, kind, dim) for kind, dim in (("latitude", y), ("longitude", x))}
    return {kind: coordinate for kind, coordinate in coordinates.items() if coordinate is not None}


def _warn_of_large_chunks(path: Path, data: xr.DataArray, time: Hashable, engine: Engine) -> None:
    """Warn if the file's chunks make reading by frames slow, or need more memory than a block may have.

    A chunk is decompressed as a whole, however little of it is read; only rewriting the file changes that.
    """
    chunks: Mapping[Hashable, int] = data.encoding["preferred_chunks"]
    size = math.prod(chunks.values()) * np.dtype(data.encoding.get("dtype", data.dtype)).itemsize
    grid = {dim: length for dim, length in data.sizes.items() if dim != time}
    most = frames_per_block(*grid.values())
    times_read = math.ceil(min(chunks[time], data.sizes[time]) / most)
    costs = []
    if size > LARGEST_BLOCK_BYTES:
        costs.append("reading needs memory for whole chunks, so its peak is not bounded here")
    if times_read > 1:
        costs.append(f"to check the frames, {most} or fewer at a time, every chunk is decompressed {times_read} times")
    if not costs:
        return
    smaller = {dim: grid.get(dim, min(max(1, most // 8), data.sizes[time])) for dim in data.dims}
    if engine == "netcdf4":
        advice = f"nccopy -c {','.join(f'{dim}/{length}' for dim, length in smaller.items())} OLD.nc NEW.nc"
    else:
        advice = f"chunks {tuple(smaller.values())}, with to_zarr of xarray (docs/solar/frames.md has the lines)"
    shape, dims = " x ".join(str(chunks[dim]) for dim in data.dims), ", ".join(map(str, data.dims))
    warnings.warn(
        f"{path}: {data.name} is stored in chunks of {shape} values ({dims}), {size / 2**20:,.1f} MiB each: "
        f"{'; '.join(costs)}. Store it again in chunks of few frames: {advice}",
        stacklevel=5,
    )


def _oriented(data: xr.DataArray, y: Hashable, x: Hashable) -> xr.DataArray:
    """Return the data with the first row in the south and the first column in the west, without reading it.

    All archives have one orientation, so that a network trained on one does not see another's weather mirrored. Data
    without coordinates, or whose coordinates are not monotonic, keep the order of the file.
    """
    places = _places(data, y, x)
    if len(places) < 2:
        return data
    northward, eastward = (np.diff(coordinate.values.astype(np.float64)) for coordinate in places.values())
    eastward -= 360 * np.sign(eastward) * (np.abs(eastward) > 180)  # from 179 to -180 degrees is a step to the east
    both = ((y, northward), (x, eastward))
    return data.isel({dim: slice(None, None, -1) for dim, steps in both if steps.size and (steps < 0).all()})


def _coordinates(path: Path, data: xr.DataArray, y: Hashable, x: Hashable) -> dict[str, xr.Variable]:
    """Return latitude (y) and longitude (x) where both are known, otherwise the file's own axes."""
    places = _places(data, y, x)
    if len(places) == 2:
        return {kind: _degrees(path, coordinate, kind) for kind, coordinate in places.items()}
    if _find(data, "latitude", y, x) is not None:
        warnings.warn(
            f"{path}: latitude and longitude are given for every pixel; only grids with one latitude for each row and "
            "one longitude for each column are supported, so night is told by brightness",
            stacklevel=5,
        )
    axes = {"y": y, "x": x}
    return {
        name: xr.Variable(name, data[dim].values, data[dim].attrs) for name, dim in axes.items() if dim in data.coords
    }


def _degrees(path: Path, coordinate: xr.DataArray, kind: str) -> xr.Variable:
    _, units, limit, dim = GEOGRAPHIC[kind]
    values = np.asarray(coordinate.values, dtype=np.float64)
    if not (np.abs(values) <= limit).all():
        raise ValueError(f"{path}: {coordinate.name} must lie within {-limit:g} and {limit:g} degrees, got {values}")
    return xr.Variable(dim, coordinate.values, {"standard_name": kind, "long_name": kind, "units": units})
