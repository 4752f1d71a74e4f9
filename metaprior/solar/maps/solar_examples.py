"""A few forecasts of a solar run to look at, as one NetCDF file: dimensions (example, sample, lead_time, y, x)."""

from pathlib import Path

import numpy as np
import xarray as xr

from metaprior.methods.meta_learner import MetaLearner
from metaprior.runs.config import Config
from metaprior.solar.maps.comparison import of_learner
from metaprior.solar.maps.report.example import ExampleForecast, example_forecast
from metaprior.solar.maps.sources import SolarSource
from metaprior.solar.value_units import units_text

EXAMPLES = 4
"""Test tasks of which a window is kept."""
LAYERS = {
    "inputs": ("example", "input", "y", "x"),
    "target": ("example", "lead_time", "y", "x"),
    "mean": ("example", "lead_time", "y", "x"),
    "std": ("example", "lead_time", "y", "x"),
    "samples": ("example", "sample", "lead_time", "y", "x"),
}
PLACES = {"latitude": ("example", "y"), "longitude": ("example", "x")}


def example_maps(source: SolarSource, config: Config, learner: MetaLearner) -> list[ExampleForecast]:
    """Adapted forecasts of the first query window of some test tasks; those that are not finite are left out."""
    dataset = source.tasks("test")
    adapted = of_learner(learner, steps=config.inner.steps, samples=config.evaluate.samples)
    found = []
    for number in range(min(EXAMPLES, config.evaluate.tasks)):
        try:
            found.append(example_forecast(dataset, number, adapted))
        except FloatingPointError:  # such tasks are listed with the scores
            continue
    return found


def write_examples(path: Path, examples: list[ExampleForecast]) -> None:
    """Write maps that all have the same shapes."""
    first = examples[0]
    variables = {name: (dims, np.stack([getattr(one, name) for one in examples])) for name, dims in LAYERS.items()}
    places = {
        name: (dims, np.stack([getattr(one, name) for one in examples]))
        for name, dims in PLACES.items()
        if getattr(first, name) is not None
    }
    named = {
        "name": ("example", np.array([one.name for one in examples], dtype=object)),
        "issued": ("example", np.array([one.issued for one in examples], dtype=object)),
        "lead_time": ("lead_time", np.array(first.lead_minutes), {"units": "minutes"}),
    }
    attrs = {"cadence_minutes": first.cadence_minutes, "units": first.units}
    dataset = xr.Dataset(variables, {**named, **places}, attrs)
    packed = {name: {"zlib": True, "complevel": 4, "dtype": "float32"} for name in LAYERS}
    dataset.to_netcdf(path, engine="netcdf4", encoding=packed)


def read_examples(path: Path) -> list[ExampleForecast]:
    """What ``write_examples`` wrote."""
    with xr.open_dataset(path, engine="netcdf4", decode_timedelta=False) as dataset:
        content = dataset.load()
    return [_maps(content.isel(example=number)) for number in range(content.sizes["example"])]


def _maps(one: xr.Dataset) -> ExampleForecast:
    layers = {name: one[name].values for name in LAYERS}
    places = {name: one[name].values for name in PLACES if name in one.coords}
    return ExampleForecast(
        name=str(one["name"].values),
        issued=str(one["issued"].values),
        cadence_minutes=int(one.attrs["cadence_minutes"]),
        units=units_text(str(one.attrs["units"])),  # earlier versions wrote nothing where units are not known
        **layers,
        **places,
    )
