"""Forecasts of new plants from their first days, beside baselines and networks: real plants, and a simulated fleet.

Hourly, 1 to 6 hours ahead, by day, weeks spread over the record, support days directly before each week. Networks are
trained on simulated plants alone; plants of the data folder are only forecast.
"""

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.result import BenchmarkResult
from benchmarks.sites.settings import Settings


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on every fleet."""
    from benchmarks.sites import comparison  # it needs the extra that the benchmark declares

    return comparison.measure(context)


BENCHMARK = Benchmark(
    "sites",
    "forecasts of new plants from 0 to 30 days of their power, real plants and a simulated fleet",
    measure,
    full=Settings(),
    quick=Settings(trainings=0, weeks=4, simulated_plants=6, simulated_weeks=2, base_weeks=3, base_days=(0, 3)),
    quick_note="one training, the prior and the pooled network of the package, and few weeks",
    extras=("solar",),
)
