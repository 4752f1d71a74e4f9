"""Sources of tasks: the same seed and index give the same task."""

from pathlib import Path

import torch

from benchmarks.wheel.tasks import WheelTasks
from metaprior.tasks import (
    DriftingBlobs,
    FewShotClasses,
    GroupedTasks,
    SineOrLine,
    Sinusoids,
    Tasks,
    VariedSupport,
)
from tests.golden.data import generator
from tests.golden.digest import Entries
from tests.golden.registry import case

IMAGES = torch.rand(40, 1, 4, 4, generator=generator(0))
LABELS = torch.arange(40) % 4


def sources() -> dict[str, Tasks]:
    """Return every source by name."""
    pairs = [(image, float(number)) for number, image in enumerate(IMAGES)]
    return {
        "sinusoids": Sinusoids(seed=1),
        "sine or line": SineOrLine(seed=1),
        "wheel": WheelTasks(seed=1),
        "drifting blobs": DriftingBlobs(seed=1),
        "few-shot classes": FewShotClasses(IMAGES, LABELS, ways=2, k_shot=2, k_query=2, seed=1),
        "grouped": GroupedTasks(pairs, LABELS, k_shot=3, k_query=2, seed=1, draws=2),
        "varied support": VariedSupport(Sinusoids(seed=1), (1, 3)),
    }


@case("tasks/all sources")
def tasks(folder: Path) -> Entries:
    found: Entries = {}
    for name, source in sources().items():
        for index in (0, 3):
            task = source[index]
            found[f"{name}/{index}/name"] = task.name
            for part in ("support", "query"):
                x, y = getattr(task, part)
                found |= {f"{name}/{index}/{part}.x": x, f"{name}/{index}/{part}.y": y}
    return found
