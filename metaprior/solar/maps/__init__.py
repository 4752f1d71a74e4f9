"""Forecast maps from archives of frames: tasks, baselines, scores, prediction, report."""
