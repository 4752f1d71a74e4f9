"""Peak memory of a meta-step."""

from benchmarks.memory.comparison import BENCHMARK

__all__ = ["BENCHMARK"]
