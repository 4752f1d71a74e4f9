"""The demo's weather, and who may see what of it.

The prior and its rival learn from the west of a simulated map; how the rival is fine-tuned, and the prior's step sizes
and sigma, are chosen there on later days; what is scored are places in the east, on days that are later still. Between
the parts lies a day.
"""

from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.solar.plain_network import Tuning
from metaprior.solar.maps.dataset import MetaSolarPredictionDataset
from metaprior.solar.maps.days import all_days, split_days
from metaprior.solar.maps.units import ClearSkyIndex
from metaprior.solar.simulator import simulate


@dataclass(frozen=True)
class Settings:
    """Sizes and budgets of the demo; two cores need less than five minutes for these."""

    days: int = 40
    size: int = 128
    west: int = 80
    """Columns of the map to learn from."""
    patch: int = 32
    width: int = 8
    levels: int = 3
    seconds: float = 90.0
    """CPU seconds of training, for the prior and for its rival."""
    meta_share: float = 0.06
    """Of the prior's seconds, after the warm start."""
    samples: int = 10
    shots: tuple[int, ...] = (1, 2, 5)
    """Windows to adapt to; the last is what is scored, the others are for the learning curve."""
    queries: int = 10
    """Windows to forecast in each task."""
    tunings: tuple[Tuning, ...] = (Tuning(5, 3e-5), Tuning(10, 3e-5), Tuning(10, 1e-4), Tuning(20, 1e-4))
    validation_tasks: int = 6
    test_tasks: int = 30
    examples: int = 4
    """Forecasts to look at."""
    seed: int = 0


class World(NamedTuple):
    """Tasks are a place and three days; ``pooled``, to learn from, are windows from everywhere."""

    pooled: MetaSolarPredictionDataset
    validation: MetaSolarPredictionDataset
    test: MetaSolarPredictionDataset


def simulated_world(settings: Settings, *, progress: bool) -> World:
    """The same in every process: a function of the settings."""
    frames = simulate(days=settings.days, size=settings.size, seed=settings.seed, progress=progress)
    learned, chosen, scored = split_days(all_days(frames["time"].values), (0.6, 0.15, 0.25))
    west, east = frames[:, :, : settings.west], frames[:, :, settings.west :]

    def tasks(*which: object, **others: object) -> MetaSolarPredictionDataset:
        counts = {"patch": settings.patch, "k_shot": settings.shots[-1], "k_query": settings.queries}
        return MetaSolarPredictionDataset(*which, **{**counts, "units": ClearSkyIndex(), **others})  # type: ignore[arg-type]

    return World(
        pooled=tasks(west, learned, by="time", k_shot=4, k_query=4, seed=settings.seed + 1),
        validation=tasks(west, chosen, seed=settings.seed + 2),
        test=tasks(east, scored, seed=settings.seed + 3),
    )
