"""What a NetCDF, HDF5 or Zarr file holds: which variable has the frames, along which axes, and at which times."""

import warnings
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from metaprior.solar.maps.archives.archive import NUMBERS, Times
from metaprior.solar.maps.archives.coordinates import GEOGRAPHIC, Layout, direction
from metaprior.solar.maps.archives.name_times import times_in_names
from metaprior.solar.maps.archives.notes import Notes

Engine = Literal["netcdf4", "zarr"]
FLAGS = {"flag_values", "flag_masks", "flag_meanings"}
TIME_NAMES = ("time", "valid_time", "t", "datetime", "date_time")
TIME_ATTRIBUTES = (
    "time_coverage_start",
    "nominal_time",
    "nominal_product_time",
    "start_time",
    "observation_start_time",
    "observation_time",
    "image_acquisition_time",
    "datetime",
    "date_time",
    "time",
)
"""Attributes of a file, in small letters, that may state the time of its one frame."""


def open_dataset(path: Path, engine: Engine, leave_out: Iterable[str] = ()) -> xr.Dataset:
    """Open a file lazily, without some of its variables; latitudes and longitudes are coordinates.

    Raises OSError if it cannot be read.
    """
    # Listing a local folder is fast: consolidated metadata of Zarr would only be one more thing that can be missing.
    options: dict[str, Any] = {"consolidated": False} if engine == "zarr" else {}
    options |= {"drop_variables": list(leave_out)} if leave_out else {}
    try:
        with warnings.catch_warnings():  # _FillValue and missing_value that differ: both are missing
            warnings.simplefilter("ignore", xr.SerializationWarning)
            dataset = xr.open_dataset(path, engine=engine, cache=False, decode_timedelta=False, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        kind = "Zarr" if engine == "zarr" else "NetCDF"
        raise OSError(
            f"{path}: cannot be read as {kind} ({error}); it is truncated, damaged or of another format"
        ) from error
    places = [
        name
        for name, one in dataset.data_vars.items()
        if one.ndim <= 2 and any(geographic.recognises(name, one.attrs) for geographic in GEOGRAPHIC.values())
    ]
    return dataset.set_coords(places)


def frame_layouts(dataset: xr.Dataset) -> list[Layout]:
    """Return the variables that may hold frames: those with times or, if there are none, those of one frame.

    Quality flags and bounds are left out, and among those of one frame all but the largest.
    """
    beside = {str(one.attrs.get("bounds", "")) for one in dataset.variables.values()}
    found = [
        layout
        for name, array in dataset.data_vars.items()
        if array.dtype.kind in NUMBERS and not FLAGS & array.attrs.keys() and str(name) not in beside
        if (layout := _layout(str(name), array)) is not None
    ]
    timed = [layout for layout in found if layout.time is not None]
    if timed or not found:
        return timed
    largest = max(dataset[layout.name].size for layout in found)
    return [layout for layout in found if dataset[layout.name].size == largest]


def choose_layout(source: str, dataset: xr.Dataset, variable: str | None, notes: Notes) -> Layout:
    """Return the layout of the one variable of frames, or of the named one; otherwise it is a problem."""
    suitable = frame_layouts(dataset)
    chosen = suitable if variable is None else [layout for layout in suitable if layout.name == variable]
    if len(chosen) == 1:
        return chosen[0]
    shapes = ", ".join(f"{name} {dict(array.sizes)}" for name, array in dataset.data_vars.items())
    shapes = shapes or "nothing (groups of a file are not read)"
    required = "one variable" if variable is None else f"a variable {variable!r}"
    names = ", ".join(layout.name for layout in suitable)
    advice = f". Name one with variable= ({names})" if suitable else ""
    problem = (
        f"{source}: there must be {required} with the dimensions time, y and x and decodable times, got {shapes}"
        f"{advice}"
    )
    if not chosen:
        notes.stop(source, problem)
    notes.problem(problem)
    return chosen[0]


def arranged(dataset: xr.Dataset, layout: Layout, turned: Iterable[Hashable] = ()) -> xr.Variable:
    """Return the frames (time, y, x), or one frame (y, x), without reading them, some axes turned round."""
    data = dataset[layout.name].variable
    data = data.isel({dim: 0 for dim in data.dims if dim not in layout.dims})
    return data.isel({dim: slice(None, None, -1) for dim in turned}).transpose(*layout.dims)


def to_seconds(times: np.ndarray[Any, Any]) -> Times:
    """Return times to the second: those stored as days in floating point are off by microseconds."""
    exact = times.astype("datetime64[ns]")
    return (exact + np.timedelta64(500, "ms")).astype("datetime64[s]").astype("datetime64[ns]")


def stated_time(dataset: xr.Dataset) -> tuple[np.datetime64, str] | None:
    """Return the time of a file of one frame and where the file states it; None if it does not.

    It may be a variable of one value, or an attribute of the file such as ``time_coverage_start``.
    """
    for name, variable in dataset.variables.items():
        named = variable.attrs.get("standard_name") == "time" or str(name).lower() in TIME_NAMES
        if named and variable.size == 1 and variable.dtype.kind == "M":
            return to_seconds(variable.values.reshape(1))[0], f"the variable {name}"
    attributes = {str(name).lower(): (name, value) for name, value in dataset.attrs.items()}
    for key in TIME_ATTRIBUTES:
        if key in attributes and (time := _parsed(str(attributes[key][1]))) is not None:
            return time, f"the attribute {attributes[key][0]}"
    return None


def stated_attributes(data: xr.DataArray) -> dict[str, str]:
    """Return the attributes that frames keep, as the file states them."""
    return {key: str(data.attrs[key]) for key in ("units", "long_name", "standard_name") if key in data.attrs}


def _parsed(text: str) -> np.datetime64 | None:
    if (found := times_in_names([text])) is not None:
        return np.datetime64(found.times[0], "ns")
    try:
        stamp = pd.Timestamp(text)
    except ValueError:
        return None
    if stamp is pd.NaT:
        return None
    return np.datetime64(stamp.tz_convert(None) if stamp.tz is not None else stamp, "ns")


def _layout(name: str, array: xr.DataArray) -> Layout | None:
    """Return the dimensions of a variable if it can hold frames: two beside time, and any others of length one."""
    time = next((dim for dim in array.dims if dim in array.coords and array[dim].dtype.kind == "M"), None)
    places = [dim for dim in array.dims if dim != time]
    while len(places) > 2:
        single = next((dim for dim in places if array.sizes[dim] == 1 and direction(array, dim) is None), None)
        if single is None:
            return None
        places.remove(single)
    if len(places) < 2:
        return None
    first, second = places
    swapped = direction(array, first) == "x" or direction(array, second) == "y"
    return Layout(name, time, *((second, first) if swapped else (first, second)))
