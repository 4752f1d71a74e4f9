"""The archives of the benchmark: the frames and days for training, for validation and for the test."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from benchmarks.common.data import HIMAWARI
from metaprior.solar.maps.archives.frames import GapsInTime, open_frames
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import Days, all_days, split_days
from metaprior.solar.maps.units import ClearSkyIndex, ScaledValues, Units
from metaprior.solar.simulator import Simulator

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Archive:
    """Frames and days of each part, and the units that a network sees."""

    frames: dict[Part, xr.DataArray]
    days: dict[Part, Days]
    units: Units
    simulator: Simulator | None = None

    def tasks(self, part: Part, *, seed: int, **settings: Any) -> MetaSolarPredictionDataset:
        """Return the tasks of a part."""
        return MetaSolarPredictionDataset(self.frames[part], self.days[part], units=self.units, seed=seed, **settings)


def himawari(folder: Path) -> Archive:
    """Return Himawari-9: training to 2026-02-06, validation 02-08 and 02-09, test from 02-11; all places in all."""
    HIMAWARI.check(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GapsInTime)  # windows do not cross gaps
        frames = open_frames(folder / HIMAWARI.files[0], progress=False).load()
    days: dict[Part, Days] = {
        "train": Days("2026-01-28", "2026-02-07"),  # type: ignore[arg-type]
        "validation": Days("2026-02-08", "2026-02-10"),  # type: ignore[arg-type]
        "test": Days("2026-02-11", "2026-02-16"),  # type: ignore[arg-type]
    }
    return Archive(dict.fromkeys(days, frames), days, ScaledValues(0.0, 255.0))


def simulated(days: int, size: int, patch: int, seed: int) -> Archive:
    """Return the simulator: training in the west of the map, test in the rest of it on later days."""
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
