"""Settings of tasks from plants: the keys of ``[tasks]`` with ``kind = "sites"``, checked without opening anything."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from metaprior.checks import check_counts
from metaprior.files import named_after
from metaprior.runs.config import Choice
from metaprior.runs.sources import TaskSettings

if TYPE_CHECKING:
    from metaprior.solar.sites.source import SiteSource

LEAST_DAYS = 16
"""Days of a record: a week of forecasts, two days ahead, and a week of support."""


@dataclass(frozen=True, kw_only=True)
class SitesTasks(TaskSettings):
    """Tasks from a fleet's table of power, or from simulated plants.

    Plants, not days, are divided: 70 % to train, 15 % to validate, 15 % to test, by the seed.

    Args:
        path: A table of power as ``read_power`` takes it; without one, plants are simulated.
        sites, unit, zone: What the table does not say itself, as in ``read_power``.
        weather: Whether columns of weather are read, as in ``SiteForecaster.adapt``: "auto", "always" or "never".
        plants, days: Number of simulated plants, and the length of their records.
        seed: Seed of the plants, of their division and of the tasks.
    """

    path: str | None = None
    sites: str | None = None
    unit: str | None = None
    zone: str | None = None
    weather: Literal["auto", "always", "never"] = "auto"
    plants: int = 1000
    days: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(plants=self.plants, days=self.days)
        for name, least in (("plants", 10), ("days", LEAST_DAYS)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def open(self, *, progress: bool) -> "SiteSource":
        """Read or simulate the plants, which needs the extra ``solar``."""
        from metaprior.solar.sites.source import fleet_source, simulated_source

        return simulated_source(self) if self.path is None else fleet_source(self)

    def next_commands(self, run: Path) -> list[str]:
        """Return the commands that forecast with the learned prior, and that write the page of the run."""
        out = ["--out", named_after(run, "forecast.csv")]
        forecast = ["metaprior", "sites", "forecast", self.path or "power.csv", "--prior", str(run), *out]
        return [shlex.join(forecast), shlex.join(["metaprior", "report", str(run)])]

    def misfits(self, model: Choice, likelihood: Choice) -> list[str]:
        """Return what does not fit network and likelihood, one line each."""
        if model.kind != "sites" or likelihood.kind != "mixture":
            return [
                f"tasks.kind 'sites' needs model.kind 'sites' and likelihood.kind 'mixture', got {model.kind!r} and "
                f"{likelihood.kind!r}"
            ]
        own, other = model.arguments["components"], likelihood.arguments["components"]
        return [] if own == other else [f"model.components is {own}, likelihood.components is {other}; make them equal"]
