"""Irradiance maps of an invented region, and the true distribution of their futures (docs/solar/simulator.md)."""

from metaprior.solar.simulator.record import Simulator, simulate
from metaprior.solar.simulator.region import Region
from metaprior.solar.simulator.writing import check_path, write_frames

__all__ = ["Region", "Simulator", "check_path", "simulate", "write_frames"]
