"""Simulated plants under simulated weather, with their true parameters (docs/solar/sites/simulator.md)."""

from metaprior.solar.sites.simulator.climates import CLIMATES, Climate
from metaprior.solar.sites.simulator.fleet import Fleet, plants_under, simulate_fleet
from metaprior.solar.sites.simulator.parameters import PlantParameters

__all__ = ["CLIMATES", "Climate", "Fleet", "PlantParameters", "plants_under", "simulate_fleet"]
