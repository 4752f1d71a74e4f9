"""Satellite maps: the next two hours at a place, forecast after one and after five windows of the day before.

The network is a U-Net that gives mean and noise of every pixel. It is trained on windows of all places first; then the
prior of its last layer and the temperature, which says how much less neighbouring pixels tell than independent ones,
are learned from tasks. Places of one product are much alike, so the question is whether adapting does harm.
"""

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from benchmarks.adaptation.part import Part, skipped
from benchmarks.common.benchmark import EXTRAS, Context
from benchmarks.common.budget import one_thread
from benchmarks.common.data import HIMAWARI, DataMissing
from benchmarks.common.result import Row, mean_row
from metaprior.evaluation import Evaluation

NAME = "Himawari maps"
POOLED, CLOSED_FORM = "pooled network", "closed form"
SHOTS = (0, 1, 5)
TRAINING_SEED, TEST_SEED = 1, 3


@dataclass(frozen=True)
class Settings:
    """Sizes and CPU seconds, on one core."""

    seconds: float = 240.0
    warm_share: float = 0.6
    """The share of the time for plain training on windows of all places."""
    width: int = 16
    levels: int = 4
    patch: int = 32
    k_query: int = 10
    pooled_batch: int = 32
    meta_batch: int = 4
    warm_start_lr: float = 2e-3
    average: float = 0.03
    scale_lr: float = 3e-2
    test_tasks: int = 100


QUICK = Settings(seconds=10.0, width=4, levels=2, test_tasks=5)
"""Settings that show that the part runs."""


def measure(context: Context[Settings]) -> Part:
    """Train within the time, and score the network unadapted, and after each number of windows, on later days."""
    try:
        HIMAWARI.check(context.data)
        if absent := [module for module in EXTRAS["solar"] if find_spec(module) is None]:
            raise DataMissing(f"{', '.join(absent)} are not installed. Try: pip install 'metaprior[solar]'")
    except DataMissing as missing:
        return skipped(NAME, missing)
    from benchmarks.adaptation.map_training import trained  # it needs the extra

    settings = context.settings
    with one_thread():
        found = trained(context.data, settings)
        pooled = found.pooled.evaluate(found.tasks, shots=(0,), samples=2, progress=False)  # of a point they are equal
        closed = found.learner.evaluate(found.tasks, shots=SHOTS, progress=False)
    rows = [row_of(POOLED, pooled, 0, pooled), *(row_of(CLOSED_FORM, closed, shots, pooled) for shots in SHOTS)]
    for row in rows:
        row |= {"seconds": found.seconds, "temperature": found.temperature}
    headline = {f"map_ratio_{row['shots']}": row["ratio"] for row in rows if row["shots"]}
    notes = [
        f"{NAME}: patches of {settings.patch} x {settings.patch} pixels on unseen days, windows of the day before as "
        f"support, {settings.test_tasks} tasks; ratio: CRPS to that of the pooled network, standard error over tasks; "
        f"{settings.seconds:g} CPU s of training, {settings.warm_share:.0%} of them pooled"
    ]
    return Part(rows, headline, notes)


def row_of(method: str, found: Evaluation, shots: int, reference: Evaluation) -> Row:
    """Return CRPS and coverage, and the ratio of the CRPS to a reference's on the same tasks."""
    own, other = (
        torch.tensor([row["crps"] for row in one.per_task if row["shots"] == number], dtype=torch.float64)
        for one, number in ((found, shots), (reference, 0))
    )
    ratio = mean_row("ratio", 1 + (own - other) / other.mean())
    cell = found.row(shots=shots)
    return {
        "part": NAME,
        "method": method,
        "shots": shots,
        "tasks": cell["tasks"],
        **{name: cell[name] for name in ("crps", "crps_se")},
        **ratio,
        "coverage_90": cell["coverage_90"],
    }
