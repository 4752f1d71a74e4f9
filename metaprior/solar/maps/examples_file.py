"""The file of example forecasts of a run, NetCDF with the dimensions (example, sample, lead_time, y, x)."""

from pathlib import Path

import numpy as np
import xarray as xr

from metaprior.solar.maps.report.example import ExampleForecast
from metaprior.solar.value_units import units_text

LAYERS = {
    "inputs": ("example", "input", "y", "x"),
    "target": ("example", "lead_time", "y", "x"),
    "mean": ("example", "lead_time", "y", "x"),
    "std": ("example", "lead_time", "y", "x"),
    "samples": ("example", "sample", "lead_time", "y", "x"),
}
PLACES = {"latitude": ("example", "y"), "longitude": ("example", "x")}


def write_examples(path: Path, examples: list[ExampleForecast]) -> None:
    """Write forecasts that all have the same shapes."""
    first = examples[0]
    present = {name: dims for name, dims in {**LAYERS, **PLACES}.items() if getattr(first, name) is not None}
    arrays = {name: (dims, np.stack([getattr(one, name) for one in examples])) for name, dims in present.items()}
    places = {name: arrays.pop(name) for name in PLACES if name in arrays}
    named = {
        "name": ("example", np.array([one.name for one in examples], dtype=object)),
        "issued": ("example", np.array([one.issued for one in examples], dtype=object)),
        "lead_time": ("lead_time", np.array(first.lead_minutes), {"units": "minutes"}),
    }
    attrs = {"cadence_minutes": first.cadence_minutes, "units": first.units}
    dataset = xr.Dataset(arrays, {**named, **places}, attrs)
    packed = {name: {"zlib": True, "complevel": 4, "dtype": "float32"} for name in arrays}
    dataset.to_netcdf(path, engine="netcdf4", encoding=packed)


def read_examples(path: Path) -> list[ExampleForecast]:
    """Return the forecasts that ``write_examples`` wrote."""
    with xr.open_dataset(path, engine="netcdf4", decode_timedelta=False) as dataset:
        content = dataset.load()
    return [
        ExampleForecast(
            name=str(one["name"].values),
            issued=str(one["issued"].values),
            cadence_minutes=int(one.attrs["cadence_minutes"]),
            units=units_text(str(one.attrs["units"])),  # version 0.1.0 wrote nothing where units are not known
            **{name: one[name].values for name in (*LAYERS, *PLACES) if name in one.variables},
        )
        for one in (content.isel(example=number) for number in range(content.sizes["example"]))
    ]
