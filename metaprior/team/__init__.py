"""The processes that share the work of a training: one, or as many as torchrun started."""

from metaprior.team.launch import team_of_torchrun
from metaprior.team.team import OtherRankFailed, Team, current_team, use_team

__all__ = ["OtherRankFailed", "Team", "current_team", "team_of_torchrun", "use_team"]
