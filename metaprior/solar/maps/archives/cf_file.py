"""One NetCDF, HDF5 or Zarr file of many frames: axes are found by their attributes, values are decoded."""

import math
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from metaprior.solar.maps.archives.archive import LARGEST_BLOCK_BYTES, Archive, frames_per_block
from metaprior.solar.maps.archives.cf_files import read_cf_files
from metaprior.solar.maps.archives.cf_layout import (
    Engine,
    arranged,
    choose_layout,
    open_dataset,
    stated_attributes,
    to_seconds,
)
from metaprior.solar.maps.archives.cf_times import told_times
from metaprior.solar.maps.archives.cf_values import masked, note_other_scaling, valid_range
from metaprior.solar.maps.archives.coordinates import Layout, grid_of
from metaprior.solar.maps.archives.notes import Notes


def read_cf(
    path: Path, variable: str | None, time_pattern: str | None, engine: Engine, notes: Notes, progress: bool
) -> Archive:
    """Return the archive of the one variable of frames, or of the named variable."""
    dataset = open_dataset(path, engine)
    layout = choose_layout(str(path), dataset, variable, notes)
    if layout.time is None:  # one frame, as those of a folder
        dataset.close()
        return read_cf_files(path, [path], variable, time_pattern, notes, progress)
    data = dataset[layout.name]
    if not data.size:
        notes.stop(str(path), f"{path}: {data.name} must hold numbers, got {data.dtype} of shape {data.shape}")
    chunks = data.encoding.get("preferred_chunks")
    if chunks:
        _warn_of_large_chunks(path, data, layout, engine)
    grid = grid_of(path, dataset, layout, notes)
    values = masked(arranged(dataset, layout, grid.turned), valid_range(data))
    frames_per_chunk = int(chunks.get(layout.time, 1)) if chunks else 1
    attrs = stated_attributes(data)
    notes.findings += told_times(dataset, layout.time)
    note_other_scaling(data, notes)
    times = to_seconds(data[layout.time].values)
    return Archive(path, times, values, layout.name, attrs, grid.coords, frames_per_chunk, close=dataset.close)


def _warn_of_large_chunks(path: Path, data: xr.DataArray, layout: Layout, engine: Engine) -> None:
    """Warn if the file's chunks make reading by frames slow, or need more memory than a block may have.

    A chunk is decompressed as a whole, however little of it is read; only rewriting the file changes that.
    """
    chunks: Mapping[Hashable, int] = data.encoding["preferred_chunks"]
    size = math.prod(chunks.values()) * np.dtype(data.encoding.get("dtype", data.dtype)).itemsize
    time, *grid = layout.dims
    most = frames_per_block(*(data.sizes[dim] for dim in grid))
    times_read = math.ceil(min(chunks[time], data.sizes[time]) / most)
    costs = []
    if size > LARGEST_BLOCK_BYTES:
        costs.append("reading needs memory for whole chunks, so its peak is not bounded here")
    if times_read > 1:
        costs.append(f"to check the frames, {most} or fewer at a time, every chunk is decompressed {times_read} times")
    if not costs:
        return
    smaller = {**data.sizes, time: min(max(1, most // 8), data.sizes[time])}
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
