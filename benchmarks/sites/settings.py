"""Settings, apart from the comparison, whose imports need the extra ``solar``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Sizes of trainings and backtests.

    Without any training (``trainings=0``) the prior of ``prior`` (default: of the package) is measured beside the
    pooled network of the package. Without sizes, trainings have those of the packaged networks.
    """

    trainings: int = 3
    prior: str | None = None
    training_plants: int | None = None
    steps: int | None = None
    days: tuple[int, ...] = (0, 1, 3, 7, 14, 30)
    weeks: int = 26
    simulated_plants: int = 16
    simulated_days: int = 365
    simulated_weeks: int = 6
    base_days: tuple[int, ...] = (0, 1, 3, 7)
    base_weeks: int = 13
    tunings: tuple[tuple[int, float], ...] = (
        *((0, 0.0), (10, 1e-4), (30, 1e-4), (30, 3e-4), (100, 3e-4), (300, 3e-4), (100, 1e-3)),
    )
    """Steps and learning rate of fine-tuning, chosen for each number of days on simulated validation plants."""
    validation_plants: int = 8
    validation_weeks: int = 2
