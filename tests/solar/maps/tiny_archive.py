"""A few days of tiny frames in memory, as ``open_frames`` would hand them over, and datasets of them."""

from typing import Any

import numpy as np
import xarray as xr

from metaprior.solar import sun
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset

FIRST = np.datetime64("2024-03-04", "ns")
HALF_HOUR = np.timedelta64(30, "m")
SIZE = 12
LATITUDE, LONGITUDE = 10 - 0.5 * np.arange(SIZE), 0.5 * np.arange(SIZE)


def half_hours(days: int) -> np.ndarray:
    return FIRST + np.arange(48 * days) * HALF_HOUR


def irradiance(times: np.ndarray, latitude: np.ndarray = LATITUDE, longitude: np.ndarray = LONGITUDE) -> np.ndarray:
    """W/m2: a clear sky behind a cloud that no two pixels have alike, and one watt of starlight at night."""
    generator = np.random.default_rng(0)
    index = generator.uniform(0.2, 1.1, (len(times), len(latitude), len(longitude)))
    return (index * sun.clear_sky(times, latitude, longitude) + 1.0).astype(np.float32)


def as_frames(values: np.ndarray | xr.Variable, times: np.ndarray, **coords: np.ndarray) -> xr.DataArray:
    """Frames with the attributes that the door gives them; latitude belongs to y, longitude to x."""
    axes = {"latitude": "y", "longitude": "x"}
    known = {"time": ("time", times), **{name: (axes[name], one) for name, one in coords.items()}}
    data = values if isinstance(values, xr.Variable) else xr.Variable(("time", "y", "x"), values)
    frames = xr.DataArray(data, coords=known)
    frames.attrs |= {"cadence": "30min", "units": "W m-2", "data_min": 0.0, "data_max": 1100.0}
    return frames


def archive(days: int = 6, *, coordinates: bool = True, without: tuple[int, ...] = ()) -> xr.DataArray:
    """Half-hours of whole days near the equator, but for those with the numbers ``without``."""
    times = np.delete(half_hours(days), without)
    coords = {"latitude": LATITUDE, "longitude": LONGITUDE} if coordinates else {}
    return as_frames(irradiance(times), times, **coords)


def dataset(frames: xr.DataArray | None = None, **changes: Any) -> MetaSolarPredictionDataset:
    """Two frames to see and two to forecast, three windows to adapt to and four to forecast, in patches of 6 pixels."""
    settings: dict[str, Any] = {"input_len": 2, "target_len": 2, "k_shot": 3, "k_query": 4, "patch": 6}
    return MetaSolarPredictionDataset(archive() if frames is None else frames, **settings | changes)
