"""Sizes of the demo. Trainings have a number of steps, not of seconds, so that every run gives the same numbers."""

from dataclasses import dataclass, field

from benchmarks.solar.plain_network import Tuning


@dataclass(frozen=True)
class PlantSettings:
    """Sizes of the part about plants."""

    plants: int = 40
    """Plants that are forecast; no training has seen them."""
    record_days: int = 42
    weeks: int = 2
    """Weeks of each plant that are forecast."""
    days: tuple[int, ...] = (0, 1, 3, 7, 14)
    """Numbers of days of data, from 0 on."""
    told_days: int = 3
    """The number of days that table and sentence are about."""
    seed: int = 2024
    """Seed of the plants that are forecast; trainings have small ones."""
    training_plants: int = 1500
    steps: int = 4000


@dataclass(frozen=True)
class MapSettings:
    """Sizes of the part about maps."""

    days: int = 40
    size: int = 128
    west: int = 80
    """Columns of the map that are for training."""
    patch: int = 32
    width: int = 8
    levels: int = 3
    warm_steps: int = 600
    """Steps of the prior on windows from everywhere."""
    meta_steps: int = 12
    """Steps of the prior that learn how to adapt."""
    network_steps: int = 660
    """Steps of the plain network, in about the CPU time of all steps of the prior."""
    samples: int = 10
    shots: int = 5
    """Windows of a place to adapt to."""
    queries: int = 10
    """Windows to forecast at each place."""
    tunings: tuple[Tuning, ...] = (Tuning(5, 3e-5), Tuning(10, 3e-5), Tuning(10, 1e-4), Tuning(20, 1e-4))
    validation_tasks: int = 6
    test_tasks: int = 30
    examples: int = 4
    """Forecasts that the page shows."""
    seed: int = 0


@dataclass(frozen=True)
class Settings:
    """Sizes of both parts; with these the demo takes about three minutes on two cores."""

    plants: PlantSettings = field(default_factory=PlantSettings)
    maps: MapSettings = field(default_factory=MapSettings)
