"""Figures of plants."""
