"""Forecast maps beside networks without meta-learning, at the same training time.

There are two archives: Himawari-9 frames of the data folder (luminance, no coordinates), and the simulator, where the
true distribution of futures is known. A task is a place and three days: five windows to adapt to, ten later ones to
forecast. All networks are the same U-Net, trained by the CRPS; one more plain network by the log-likelihood.
"""

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.data import HIMAWARI
from benchmarks.common.result import BenchmarkResult
from benchmarks.solar.settings import Settings


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure every method on both archives."""
    from benchmarks.solar import comparison  # it needs the extras that the benchmark declares

    return comparison.measure(context)


BENCHMARK = Benchmark(
    "solar",
    "forecast maps beside fine-tuned and ensemble networks, Himawari-9 and the simulator",
    measure,
    full=Settings(),
    quick=Settings(
        seconds=6.0,
        simulated_seconds=4.0,
        meta_share=0.5,
        width=4,
        levels=2,
        presets=("head", "output"),
        abml_steps=(5,),
        members=2,
        tunings=((0, 0.0), (5, 3e-5)),
        validation_tasks=2,
        test_tasks=3,
        samples=5,
        simulated_days=12,
        simulated_size=64,
        continuations=10,
    ),
    quick_note="too short a training to compare anything",
    data=(HIMAWARI,),
    extras=("solar", "flow"),
)
