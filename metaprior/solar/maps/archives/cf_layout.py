"""What a NetCDF, HDF5 or Zarr file holds: which variable has the frames, along which axes, and at which times."""

import warnings
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from metaprior.solar.maps.archives.archive import NUMBERS, Times
from metaprior.solar.maps.archives.cf_groups import with_channels, with_groups
from metaprior.solar.maps.archives.cf_times import is_time, undecoded, with_times
from metaprior.solar.maps.archives.coordinates import GEOGRAPHIC, Layout, direction
from metaprior.solar.maps.archives.name_times import times_in_names
from metaprior.solar.maps.archives.notes import Notes

Engine = Literal["netcdf4", "zarr"]
FLAGS = {"flag_values", "flag_masks", "flag_meanings"}
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
    """Open a file lazily, without some of its variables; times, latitudes and longitudes are coordinates.

    Variables in groups are found, and those of several channels are divided. Raises OSError if it cannot be read.
    """
    # Listing a local folder is fast: consolidated metadata of Zarr would only be one more thing that can be missing.
    options: dict[str, Any] = {"consolidated": False} if engine == "zarr" else {}
    options |= {"engine": engine, "cache": False, "decode_timedelta": False, "drop_variables": list(leave_out)}
    try:
        with warnings.catch_warnings():  # _FillValue and missing_value that differ: both are missing
            warnings.simplefilter("ignore", xr.SerializationWarning)
            dataset = xr.open_dataset(path, **options)
            if engine == "netcdf4":
                dataset = with_groups(path, dataset, leave_out, options)
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
    close = dataset.close
    arranged = with_channels(with_times(with_rows_and_columns(dataset.set_coords(places))))
    arranged.set_close(close)
    return arranged


def with_rows_and_columns(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with longitudes along columns where a square grid has one dimension for both.

    Dimensions of plain HDF5 have no names but those that NetCDF gives to their lengths.
    """
    axes = {
        kind: name
        for kind, geographic in GEOGRAPHIC.items()
        for name, one in dataset.variables.items()
        if one.ndim == 1 and geographic.recognises(name, one.attrs)
    }
    if len(axes) < 2 or dataset[axes["longitude"]].dims != dataset[axes["latitude"]].dims:
        return dataset
    (rows,) = dataset[axes["latitude"]].dims
    columns = [
        dims[number + 1]
        for dims in (one.dims for one in dataset.data_vars.values())
        for number in range(len(dims) - 1)
        if dims[number] == rows and dataset.sizes[dims[number + 1]] == dataset.sizes[rows]
    ]
    if not str(rows).startswith("phony_dim") or not columns:
        return dataset
    longitude = dataset[axes["longitude"]]
    return dataset.assign_coords({axes["longitude"]: (columns[0], longitude.values, longitude.attrs)})


def frame_layouts(dataset: xr.Dataset, variable: str | None = None) -> list[Layout]:
    """Return the variables that may hold frames: those with times or, if there are none, those of one frame.

    Quality flags and bounds are left out and, unless one is named, among those of one frame all but the largest.
    """
    beside = {str(one.attrs.get("bounds", "")) for one in dataset.variables.values()}
    found = [
        layout
        for name, array in dataset.data_vars.items()
        if array.dtype.kind in NUMBERS and not FLAGS & array.attrs.keys() and str(name) not in beside
        if (layout := _layout(str(name), array)) is not None
    ]
    if variable is not None and (named := [layout for layout in found if layout.name == variable]):
        return named
    timed = [layout for layout in found if layout.time is not None]
    if timed or not found:
        return timed
    largest = max(dataset[layout.name].size for layout in found)
    return [layout for layout in found if dataset[layout.name].size == largest]


def choose_layout(source: str, dataset: xr.Dataset, variable: str | None, notes: Notes) -> Layout:
    """Return the layout of the one variable of frames, or of the named one; otherwise it is a problem."""
    suitable = frame_layouts(dataset, variable)
    chosen = suitable if variable is None else [layout for layout in suitable if layout.name == variable]
    if len(chosen) == 1:
        return chosen[0]
    shapes = ", ".join(f"{name} {dict(array.sizes)}" for name, array in dataset.data_vars.items())
    required = "one variable" if variable is None else f"a variable {variable!r}"
    names = ", ".join(layout.name for layout in suitable)
    advice = f". Name one with variable= ({names})" if suitable else ""
    if not suitable and (unclear := undecoded(dataset)):
        advice = (
            f". Times are not understood: {'; '.join(unclear)}. They must be those of CF (minutes since 2024-01-01) in "
            "the standard calendar, or of a form such as 2024-06-01T12:00 or 202406011200"
        )
    problem = (
        f"{source}: there must be {required} with the dimensions time, y and x and decodable times, got "
        f"{shapes or 'nothing'}"
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


def stated_time(dataset: xr.Dataset, name: str) -> tuple[np.datetime64, str] | None:
    """Return the time of a file of one frame and where the file states it; None if it does not.

    It may be a variable of one value, or an attribute of the file or the frame such as ``time_coverage_start``.
    """
    for found, variable in dataset.variables.items():
        if is_time(found, variable) and variable.size == 1 and variable.dtype.kind == "M":
            return to_seconds(variable.values.reshape(1))[0], f"the variable {found}"
    stated = {**dataset[name].attrs, **dataset.attrs}
    attributes = {str(key).lower(): (key, value) for key, value in stated.items()}
    for key in TIME_ATTRIBUTES:
        if key in attributes and (time := _parsed(str(attributes[key][1]))) is not None:
            return time, f"the attribute {attributes[key][0]}"
    return None


def stated_attributes(data: xr.DataArray) -> dict[str, str]:
    """Return the attributes that frames keep, as the file states them."""
    return {key: str(data.attrs[key]) for key in ("units", "long_name", "standard_name") if key in data.attrs}


def _parsed(text: str) -> np.datetime64 | None:
    if ":" in text and (stamp := _timestamp(text)) is not None:  # with its time zone
        return stamp
    if (found := times_in_names([text])) is not None:
        return np.datetime64(found.times[0], "ns")
    return _timestamp(text)


def _timestamp(text: str) -> np.datetime64 | None:
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
