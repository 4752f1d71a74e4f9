"""What ``metaprior demo`` runs: the way from frames to forecast maps and their scores, on simulated weather."""

from metaprior.demo.program import run
from metaprior.demo.world import Settings

__all__ = ["Settings", "run"]
