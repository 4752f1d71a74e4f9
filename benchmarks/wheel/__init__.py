"""The wheel bandit."""

from benchmarks.wheel.comparison import BENCHMARK

__all__ = ["BENCHMARK"]
