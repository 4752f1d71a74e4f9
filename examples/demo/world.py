"""The demo's weather, and which part of it is for training, for validation and for the test.

The prior and the plain network learn from the west of a simulated map. Step sizes and sigma of the prior, and the
fine-tuning of the network, are chosen there on later days. Scores are those of places in the east, on days that are
later still. A day lies between the parts.
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
    """Sizes and budgets of the demo; with these it takes less than five minutes on two cores."""

    days: int = 40
    size: int = 128
    west: int = 80
    """Columns of the map that are for training."""
    patch: int = 32
    width: int = 8
    levels: int = 3
    seconds: float = 90.0
    """CPU seconds of training for the prior and for the plain network."""
    meta_share: float = 0.06
    """The share of the prior's seconds for meta-training after the warm start."""
    samples: int = 10
    shots: tuple[int, ...] = (1, 2, 5)
    """Windows to adapt to; the last number is scored, the others are for the learning curve."""
    queries: int = 10
    """Windows to forecast in each task."""
    tunings: tuple[Tuning, ...] = (Tuning(5, 3e-5), Tuning(10, 3e-5), Tuning(10, 1e-4), Tuning(20, 1e-4))
    validation_tasks: int = 6
    test_tasks: int = 30
    examples: int = 4
    """Forecasts that the report shows."""
    seed: int = 0


class World(NamedTuple):
    """Tasks of a place and three days; ``pooled`` are windows from all places, to learn from."""

    pooled: MetaSolarPredictionDataset
    validation: MetaSolarPredictionDataset
    test: MetaSolarPredictionDataset


def simulated_world(settings: Settings, *, progress: bool) -> World:
    """Return the same world in every process: it is a function of the settings."""
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
