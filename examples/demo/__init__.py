"""What ``make demo`` runs: a new solar plant and maps of irradiance, and what adapting to them is worth."""

from examples.demo.program import run
from examples.demo.settings import MapSettings, PlantSettings, Settings

__all__ = ["MapSettings", "PlantSettings", "Settings", "run"]
