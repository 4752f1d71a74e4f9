"""Irradiance maps of an invented region, and the true distribution of their futures (docs/solar/simulator.md)."""

from metaprior.solar.simulator.record import Simulator, simulate
from metaprior.solar.simulator.region import Region
from metaprior.solar.simulator.writing import write_frames

__all__ = ["Region", "Simulator", "simulate", "write_frames"]
