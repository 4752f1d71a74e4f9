"""The processes that share the work of a training: one, or as many as torchrun started."""

from metaprior.team.launch import team_of_torchrun
from metaprior.team.team import OtherRankFailed, Team

__all__ = ["OtherRankFailed", "Team", "team_of_torchrun"]
