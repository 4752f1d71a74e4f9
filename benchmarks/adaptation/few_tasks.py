"""Few tasks with few data: a posterior over theta, with the posteriors of tasks in closed form.

It is the measurement of ``benchmarks.hierarchy`` on the same sets of tasks.
"""

from benchmarks.adaptation.part import Part
from benchmarks.common.benchmark import Context
from benchmarks.hierarchy import collapsed
from benchmarks.hierarchy.comparison import Settings, measure_collapsed

__all__ = ["Settings", "measure"]
NAME = "few tasks"


def measure(context: Context[Settings]) -> Part:
    """Return the scores of every way to infer theta on new tasks, after few and many tasks."""
    few = context.settings.few_tasks
    rows = collapsed.table(few, context.map(measure_collapsed, few.jobs))
    headline = collapsed.headline_of(rows, few.sizes)
    notes = [
        f"{NAME}: sine waves of known noise {context.settings.noise:g}, means over {few.data_seeds} sets of training "
        f"tasks with {few.test_tasks} new tasks each; coverage_90_worst: of a single set; seconds: CPU time of a fit"
    ]
    return Part([{"part": NAME, **row} for row in rows], {name: headline[name] for name in collapsed.HEADLINE}, notes)
