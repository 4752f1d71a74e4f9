"""The archives of ``bench solar``: which frames and days are for training, for choosing, and for the test."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from benchmarks.data import DataMissing
from metaprior.solar.maps.archives.frames import GapsInTime, open_frames
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import Days, all_days, split_days
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, Units
from metaprior.solar.simulator import Simulator

Part = Literal["train", "validation", "test"]
HIMAWARI = "himawari9/himawari9_lum_30min_256.npz"


@dataclass(frozen=True)
class Archive:
    """Frames and days of each part, and how a network sees them."""

    frames: dict[Part, xr.DataArray]
    days: dict[Part, Days]
    units: Units
    simulator: Simulator | None = None

    def tasks(self, part: Part, *, seed: int, **settings: Any) -> MetaSolarPredictionDataset:
        """The tasks of a part."""
        return MetaSolarPredictionDataset(self.frames[part], self.days[part], units=self.units, seed=seed, **settings)


def himawari(folder: Path) -> Archive:
    """Training days up to 2026-02-06, for choosing 02-08 and 02-09, test days from 2026-02-11; all places in all."""
    path = folder / HIMAWARI
    if not path.exists():
        raise DataMissing(
            f"{path} is not there; it holds half-hourly frames of Himawari-9 (arrays `time` and `lum`). Set "
            "METAPRIOR_DATA or --data to the folder with them"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GapsInTime)  # windows do not cross them
        frames = open_frames(path, progress=False).load()
    days: dict[Part, Days] = {
        "train": Days("2026-01-28", "2026-02-07"),  # type: ignore[arg-type]
        "validation": Days("2026-02-08", "2026-02-10"),  # type: ignore[arg-type]
        "test": Days("2026-02-11", "2026-02-16"),  # type: ignore[arg-type]
    }
    return Archive(dict.fromkeys(days, frames), days, ScaledValues(0.0, 255.0))


def simulated(days: int, size: int, patch: int, seed: int) -> Archive:
    """Trained on the west of the map and tested on the rest of it, on later days: places and days are unseen."""
    simulator = Simulator(days=days, size=size, seed=seed)
    frames = simulator.frames(progress=False).load()
    train, validation, test = split_days(all_days(frames["time"].values), (0.6, 0.15, 0.25))
    west, east = frames[:, :, : size - patch], frames[:, :, size - patch :]
    return Archive(
        {"train": west, "validation": west, "test": east},
        {"train": train, "validation": validation, "test": test},
        ClearSkyIndex(),
        simulator,
    )
