"""Write frames in the formats that ``open_frames`` reads."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from metaprior.files import written_when_complete

FRAMES_A_CHUNK = 16
DESCRIBES_VALUES = ("units", "long_name", "standard_name")
TIME_ENCODING = {"units": "minutes since 1970-01-01", "dtype": "int64"}
FRAME_NAME = re.compile(r"\d{4}-\d\d-\d\d_\d{4}\.npy")


def write_frames(frames: xr.DataArray, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write frames (time, y, x) to a NetCDF file (.nc), a Zarr folder (.zarr) or a folder of npy files (no suffix).

    NetCDF and Zarr follow the CF conventions and keep coordinates and units. A folder of ``YYYY-MM-DD_hhmm.npy`` files
    keeps the values alone: without coordinates, night can only be told by brightness. The path appears only when it is
    complete; an existing archive is replaced only with ``overwrite``.
    """
    path = Path(path)
    if frames.dims != ("time", "y", "x"):
        raise ValueError(f"frames must have the dimensions ('time', 'y', 'x'), got {frames.dims}")
    check_path(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    chunks = (min(FRAMES_A_CHUNK, len(frames)), *frames.shape[1:])
    with written_when_complete(path) as temporary:
        if path.suffix == ".nc":
            packed = {"chunksizes": chunks, "zlib": True, "complevel": 1}
            _dataset(frames, packed).to_netcdf(temporary, engine="netcdf4")
        elif path.suffix == ".zarr":
            # Version 2, because many programs do not read version 3 yet.
            _dataset(frames, {"chunks": chunks}).to_zarr(temporary, zarr_format=2, consolidated=True)
        else:
            _write_folder(frames, temporary)


def check_path(path: Path, *, overwrite: bool) -> None:
    """Raise unless frames can be written there; a folder that holds anything but frames is not replaced."""
    if path.suffix not in (".nc", ".zarr", ""):
        raise ValueError(
            f"{path}: the path of frames must end in .nc or .zarr, or be a folder without suffix, got {path.suffix}"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Give another path, or overwrite=True (--overwrite) to replace it")
    if path.is_dir():
        names = [entry.name for entry in path.iterdir()]
        zarr = path.suffix == ".zarr"
        if not ({".zgroup", "zarr.json"} & set(names) if zarr else all(map(FRAME_NAME.fullmatch, names))):
            raise ValueError(
                f"{path} must be a folder of frames to be replaced, and it holds other files. Give another path"
            )


def _dataset(frames: xr.DataArray, encoding: dict[str, object]) -> xr.Dataset:
    """Return a dataset whose dimensions are latitude and longitude where these are known, as CF asks for."""
    names = {"y": "latitude", "x": "longitude"}
    dims = {dim: name for dim, name in names.items() if name in frames.coords and frames[name].dims == (dim,)}
    about = {name: frames.attrs[name] for name in DESCRIBES_VALUES if name in frames.attrs}
    array = frames.swap_dims(dims).drop_attrs(deep=False).assign_attrs(about).rename(frames.name or "frames")
    dataset = array.to_dataset().assign_attrs(Conventions="CF-1.8", source=str(frames.attrs.get("source", "unknown")))
    for coordinate in dataset.coords.values():
        coordinate.encoding = {"_FillValue": None}
    dataset["time"].encoding = dict(TIME_ENCODING)
    dataset[array.name].encoding = encoding
    return dataset


def _write_folder(frames: xr.DataArray, folder: Path) -> None:
    times = pd.DatetimeIndex(frames["time"].values)
    odd = times[times != times.floor("min")]
    if len(odd):
        raise ValueError(f"times of npy files must be whole minutes, got {odd[0]}. Write .nc or .zarr")
    folder.mkdir()
    for number, time in enumerate(times):
        np.save(folder / f"{time:%Y-%m-%d_%H%M}.npy", frames[number].values)
