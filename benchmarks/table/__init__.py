"""The estimators beside what a user would pick instead, on small tables and on tables of groups with few rows.

Every method has the same CPU time, and chooses its settings inside the training rows.
"""

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.data import UCI
from benchmarks.common.result import BenchmarkResult
from benchmarks.table.settings import Settings


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on every table."""
    from benchmarks.table import comparison  # it needs the extra that the benchmark declares

    return comparison.measure(context)


BENCHMARK = Benchmark(
    "table",
    "the estimators on seven small tables and three grouped ones, beside what a user would pick instead",
    measure,
    full=Settings(),
    quick=Settings(parts=("boston", "yacht", "linear"), splits=(0,), seconds=0.5, draws=1),
    quick_note="one split of two tables, and no time to choose settings",
    data=(UCI,),
    extras=("table",),
)
