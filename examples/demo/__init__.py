"""What ``make demo`` runs: the way from frames to forecast maps and their scores, on simulated weather."""

from examples.demo.program import run
from examples.demo.world import Settings

__all__ = ["Settings", "run"]
