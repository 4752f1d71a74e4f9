"""Invented worlds seen through invented sensors, to train networks for products not seen yet (docs/solar/worlds.md)."""

from metaprior.solar.simulator.worlds.parameters import CADENCES, KINDS, Sensor, Weather
from metaprior.solar.simulator.worlds.world import World, draw_world

__all__ = ["CADENCES", "KINDS", "Sensor", "Weather", "World", "draw_world"]
