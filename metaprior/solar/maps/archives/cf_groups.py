"""Files whose frames are in groups (HDF5, NetCDF-4), and variables of several channels: each becomes a variable."""

from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import xarray as xr

from metaprior.solar.maps.archives.archive import NUMBERS
from metaprior.solar.maps.archives.cf_times import is_time
from metaprior.solar.maps.archives.coordinates import direction

MOST_CHANNELS = 64
"""Entries of a dimension that are variables of their own."""


def with_groups(path: Path, dataset: xr.Dataset, leave_out: Iterable[str], options: dict[str, Any]) -> xr.Dataset:
    """Return the dataset with the variables of its groups, if it has no maps outside of them.

    Names of maps are those of the file, with their group (``data/reflectance``) if several groups have maps.
    """
    if any(one.ndim > 1 and one.dtype.kind in NUMBERS for one in dataset.data_vars.values()):
        return dataset
    with netCDF4.Dataset(path) as file:
        groups = sorted(_groups(file), key=lambda group: not group.maps)  # names of their dimensions come first
    several = sum(group.maps for group in groups) > 1
    merged, opened = dataset, [dataset]
    for group in groups:
        prefix = f"{group.path}/"
        own = [name.removeprefix(prefix) for name in leave_out]
        part = xr.open_dataset(path, group=group.path, **{**options, "drop_variables": own})
        opened.append(part)
        renamed: list[Hashable] = [dim for dim, size in part.sizes.items() if merged.sizes.get(dim, size) != size]
        if several and group.maps:
            renamed = [dim for dim in part.sizes if dim in group.dims]
            renamed += [name for name, one in part.data_vars.items() if one.ndim > 1]
        part = part.rename({name: f"{prefix}{name}" for name in renamed})
        new = part.drop_vars([name for name in part.variables if name in merged.variables])
        merged = merged.merge(new, join="override").assign_attrs({**part.attrs, **merged.attrs})
    merged.set_close(partial(_close, opened))
    return merged


def _close(datasets: Iterable[xr.Dataset]) -> None:
    for one in datasets:
        one.close()


def with_channels(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with a variable for each entry of a dimension beside times and places, such as channels.

    ``data`` (time, y, x, variable) becomes ``data[HRV]`` and so on, without reading.
    """
    for name, data in list(dataset.data_vars.items()):
        if (dim := _channels(data)) is None:
            continue
        labels = data[dim].values.tolist() if dim in data.coords else range(data.sizes[dim])
        parts = {f"{name}[{label}]": data.isel({dim: number}, drop=True) for number, label in enumerate(labels)}
        dataset = dataset.drop_vars([name]).assign(parts)
    return dataset


class Group(NamedTuple):
    """A group of a file: its path, its own dimensions, and whether it has maps of numbers."""

    path: str
    dims: frozenset[str]
    maps: bool


def _groups(group: Any, path: str = "") -> Iterator[Group]:
    """Iterate over all groups with variables."""
    for name, inner in group.groups.items():
        here, variables = f"{path}/{name}".lstrip("/"), inner.variables.values()
        if variables:
            maps = any(one.ndim > 1 and getattr(one.dtype, "kind", "") in NUMBERS for one in variables)
            yield Group(here, frozenset(inner.dimensions), maps)
        yield from _groups(inner, here)


def _channels(data: xr.DataArray) -> Hashable | None:
    """Return the one dimension beside time, y and x that has several entries; None if it is not clear which."""
    beside = [dim for dim in data.dims if not (dim in data.coords and data[dim].dtype.kind == "M")]
    directions = {dim: direction(data, dim) for dim in beside}
    if data.dtype.kind not in NUMBERS or sorted(filter(None, directions.values())) != ["x", "y"]:
        return None
    others = [dim for dim, found in directions.items() if found is None and data.sizes[dim] > 1]
    if len(others) != 1 or data.sizes[others[0]] > MOST_CHANNELS or is_time(others[0], data[others[0]].variable):
        return None
    return others[0]
