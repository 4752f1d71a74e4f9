"""Meta-steps of several processes."""

from benchmarks.scaling.comparison import BENCHMARK

__all__ = ["BENCHMARK"]
