"""Forecast maps in a file that xarray, Panoply and QGIS read: NetCDF (.nc) or Zarr (.zarr), CF conventions.

Dimensions (forecast_reference_time N, lead_time L, y, x); y and x are called latitude and longitude in the file where
these are known, because programs that draw maps look for axes of that name. ``read_forecast`` calls them y and x again.
docs/solar/frames.md has the layout.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.archives.door import cadence_of
from metaprior.solar.mixture import quantiles as mixture_quantiles

CONVENTIONS = "CF-1.8"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
AXES = ("forecast_reference_time", "lead_time", "y", "x")
PIXELS_AT_ONCE = 2**12
"""Pixels whose quantiles are searched together: the intermediate results of 16 samples stay in a core's cache."""

NO_FILL = {"_FillValue": None}
"""An encoding for coordinates: CF forbids missing values there."""

COMPRESSED = {"zlib": True, "complevel": 4, "shuffle": True, "_FillValue": np.float32(np.nan)}


def write_forecast(
    path: str | os.PathLike[str],
    forecast: GaussianForecast,
    *,
    issued: Times,
    cadence: str,
    like: xr.DataArray,
    quantiles: Sequence[float] = QUANTILES,
    observed: NDArray[Any] | Tensor | None = None,
    attrs: Mapping[str, str | float | int] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> None:
    """Write mean, std, epistemic, aleatoric and quantiles of a forecast in the units of the frames.

    The file appears under its name when it is complete, never before; an earlier one is replaced only if ``overwrite``.

    path: ends in .nc or .zarr.
    forecast: means (S, N, L, Y, X), in the units of ``like``.
    issued: (N,) strictly increasing times of the last input frames, UTC; maps are for 1, ..., L ``cadence`` later.
    like: the frames, or the patch of them, that the forecast is for: coordinates, units and names are taken from it.
    observed: (N, L, Y, X) what happened, if it is known.
    attrs: attributes of the file, such as title, institution or comment.
    """
    path = Path(path)
    kind = _kind(path, overwrite)
    _check(forecast, np.asarray(issued), like, quantiles, observed)
    maps = _maps(forecast, quantiles, progress)
    if observed is not None:
        maps["observed"] = torch.as_tensor(observed).numpy(force=True)
    axes = _axes(np.asarray(issued), forecast.means.shape[2], cadence, like, quantiles)
    variables = {name: _variable(name, values, like) for name, values in maps.items()}
    dataset = xr.Dataset(variables, axes, {**_about(like), **(attrs or {}), "Conventions": CONVENTIONS})
    _put(_named_for_maps(dataset), path, kind)


def read_forecast(path: str | os.PathLike[str]) -> xr.Dataset:
    """The forecast in a file, lazily: (forecast_reference_time, lead_time, y, x), lead times as timedelta64."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; a forecast is a .nc file or a .zarr folder")
    options: dict[str, Any] = {"consolidated": False} if path.suffix == ".zarr" else {}
    engine = "zarr" if path.suffix == ".zarr" else "netcdf4"
    try:
        dataset = xr.open_dataset(path, engine=engine, decode_timedelta=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise OSError(f"{path}: cannot be read as a forecast ({error}); it is truncated, damaged or other") from error
    missing = {"mean", "std", "forecast_reference_time", "lead_time"} - set(dataset.variables)
    if missing:
        dataset.close()
        raise ValueError(f"{path}: no forecast of write_forecast, there is no {', '.join(sorted(missing))}")
    return _named_for_code(dataset)


def _kind(path: Path, overwrite: bool) -> str:
    if path.suffix not in (".nc", ".zarr"):
        raise ValueError(f"{path}: a forecast's file ends in .nc or .zarr")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already; give another name, or overwrite=True to replace it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; make it first")
    return path.suffix


def _check(
    forecast: GaussianForecast,
    issued: Times,
    like: xr.DataArray,
    levels: Sequence[float],
    observed: NDArray[Any] | Tensor | None,
) -> None:
    shape = tuple(forecast.means.shape[1:])
    if len(shape) != 4:
        raise ValueError(f"the forecast's means have to be (S, N, L, Y, X), got shape {tuple(forecast.means.shape)}")
    sizes = tuple(like.sizes.get(dim) for dim in ("y", "x"))
    if sizes != shape[2:]:
        raise ValueError(f"like has {sizes} rows and columns (y, x), but the forecast has {shape[2:]}; give its patch")
    if issued.shape != shape[:1] or issued.dtype.kind != "M" or not (np.diff(issued) > np.timedelta64(0)).all():
        raise ValueError(
            f"issued has to be {shape[0]} strictly increasing times (datetime64), one for each forecast; got {issued}"
        )
    if not levels or not all(0 < level < 1 for level in levels) or not (np.diff(levels) > 0).all():
        raise ValueError(f"quantiles have to increase and lie strictly between 0 and 1, got {tuple(levels)}")
    if observed is not None and tuple(observed.shape) != shape:
        raise ValueError(f"observed has shape {tuple(observed.shape)}, but the forecast has {shape}")


def _maps(forecast: GaussianForecast, levels: Sequence[float], progress: bool) -> dict[str, NDArray[Any]]:
    named = {name: getattr(forecast, name) for name in ("mean", "std", "epistemic", "aleatoric")}
    maps: dict[str, NDArray[Any]] = {name: values.numpy(force=True) for name, values in named.items()}
    return {**maps, "quantiles": _quantiles(forecast, levels, progress)}


def _quantiles(forecast: GaussianForecast, levels: Sequence[float], progress: bool) -> NDArray[Any]:
    """(Q, N, L, Y, X), a few pixels at a time."""
    means = forecast.means.detach().flatten(1)
    scales = forecast.scales.detach().expand_as(forecast.means).flatten(1)
    found = torch.empty(len(levels), means.shape[1], dtype=torch.float64)
    starts = range(0, means.shape[1], PIXELS_AT_ONCE)
    for start in tqdm(starts, desc="quantiles", unit="part", disable=not progress, delay=1):
        part = slice(start, start + PIXELS_AT_ONCE)
        found[:, part] = mixture_quantiles(means[:, part].double(), scales[:, part].double(), levels).cpu()
    return found.reshape(len(levels), *forecast.means.shape[1:]).numpy()


def _variable(name: str, values: NDArray[Any], like: xr.DataArray) -> xr.Variable:
    dims = ("quantile", *AXES) if name == "quantiles" else AXES
    return xr.Variable(dims, values.astype(np.float32), _described(name, like))


def _described(name: str, like: xr.DataArray) -> dict[str, str]:
    """CF attributes of a map; the spread is the ``standard_error`` of what is forecast, in the words of CF."""
    what = str(like.attrs.get("long_name", like.name or "value"))
    said = {
        "mean": f"forecast mean of {what}",
        "std": f"standard deviation of the forecast of {what}",
        "epistemic": f"part of std because the network is uncertain, of {what}",
        "aleatoric": f"part of std because the weather is uncertain, of {what}",
        "quantiles": f"quantiles of the forecast of {what}",
        "observed": f"observed {what}",
    }
    described = {"long_name": said[name], "units": str(like.attrs.get("units", "1"))}
    standard = like.attrs.get("standard_name")
    if standard and name in ("mean", "std", "quantiles", "observed"):
        described["standard_name"] = f"{standard} standard_error" if name == "std" else str(standard)
    if name == "mean":
        described["ancillary_variables"] = "std epistemic aleatoric"
    return described


def _axes(
    issued: Times, leads: int, cadence: str, like: xr.DataArray, levels: Sequence[float]
) -> dict[str, xr.Variable]:
    issued = issued.astype("datetime64[ns]")
    lead = np.arange(1, leads + 1) * cadence_of(cadence)
    axes = {
        "forecast_reference_time": xr.Variable(
            "forecast_reference_time", issued, _names("forecast_reference_time", "time of the last frame seen")
        ),
        "lead_time": xr.Variable("lead_time", lead, _names("forecast_period", "time from the last frame seen")),
        "valid_time": xr.Variable(AXES[:2], issued[:, None] + lead, _names("time", "time that a map is for")),
    }
    level = xr.Variable("quantile", np.array(levels), {"long_name": "probability level", "units": "1"}, NO_FILL)
    return {**{name: _encoded(axis) for name, axis in axes.items()}, "quantile": level, **_places(like)}


def _names(standard: str, long: str) -> dict[str, str]:
    return {"standard_name": standard, "long_name": long}


def _encoded(axis: xr.Variable) -> xr.Variable:
    """Times as whole minutes where that is exact (32 bits: CF-1.8 has no longer integers), otherwise as seconds.

    Plain numbers with CF's attributes: xarray would add one of its own to a timedelta.
    """
    is_date = axis.dtype.kind == "M"
    counted = axis.values - np.datetime64(0, "ns") if is_date else axis.values
    whole = bool((counted % np.timedelta64(1, "m") == np.timedelta64(0)).all())
    unit, step = ("minutes", np.timedelta64(1, "m")) if whole else ("seconds", np.timedelta64(1, "s"))
    numbers = (counted / step).astype(np.int32 if whole else np.float64)
    said = {"units": f"{unit} since 1970-01-01 00:00:00", "calendar": "standard"} if is_date else {"units": unit}
    return xr.Variable(axis.dims, numbers, {**axis.attrs, **said}, NO_FILL)


def _places(like: xr.DataArray) -> dict[str, xr.Variable]:
    """Coordinates of rows and columns, as far as ``like`` has them."""
    names = [name for name in ("latitude", "longitude", "y", "x") if name in like.coords]
    axis = {"latitude": "Y", "longitude": "X", "y": "Y", "x": "X"}
    units = {"latitude": "degrees_north", "longitude": "degrees_east"}
    known = {}
    for name in names:
        variable = like[name].variable
        said = {"standard_name": name, "long_name": name, "units": units[name]} if name in units else {}
        said |= {"axis": axis[name]}
        known[name] = xr.Variable(variable.dims, variable.values, {**variable.attrs, **said}, NO_FILL)
    return known


def _about(like: xr.DataArray) -> dict[str, str]:
    """Who wrote what and when; no path of this machine."""
    program = f"metaprior {version('metaprior')}"
    what = like.attrs.get("long_name", like.name or "frames")
    return {
        "title": f"Forecast of {what}",
        "source": f"{program}, forecast of a Bayesian neural network",
        "history": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {program}: written",
    }


def _named_for_maps(dataset: xr.Dataset) -> xr.Dataset:
    """y and x become latitude and longitude where both are known: a coordinate variable has its dimension's name."""
    if "latitude" in dataset.coords and "longitude" in dataset.coords:
        return dataset.drop_vars(("y", "x"), errors="ignore").swap_dims(y="latitude", x="longitude")
    return dataset


def _named_for_code(dataset: xr.Dataset) -> xr.Dataset:
    if "latitude" not in dataset.dims:
        return dataset
    return dataset.rename_dims(latitude="y", longitude="x").reset_index(("latitude", "longitude"))


def _put(dataset: xr.Dataset, path: Path, kind: str) -> None:
    """Write beside the final name, then move there in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if kind == ".nc":
            packed = dict.fromkeys(dataset.data_vars, COMPRESSED)
            dataset.to_netcdf(temporary, engine="netcdf4", format="NETCDF4", encoding=packed)
            temporary.replace(path)
        else:
            dataset.to_zarr(temporary, mode="w-", consolidated=False)
            _move_folder(temporary, path)
    finally:
        _remove(temporary)


def _move_folder(temporary: Path, path: Path) -> None:
    """A folder cannot replace another in one step: the old one steps aside, and comes back if the new one cannot."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.rename(aside)
    try:
        temporary.rename(path)
    except BaseException:
        if aside.exists():
            aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
