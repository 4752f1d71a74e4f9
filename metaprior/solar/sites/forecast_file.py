"""Forecasts of plants in files: CSV and Parquet as they are in the frame, NetCDF by the CF conventions.

A NetCDF file has the dimensions site, time and quantile, the time of issue, the bounds of the hours, and the places of
the plants where they are known. Its times are in UTC, or on the clock of stamps whose zone is not known. They are ends
of hours if those of the table are, for all plants, and begins otherwise.
"""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from metaprior.files import written_when_complete
from metaprior.solar.sites.forecaster import quantile_name
from metaprior.solar.sites.forecasting import TableForecast

if TYPE_CHECKING:
    import xarray as xr

ENDINGS = (".csv", ".parquet", ".nc")
DIGITS = 6


def check_path(path: Path, *, overwrite: bool, endings: tuple[str, ...] = ENDINGS) -> None:
    """Raise unless a file can be written there."""
    if path.suffix not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}, got {path.suffix!r}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Give another name, or --overwrite to replace it")


def write_forecast(path: Path, found: TableForecast, *, overwrite: bool = False) -> None:
    """Write the forecast of a table; the file appears when it is complete."""
    check_path(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_when_complete(path) as temporary:
        if path.suffix == ".csv":
            _as_text(found.frame).to_csv(temporary, index=False, float_format=f"%.{DIGITS}g")
        elif path.suffix == ".parquet":
            _to_parquet(found.frame, temporary)
        else:
            as_dataset(found).to_netcdf(temporary, engine="netcdf4", format="NETCDF4")


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with times as ISO 8601, with their offsets from UTC."""
    return frame.assign(**{name: [time.isoformat() for time in frame[name]] for name in ("issued", "time")})


def _to_parquet(frame: pd.DataFrame, path: Path) -> None:
    try:
        frame.to_parquet(path, index=False)
    except ImportError as error:
        raise ModuleNotFoundError(
            "Parquet files need pyarrow. Try: pip install 'metaprior[parquet]'", name="pyarrow"
        ) from error


def as_dataset(found: TableForecast) -> "xr.Dataset":
    """Return the forecast with dimensions (site, time) and (quantile, site, time).

    Raises:
        ValueError: The plants have different units.
    """
    import xarray as xr

    plants = [adapted.plant for adapted in found.plants.values()]
    units = {plant.unit for plant in plants}
    if len(units) > 1:
        raise ValueError(
            f"plants must have one unit in a NetCDF file, got {', '.join(sorted(units))}. Try a .csv file."
        )
    unit = units.pop().replace("share", "1")
    size = (len(plants), -1)
    values = {name: found.frame[name].to_numpy().reshape(size) for name in ("mean", *map(quantile_name, found.levels))}
    hours = values["mean"].shape[1]
    begin = (found.issue + np.arange(hours)).astype("datetime64[ns]")
    bounds = np.stack([begin, begin + np.timedelta64(1, "h")], 1)
    stamp = "end" if all(one.stamp == "end" for one in plants) else "begin"
    clock = "UTC" if found.zone else "the clock of the stamps, whose zone is not known"
    seconds = {"units": "seconds since 1970-01-01", "dtype": "int64", "_FillValue": None}
    places = {
        name: (
            "site",
            np.array([np.nan if getattr(one, name) is None else getattr(one, name) for one in plants]),
            about,
        )
        for name, about in (
            ("latitude", {"standard_name": "latitude", "units": "degrees_north"}),
            ("longitude", {"standard_name": "longitude", "units": "degrees_east"}),
        )
        if any(getattr(one, name) is not None for one in plants)
    }
    coordinates: dict[str, Any] = {
        "site": ("site", [one.name for one in plants], {"cf_role": "timeseries_id", "long_name": "name of the plant"}),
        "time": (
            "time",
            bounds[:, 1] if stamp == "end" else begin,
            {"standard_name": "time", "long_name": f"{stamp} of the hour, {clock}", "bounds": "time_bounds"},
        ),
        "quantile": ("quantile", np.array(found.levels), {"long_name": "probability level", "units": "1"}),
        "forecast_reference_time": (
            (),
            found.issue.astype("datetime64[ns]"),
            {"standard_name": "forecast_reference_time", "long_name": f"time of issue, {clock}"},
        ),
        **places,
    }
    about = {"units": unit, "cell_methods": "time: mean"}
    capacity = np.array([1.0 if one.capacity is None else one.capacity for one in plants])
    quantiles = np.stack([values[quantile_name(level)] for level in found.levels])
    variables: dict[str, Any] = {
        "power": (("site", "time"), values["mean"], {**about, "long_name": "mean of the forecast of power"}),
        "power_quantiles": (
            ("quantile", "site", "time"),
            quantiles,
            {**about, "long_name": "quantiles of the forecast of power"},
        ),
        "capacity": ("site", capacity, {"long_name": "capacity of the plant", "units": unit}),
        "time_bounds": (("time", "bound"), bounds),
    }
    attributes = {
        "Conventions": "CF-1.8",
        "featureType": "timeSeries",
        "title": "Forecast of the power of plants",
        "source": f"metaprior {version('metaprior')}",
    }
    dataset = xr.Dataset(variables, coordinates, attributes)
    for name in ("time", "time_bounds", "forecast_reference_time"):
        dataset[name].encoding = dict(seconds)
    return dataset
