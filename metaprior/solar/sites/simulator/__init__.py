"""Simulated plants under simulated weather, with their true parameters (docs/solar/sites/simulator.md)."""

from metaprior.solar.sites.simulator.base import BASE_DAYS, BaseQuality, base_forecast, base_of, with_base
from metaprior.solar.sites.simulator.climates import CLIMATES, Climate
from metaprior.solar.sites.simulator.defects import with_defects
from metaprior.solar.sites.simulator.fleet import Fleet, plants_under, simulate_fleet
from metaprior.solar.sites.simulator.parameters import PlantParameters

__all__ = [
    "BASE_DAYS",
    "CLIMATES",
    "BaseQuality",
    "Climate",
    "Fleet",
    "PlantParameters",
    "base_forecast",
    "base_of",
    "plants_under",
    "simulate_fleet",
    "with_base",
    "with_defects",
]
