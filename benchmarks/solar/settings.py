"""Settings, apart from the methods, whose imports need the extra ``solar``."""

from dataclasses import dataclass
from typing import Any

PRESET = "head"
"""The preset of random weights that the headline is about: the default of ``BayesianUNet``."""


@dataclass(frozen=True)
class Settings:
    """Budgets and sizes; seconds are CPU seconds on one core."""

    seconds: float = 720.0
    simulated_seconds: float = 240.0
    meta_share: float = 0.06
    """The share of the time for meta-training after the warm start."""
    width: int = 16
    levels: int = 4
    patch: int = 32
    k_shot: int = 5
    k_query: int = 10
    period_days: int = 3
    pooled_batch: int = 32
    lr: float = 2e-3
    average: float = 0.03
    """The share of the pooled training over which all networks, plain ones too, are averaged."""
    scale_lr: float = 0.05
    meta_batch: int = 4
    inner_steps: int = 5
    relative_sigma: float = 0.008
    presets: tuple[str, ...] = ("all", "decoder", "head", "norms", "output", "head, all adapted")
    abml_steps: tuple[int, ...] = (5, 10)
    members: int = 5
    tunings: tuple[tuple[int, float], ...] = (
        (0, 0.0),
        *((steps, lr) for steps in (5, 10, 20) for lr in (1e-5, 3e-5, 1e-4)),
    )
    """Steps and learning rate of fine-tuning."""
    validation_tasks: int = 8
    test_tasks: int = 40
    samples: int = 10
    simulated_days: int = 60
    simulated_size: int = 96
    continuations: int = 50

    @property
    def tasks(self) -> dict[str, Any]:
        """The sizes of all tasks."""
        return {name: getattr(self, name) for name in ("patch", "k_shot", "k_query", "period_days")}
