"""Forecast maps in a file that xarray, Panoply and QGIS read: NetCDF (.nc) or Zarr (.zarr), CF conventions.

Dimensions (forecast_reference_time N, lead_time L, y, x). Where latitude and longitude are known, y and x have those
names in the file, because programs that draw maps look for them; ``read_forecast`` renames them to y and x.
docs/solar/frames.md describes the layout.
"""

import os
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

from metaprior import mixture
from metaprior.files import written_when_complete
from metaprior.forecasts import GaussianForecast
from metaprior.progress import track
from metaprior.solar.maps.archives.archive import Times
from metaprior.solar.maps.archives.frame_times import cadence_of

CONVENTIONS = "CF-1.8"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
AXES = ("forecast_reference_time", "lead_time", "y", "x")
PIXELS_AT_ONCE = 2**12
"""Pixels whose quantiles are computed together: intermediate results of 16 samples stay in a core's cache."""

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

    Args:
        path: The file, ending in .nc or .zarr. It appears under this name only when it is complete.
        forecast: Means (S, N, L, Y, X), in the units of ``like``.
        issued: Strictly increasing times of the last input frames, UTC, (N,).
        cadence: Time between maps, which are for 1, ..., L steps after ``issued``.
        like: The frames, or the patch of them, that the forecast is for: gives coordinates, units and names.
        quantiles: Increasing probability levels.
        observed: What happened, (N, L, Y, X), if it is known.
        attrs: Attributes of the file, such as title, institution or comment.
        overwrite: Whether to replace an existing file.
        progress: Whether to show a progress bar.
    """
    path = Path(path)
    check_forecast_path(path, overwrite=overwrite)
    _check(forecast, np.asarray(issued), like, quantiles, observed)
    maps: dict[str, Tensor] = {name: getattr(forecast, name) for name in ("mean", "std", "epistemic", "aleatoric")}
    maps["quantiles"] = _quantiles(forecast, quantiles, progress)
    if observed is not None:
        maps["observed"] = torch.as_tensor(observed)
    axes, variables = _axes(np.asarray(issued), forecast.means.shape[2], cadence, like, quantiles), {}
    for name, values in maps.items():
        dims = ("quantile", *AXES) if name == "quantiles" else AXES
        variables[name] = xr.Variable(dims, values.numpy(force=True).astype(np.float32), _described(name, like))
    program = f"metaprior {version('metaprior')}"
    about = {
        "title": f"Forecast of {like.attrs.get('long_name', like.name or 'frames')}",
        "source": f"{program}, forecast of a Bayesian neural network",  # no local path
        "history": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {program}: written",
    }
    dataset = xr.Dataset(variables, axes, {**about, **(attrs or {}), "Conventions": CONVENTIONS})
    if dataset.get("latitude", like).dims == ("y",):  # coordinates of CF have the name of their dimension
        dataset = dataset.drop_vars(("y", "x"), errors="ignore").swap_dims(y="latitude", x="longitude")
    with written_when_complete(path) as temporary:
        if path.suffix == ".nc":
            packed = dict.fromkeys(dataset.data_vars, COMPRESSED)
            dataset.to_netcdf(temporary, engine="netcdf4", format="NETCDF4", encoding=packed)
        else:
            dataset.to_zarr(temporary, mode="w-", consolidated=False)


def read_forecast(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open a forecast lazily: dimensions (forecast_reference_time, lead_time, y, x), lead times as timedelta64."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; a forecast is a .nc file or a .zarr folder")
    zarr = path.suffix == ".zarr"
    options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if zarr else {"engine": "netcdf4"}
    try:
        dataset = xr.open_dataset(path, decode_timedelta=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise OSError(
            f"{path}: cannot be read as a forecast ({error}); it is truncated, damaged or of another format"
        ) from error
    missing = {"mean", "std", "forecast_reference_time", "lead_time"} - set(dataset.variables)
    if missing:
        dataset.close()
        raise ValueError(f"{path}: must be a file of write_forecast, got one without {', '.join(sorted(missing))}")
    if "latitude" not in dataset.dims:
        return dataset
    return dataset.rename_dims(latitude="y", longitude="x").reset_index(("latitude", "longitude"))


def check_forecast_path(path: Path, *, overwrite: bool) -> None:
    """Raise if a forecast cannot be written there."""
    if path.suffix not in (".nc", ".zarr"):
        raise ValueError(f"{path}: the file of a forecast must end in .nc or .zarr")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Give another name, or overwrite=True (--overwrite) to replace it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")


def _check(
    forecast: GaussianForecast,
    issued: Times,
    like: xr.DataArray,
    levels: Sequence[float],
    observed: NDArray[Any] | Tensor | None,
) -> None:
    shape = tuple(forecast.means.shape[1:])
    if len(shape) != 4:
        raise ValueError(f"the forecast's means must be (S, N, L, Y, X), got shape {tuple(forecast.means.shape)}")
    sizes = tuple(like.sizes.get(dim) for dim in ("y", "x"))
    if sizes != shape[2:]:
        raise ValueError(
            f"like must have the forecast's {shape[2:]} rows and columns (y, x), got {sizes}. Give its patch"
        )
    if issued.shape != shape[:1] or issued.dtype.kind != "M" or not (np.diff(issued) > np.timedelta64(0)).all():
        raise ValueError(
            f"issued must be {shape[0]} strictly increasing times (datetime64), one for each forecast, got {issued}"
        )
    if not levels or not all(0 < level < 1 for level in levels) or not (np.diff(levels) > 0).all():
        raise ValueError(f"quantiles must increase and lie strictly between 0 and 1, got {tuple(levels)}")
    if observed is not None and tuple(observed.shape) != shape:
        raise ValueError(f"observed must have the forecast's shape {shape}, got {tuple(observed.shape)}")


def _quantiles(forecast: GaussianForecast, levels: Sequence[float], progress: bool) -> Tensor:
    """Return the quantiles (Q, N, L, Y, X), computed a few pixels at a time."""
    components = forecast.components()
    quantiles = torch.empty(len(levels), components.means.shape[1], dtype=torch.float64)
    starts = range(0, quantiles.shape[1], PIXELS_AT_ONCE)
    for start in track(starts, "quantiles", unit="parts", show=progress):
        part = slice(start, start + PIXELS_AT_ONCE)
        means, scales, weights = components.part(part)
        quantiles[:, part] = mixture.quantiles(means, scales, levels, weights).cpu()
    return quantiles.reshape(len(levels), *forecast.means.shape[1:])


def _described(name: str, like: xr.DataArray) -> dict[str, str]:
    """Return the CF attributes of a map; CF calls the spread of a forecast its ``standard_error``."""
    what = str(like.attrs.get("long_name", like.name or "value"))
    long_names = {
        "mean": f"forecast mean of {what}",
        "std": f"standard deviation of the forecast of {what}",
        "epistemic": f"part of std because the network is uncertain, of {what}",
        "aleatoric": f"part of std because the weather is uncertain, of {what}",
        "quantiles": f"quantiles of the forecast of {what}",
        "observed": f"observed {what}",
    }
    described = {"long_name": long_names[name], "units": str(like.attrs.get("units", "1"))}
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
        "forecast_reference_time": (AXES[:1], issued, "forecast_reference_time", "time of the last frame seen"),
        "lead_time": (AXES[1:2], lead, "forecast_period", "time from the last frame seen"),
        "valid_time": (AXES[:2], issued[:, None] + lead, "time", "time that a map is for"),
    }
    level = xr.Variable("quantile", np.array(levels), {"long_name": "probability level", "units": "1"}, NO_FILL)
    return {**{name: _time_axis(*axis) for name, axis in axes.items()}, "quantile": level, **_places(like)}


def _time_axis(dims: Sequence[str], values: NDArray[Any], standard_name: str, long_name: str) -> xr.Variable:
    """Encode times as whole minutes where that is exact (32 bits: CF-1.8 has no longer integers), else as seconds.

    The result is plain numbers with CF attributes: xarray would add an attribute of its own to a timedelta.
    """
    is_date = values.dtype.kind == "M"
    counted = values - np.datetime64(0, "ns") if is_date else values
    whole = bool((counted % np.timedelta64(1, "m") == np.timedelta64(0)).all())
    unit, step = ("minutes", np.timedelta64(1, "m")) if whole else ("seconds", np.timedelta64(1, "s"))
    numbers = (counted / step).astype(np.int32 if whole else np.float64)
    units = {"units": f"{unit} since 1970-01-01 00:00:00", "calendar": "standard"} if is_date else {"units": unit}
    return xr.Variable(dims, numbers, {"standard_name": standard_name, "long_name": long_name, **units}, NO_FILL)


def _places(like: xr.DataArray) -> dict[str, xr.Variable]:
    """Return the coordinates of rows and columns that ``like`` has."""
    units = {"latitude": "degrees_north", "longitude": "degrees_east"}
    coordinates = {}
    for name, axis in {"latitude": "Y", "longitude": "X", "y": "Y", "x": "X"}.items():
        if name in like.coords:
            variable = like[name].variable
            geographic = {"standard_name": name, "long_name": name, "units": units[name]} if name in units else {}
            attrs = {**variable.attrs, **geographic, **({"axis": axis} if variable.ndim == 1 else {})}
            coordinates[name] = xr.Variable(variable.dims, variable.values, attrs, NO_FILL)
    return coordinates
