"""Times of a file that CF does not decode: text, numbers such as 202406011200, seconds since 1970, decimal days."""

from collections.abc import Hashable

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.archives.name_times import times_in_names

TIME_NAMES = ("time", "valid_time", "t", "times", "datetime", "date_time", "time_utc", "timestamp", "timestamps")
READ_AS = "read_as"
"""Attribute of times that were not decoded by CF: the form in which they are written."""
DECIMAL_DAY = "day as %Y%m%d.%f"


def is_time(name: Hashable, variable: xr.Variable) -> bool:
    """Return whether a variable states times, by its standard name or its name."""
    return variable.attrs.get("standard_name") == "time" or str(name).lower().rpartition("/")[2] in TIME_NAMES


def with_times(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with the times that a variable states along a dimension as that dimension's coordinate."""
    for name, variable in list(dataset.variables.items()):
        if variable.ndim != 1 or not is_time(name, variable) or name not in dataset.variables:
            continue
        dim = variable.dims[0]
        if dim in dataset.coords and dataset[dim].dtype.kind == "M":
            continue
        if variable.dtype.kind != "M":
            if (found := _understood(variable)) is None:
                continue
            times, form = found
            dataset = dataset.drop_vars([name]).assign_coords({name: (dim, times, {READ_AS: form})})
        if name != dim:
            dataset = dataset.set_coords(name).swap_dims({dim: name})
    return dataset


def told_times(dataset: xr.Dataset, time: Hashable | None) -> list[str]:
    """Return how times that are not those of CF were read, as a line to tell."""
    form = None if time is None else dataset[time].attrs.get(READ_AS)
    return [] if form is None else [f"times of {time} are not those of CF: read as {form}"]


def undecoded(dataset: xr.Dataset) -> list[str]:
    """Return what variables of times hold that was not understood."""
    told = []
    for name, variable in dataset.variables.items():
        if is_time(name, variable) and variable.dtype.kind != "M" and variable.size:
            about = {**variable.attrs, **variable.encoding}
            stated = ", ".join(f"{key} {about[key]!r}" for key in ("units", "calendar") if key in about)
            first = variable.isel(dict.fromkeys(variable.dims, 0)).values[()]
            told.append(f"{name} holds {first!s}" + (f" ({stated})" if stated else ""))
    return told


def _understood(variable: xr.Variable) -> tuple[Times, str] | None:
    """Return the times of text or numbers, and their form; None if they are of no known form."""
    values = variable.values
    if values.dtype.kind in "iuf" and str(variable.attrs.get("units", "")).startswith("day as %Y%m%d"):
        days = np.floor(values.astype(np.float64))
        found = times_in_names([f"{day:.0f}" for day in days])
        if found is None or found.form != "YYYYMMDD":
            return None
        seconds = np.round((values - days) * 86400).astype("timedelta64[s]")
        return found.times + seconds, DECIMAL_DAY
    if values.dtype.kind in "iuf":
        whole = bool(np.isfinite(values).all()) and bool((values == np.round(values)).all())
        texts = [f"{value:.0f}" for value in values] if whole else []
    elif values.dtype.kind in "SUO":
        texts = [one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in values.tolist()]
        if values.dtype.kind != "O" or all(isinstance(one, str | bytes) for one in values.tolist()):
            stamps = pd.to_datetime(pd.Series(texts), utc=True, errors="coerce", format="ISO8601")
            if not stamps.isna().any():
                return stamps.dt.tz_convert(None).to_numpy("datetime64[ns]"), "text"
        else:
            return None  # dates of another calendar
    else:
        return None
    found = times_in_names(texts) if texts else None
    return None if found is None or np.isnat(found.times).any() else (found.times, found.form)
