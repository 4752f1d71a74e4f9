"""Define one forecast of maps to look at, compute it from a data set, and write and read a run's file of examples."""

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from metaprior.forecasts import GaussianForecast
from metaprior.solar.maps.archives.frame_times import cadence_of
from metaprior.solar.maps.comparison import Forecaster, context_of
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.sun import Place
from metaprior.solar.value_units import units_text
from metaprior.tasks.task import Task

Array = NDArray[Any]

LAYERS = {
    "inputs": ("example", "input", "y", "x"),
    "target": ("example", "lead_time", "y", "x"),
    "mean": ("example", "lead_time", "y", "x"),
    "std": ("example", "lead_time", "y", "x"),
    "samples": ("example", "sample", "lead_time", "y", "x"),
}
"""Maps of a forecast, with their dimensions in the file of examples."""
PLACES = {"latitude": ("example", "y"), "longitude": ("example", "x")}


@dataclass(frozen=True, eq=False, kw_only=True)
class ExampleForecast:
    """One forecast to look at, beside what happened: a query window of one task. NaN is an unknown value.

    In a page, a value takes 2.7 bytes: 256 x 256 maps of 4 lead times and 5 samples take 6 MB.

    Args:
        name: What the example is called, such as its place.
        issued: The ISO time of the last input frame, in UTC unless it says otherwise.
        cadence_minutes: Minutes from one lead time to the next.
        target: (L, H, W), the frames that followed, one for each lead time.
        mean: (L, H, W), the mean of the forecast.
        std: (L, H, W), its standard deviation.
        units: The units of all layers.
        samples: (S, L, H, W), each the mean plus std times the standardised errors of one support window (see
            ``example_forecast``). They are not draws of the forecast, which says nothing about how pixels covary.
        inputs: (I, H, W), the input frames.
        latitude: (H,), by which the north is drawn on top; without it row 0 is on top.
        longitude: (W,), by which the east is drawn on the right; without it column 0 is on the left.

    Raises:
        ValueError: Shapes do not fit, a value is infinite, a std negative, or ``issued`` is not a time.
    """

    name: str
    issued: str
    cadence_minutes: int
    target: Array
    mean: Array
    std: Array
    units: str
    samples: Array | None = None
    inputs: Array | None = None
    latitude: Array | None = None
    longitude: Array | None = None

    def __post_init__(self) -> None:
        self._check_shapes()
        for name in LAYERS:
            values = getattr(self, name)
            if values is not None and np.isinf(values).any():
                raise self._error(f"{name} must be finite, got infinite values. Use NaN for unknown ones.")
        if np.any(self.std < 0):
            raise self._error(f"std must not be negative, got {np.nanmin(self.std):.4g}")
        if self.cadence_minutes < 1:
            raise self._error(f"cadence_minutes must be at least 1, got {self.cadence_minutes}")
        self._time()

    def _error(self, message: str) -> ValueError:
        return ValueError(f"example {self.name!r}: {message}")

    def _check_shapes(self) -> None:
        """Raise unless all layers and coordinates lie on the grid of the targets."""
        shape = self.target.shape
        if len(shape) != 3 or 0 in shape:
            raise self._error(f"target must have shape (lead times, rows, columns), none 0, got {shape}")
        expected = {"mean": shape, "std": shape, "samples": shape, "inputs": shape[1:]}
        for name, fixed in {**expected, "latitude": shape[1:2], "longitude": shape[2:]}.items():
            values, free = getattr(self, name), ["any number"] if name in ("samples", "inputs") else []
            if values is not None and (values.shape[len(free) :] != fixed or 0 in values.shape):
                wanted = ", ".join([*free, *map(str, fixed)])
                raise self._error(f"{name} must have shape ({wanted}) as target has {shape}, got {values.shape}")

    def _time(self) -> datetime:
        try:
            time = datetime.fromisoformat(self.issued)
        except ValueError:
            raise self._error(f"issued must be an ISO time such as 2026-02-11T03:00, got {self.issued!r}") from None
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)

    @property
    def lead_minutes(self) -> list[int]:
        """Minutes from the last input frame to each target."""
        return [int(self.cadence_minutes) * (step + 1) for step in range(len(self.target))]

    def time_text(self, minutes: int) -> str:
        """Return the time so many minutes after the last input frame, in UTC."""
        return f"{self._time() + timedelta(minutes=minutes):%Y-%m-%d %H:%M} UTC"

    @property
    def error(self) -> Array:
        """Mean minus target: positive where the forecast is too high."""
        return np.asarray(self.mean, dtype=float) - self.target

    def north_up(self) -> "ExampleForecast":
        """Return the same example with the north on top and the east on the right."""
        y, x = self.latitude, self.longitude
        rows = slice(None, None, -1 if y is not None and y[0] < y[-1] else 1)
        columns = slice(None, None, -1 if x is not None and x[0] > x[-1] else 1)
        parts = {**dict.fromkeys(LAYERS, (..., rows, columns)), "latitude": rows, "longitude": columns}
        given: dict[str, Any] = {name: getattr(self, name) for name in parts}
        return dataclasses.replace(
            self, **{name: values[parts[name]] for name, values in given.items() if values is not None}
        )


def example_forecast(
    dataset: MetaSolarPredictionDataset, number: int, forecaster: Forecaster, *, window: int = 0
) -> ExampleForecast:
    """Return the forecast of one query window of the task with this number, in the units of the frames.

    Samples are mean + std * e, where e are the standardised errors of the same forecaster in one support window each:
    the forecast itself is pixel by pixel, the errors show how neighbouring pixels and lead times covary in this task.
    """
    task, context = dataset[number], context_of(dataset.reader, dataset.windows(number).query)
    forecast = context.decoded(forecaster(task, number))
    mean, std = forecast.mean[window], forecast.std[window]
    in_support: GaussianForecast = forecaster(Task(task.support, task.support, task.name), number)
    errors: Tensor = (task.support.y - in_support.mean.cpu()) / in_support.std.cpu()  # (K, L, H, W), whatever the units
    place = dataset.reader.place(context.windows[window])
    return ExampleForecast(
        name=_degrees(place) or task.name,
        issued=str(context.issued[window].astype("datetime64[s]")),
        cadence_minutes=int(cadence_of(dataset.frames.attrs["cadence"]) / np.timedelta64(1, "m")),
        target=context.targets[window].numpy(),
        mean=mean.numpy(),
        std=std.numpy(),
        samples=(mean + std * errors.detach()).numpy(),
        inputs=context.inputs[window].numpy(),
        units=units_text(str(dataset.frames.attrs.get("units", ""))),
        latitude=None if place is None else along(place.latitude, 1),
        longitude=None if place is None else along(place.longitude, 0),
    )


def along(degrees: Array, axis: int) -> Array:
    """Return the degrees of rows or columns; of every pixel's their means, by which a picture is turned."""
    return degrees if degrees.ndim == 1 else np.nan_to_num(np.nanmean(degrees, axis))


def _degrees(place: Place | None) -> str:
    """Return the centre of a place in degrees, or "" where coordinates are unknown."""
    if place is None:
        return ""
    y, x = float(np.nanmean(place.latitude)), float(np.nanmean(place.longitude))
    return f"{abs(y):.1f}° {'N' if y >= 0 else 'S'}, {abs(x):.1f}° {'E' if x >= 0 else 'W'}"


def write_examples(path: Path, examples: list[ExampleForecast]) -> None:
    """Write forecasts that all have the same shapes: NetCDF, dimensions (example, sample, lead_time, y, x)."""
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
