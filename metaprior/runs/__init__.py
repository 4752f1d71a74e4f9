"""Runs: a configuration, a folder that tells everything, and a training that can be killed and resumed."""
