"""Nowcasts of products that no network was trained on, beside optical flow: real satellites and simulated worlds.

The networks are the prior of the package, trained on other simulated worlds alone. Each forecast is issued at a moment
of an archive and sees the frames before it; spreads are fitted to earlier moments of the same archive.
"""

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.result import BenchmarkResult
from benchmarks.worlds.settings import Settings


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every product."""
    from benchmarks.worlds import comparison  # it needs the extras that the benchmark declares

    return comparison.measure(context)


BENCHMARK = Benchmark(
    "worlds",
    "nowcasts of products never seen, zero-shot and adapted, beside optical flow",
    measure,
    full=Settings(),
    quick=Settings(
        origins=2,
        cadences=(15,),
        worlds=2,
        size=64,
        adapted_origins=1,
        afternoons=1,
        steps=10,
        continued_seconds=3.0,
        continued_rates=(5e-4,),
        continued_tasks=2,
    ),
    quick_note="few moments",
    extras=("solar", "flow"),
)
