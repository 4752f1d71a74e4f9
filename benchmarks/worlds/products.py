"""Archives that took no part in training, and the moments at which forecasts are issued."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.worlds.settings import Settings
from metaprior.solar.maps import open_frames
from metaprior.solar.maps.nowcast.moments import Moments
from metaprior.solar.simulator.worlds import draw_world

HIMAWARI, SARAH = "himawari9/himawari9_lum_30min_256.npz", "sarah_sis/SARAH-SIS.nc"
LIT_SHARE = 0.35
"""Least share of a full disk in daylight, now and at the last lead time."""
EARLIER_DAYS = 6
"""Days of Himawari before the first forecast."""


class Archive(NamedTuple):
    """An archive, the positions of issue in it, and what its scores are divided by before archives are averaged."""

    moments: Moments
    issues: NDArray[np.int64]
    unit: float = 1.0


def real_products(folder: Path, origins: int) -> dict[str, list[Archive]]:
    """Return the satellite products of the data folder that are there."""
    found = {}
    if (folder / HIMAWARI).is_file():
        found["Himawari-9, 30 min"] = [himawari(folder, origins)]
    if (folder / SARAH).is_file():
        moments = Moments(open_frames(folder / SARAH, variable="SIS", progress=False))
        issues = _lit(moments, 0.03)
        found["SARAH irradiance, 30 min"] = [Archive(moments, _some(issues, origins))]
    return found


def himawari(folder: Path, origins: int) -> Archive:
    """Return the archive of Himawari-9 and moments in daylight from its seventh day on."""
    moments = Moments(open_frames(folder / HIMAWARI, progress=False))
    issues = _lit(moments, LIT_SHARE)
    late = moments.times[issues] >= moments.times[0] + np.timedelta64(EARLIER_DAYS, "D")
    return Archive(moments, _some(issues[late], origins))


def simulated(settings: Settings, cadence: int) -> list[Archive]:
    """Return worlds of three days of ten frames; a forecast is issued on the last day, unless nothing shows then."""
    found = []
    for number in range(settings.worlds):
        seed = settings.first_seed + 1000 * cadence + number
        found.append(_world(seed, cadence, settings.size, days=3, frames=10, issues=1, last_day=True))
    return [archive for archive in found if len(archive.issues)]


def afternoons(settings: Settings, cadence: int) -> list[Archive]:
    """Return worlds of a single day; forecasts are issued in its second half."""
    return [
        _world(
            settings.first_seed + 500_000 + 1000 * cadence + number,
            cadence,
            settings.size,
            days=1,
            frames=settings.afternoon_frames,
            issues=2,
            last_day=False,
        )
        for number in range(settings.afternoons)
    ]


def _world(seed: int, cadence: int, size: int, *, days: int, frames: int, issues: int, last_day: bool) -> Archive:
    world = draw_world(seed, size=size, days=days, frames=frames, cadence=cadence)
    moments = Moments(world.to_frames())
    positions = moments.whole()
    late = positions[positions >= (days - 1) * frames] if last_day else positions[positions >= 0.6 * frames]
    shown = np.array([one for one in late.tolist() if moments.has_structure(one)], dtype=np.int64)
    return Archive(moments, _some(shown, issues), float(np.nanstd(world.values)))


def _some(positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return so many of the positions, spread evenly."""
    if not len(positions):
        return positions
    chosen = np.linspace(0, len(positions) - 1, min(count, len(positions)) + (count == 1) * 2).round().astype(int)
    return np.asarray(positions[np.unique(chosen[1:-1] if count == 1 else chosen)])


def _lit(moments: Moments, share: float) -> NDArray[np.int64]:
    """Return positions at which this share of the pixels is light, now and at the last lead time."""
    few = np.nan_to_num(np.asarray(moments.frames.variable[:, ::8, ::8].values, np.float32))
    light = (few > few.min() + 0.04 * (few.max() - few.min())).mean((1, 2))
    positions = moments.whole()
    return np.asarray(positions[(light[positions] >= share) & (light[positions + 4] >= share)])
