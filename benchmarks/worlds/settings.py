"""Settings of the benchmark of nowcasts."""

from dataclasses import dataclass
from typing import Any

from benchmarks.solar.settings import Settings as SolarSettings
from metaprior.solar.maps.nowcast.adapting import STEPS


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison.

    Args:
        origins: Moments of each archive of several days at which forecasts are issued.
        cadences: Minutes between frames of the simulated worlds.
        worlds: Simulated worlds of each cadence; a forecast is issued in each.
        size: Pixels of a world along each side.
        first_seed: Seed of the first world; the prior was trained on the worlds from 0 to 3,999.
        adapted_origins: Moments at which adapted forecasts are issued in an archive of days.
        learned: Earlier windows from which they learn.
        steps: Steps of each training on them.
        afternoons: Simulated afternoons of each of two cadences, at which adapted forecasts are issued.
        afternoon_frames: Frames of an afternoon.
        prior: Folder of another prior than that of the package.
        continued_seconds: CPU seconds of training on the days of an archive, on one core.
        continued_rates: Learning rates of it, of which the validation days choose.
        continued_tasks: Test tasks of the benchmark ``solar`` that are scored; half as many choose.
        continued_patch: Pixels of their patches along each side.
    """

    origins: int = 24
    cadences: tuple[int, ...] = (5, 10, 15, 30)
    worlds: int = 24
    size: int = 128
    first_seed: int = 30_000_000
    adapted_origins: int = 12
    learned: int = 5
    steps: int = STEPS
    afternoons: int = 5
    afternoon_frames: int = 40
    prior: str = ""
    continued_seconds: float = 180.0
    continued_rates: tuple[float, ...] = (5e-4, 1.5e-3)
    continued_tasks: int = 40
    continued_patch: int = 32

    @property
    def continued_sizes(self) -> dict[str, Any]:
        """The sizes of these tasks."""
        return {**SolarSettings().tasks, "patch": self.continued_patch}

    @property
    def validation_tasks(self) -> int:
        """Number of tasks of the validation days that choose the learning rate and set the spread."""
        return max(1, self.continued_tasks // 2)
