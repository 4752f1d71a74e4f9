"""What tasks learn from each other."""

from benchmarks.hierarchy.comparison import BENCHMARK

__all__ = ["BENCHMARK"]
