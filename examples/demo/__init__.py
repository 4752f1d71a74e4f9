"""What ``make demo`` runs: from simulated frames to forecast maps, their scores and a report."""

from examples.demo.program import run
from examples.demo.world import Settings

__all__ = ["Settings", "run"]
