"""A fit with everything that has to go on where it was: run as a program, it is the one that is killed."""

import sys
import time
from pathlib import Path
from typing import Any

import torch

import metaprior as mp
from metaprior.tasks.task import Examples, Task

PLAN: dict[str, Any] = {
    "epochs": 8,
    "local_steps": 3,
    "task_batch": 2,
    "batch_size": 4,
    "lr": 0.02,
    "samples": 2,
    "kl_warmup": 0.5,
    "progress": False,
}
SIZES = (6, 6, 9, 6, 4)
ROUNDS = 24


def tasks() -> list[Task]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for number, size in enumerate(SIZES):
        x = torch.randn(size, 1, generator=generator)
        y = (x[:, 0] + number).sin() + 0.1 * torch.randn(size, generator=generator)
        made.append(Task(Examples(x[:3], y[:3]), Examples(x[3:], y[3:]), f"wave {number}"))
    return made


class Slow:
    """The same tasks, from a source that takes its time."""

    def __init__(self) -> None:
        self._tasks = tasks()

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        time.sleep(0.05)
        return self._tasks[index]


def inference(folder: Path) -> mp.HierarchicalVI:
    """Random weights, plain ones, and a learned noise scale."""
    torch.manual_seed(1)
    return mp.HierarchicalVI(
        mp.MLP(1, [5], 1), mp.Gaussian(), store=folder, stochastic=".*weight", seed=3, standardize=False
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    inference(Path(sys.argv[1])).fit(Slow(), save_every=0.0, **PLAN)
