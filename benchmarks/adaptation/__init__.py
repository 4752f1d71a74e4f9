"""Ways of adapting beside each other."""

from benchmarks.adaptation.comparison import BENCHMARK

__all__ = ["BENCHMARK"]
