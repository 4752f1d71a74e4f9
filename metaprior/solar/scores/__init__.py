"""Scores of forecast maps by lead time."""

from metaprior.solar.scores.lead_scores import LeadTimeScores, compare

__all__ = ["LeadTimeScores", "compare"]
