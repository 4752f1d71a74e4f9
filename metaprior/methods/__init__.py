"""Inference methods: an objective, a way to minimise it, and what comes out."""

from metaprior.methods.bayes_by_backprop import BayesByBackprop

__all__ = ["BayesByBackprop"]
