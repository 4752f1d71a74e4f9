"""Forecast any archive of frames without training: motion, known light, and a network trained on simulated worlds."""
