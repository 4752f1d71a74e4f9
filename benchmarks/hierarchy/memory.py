"""Peak memory of hierarchical inference with many tasks, measured in a process of its own."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import metaprior as mp
from benchmarks.common.result import Row
from benchmarks.common.worker import GIB, peak_gib
from metaprior.hierarchy.store import FILE

INPUTS = 10
BLOCK = 512
"""Bytes in the unit of ``st_blocks``."""


@dataclass(frozen=True)
class Job:
    """A training with so many tasks."""

    tasks: int
    hidden: int = 310
    """Units of both hidden layers: 310 are 100,131 weights."""
    observations: int = 16
    epochs: int = 2
    """In the second epoch the posteriors of the first are read again."""
    local_steps: int = 1


@dataclass(frozen=True)
class LinearTasks:
    """Tasks that are computed on access, so that memory for their data does not grow with their number."""

    count: int
    observations: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> mp.Task:
        """Return a task y = w x with its own w and x."""
        if not 0 <= index < self.count:
            raise IndexError(f"index must be below {self.count}, got {index}")
        generator = torch.Generator().manual_seed(index)
        w = torch.randn(INPUTS, 1, generator=generator)
        x = torch.randn(self.observations, INPUTS, generator=generator)
        return mp.Task(mp.Examples(x, x @ w), mp.Examples(x[:0], x[:0, :1]), f"task {index}")


def measure_training(job: Job) -> Row:
    """Fit in a temporary folder, and return the peak of memory, the size of the store, and seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = mp.MLP(INPUTS, [job.hidden, job.hidden], 1)
    tasks = LinearTasks(job.tasks, job.observations)
    with tempfile.TemporaryDirectory(prefix="metaprior-benchmark-") as folder:
        learner = mp.HierarchicalVI(module, mp.Gaussian(noise=0.1), store=Path(folder) / "store", standardize=False)
        wall, cpu = time.perf_counter(), time.process_time()
        learner.fit(tasks, epochs=job.epochs, local_steps=job.local_steps, progress=False)
        return {
            "tasks": job.tasks,
            "weights": learner.network.layout.dimension,
            "peak_gib": peak_gib(),
            "disk_gib": _on_disk(Path(folder) / "store" / FILE) / GIB,
            "cpu_seconds": time.process_time() - cpu,
            "wall_seconds": time.perf_counter() - wall,
        }


def _on_disk(file: Path) -> int:
    """Return the bytes that a file takes on disk: slots that were never written are holes."""
    status = file.stat()
    return status.st_blocks * BLOCK if hasattr(status, "st_blocks") else status.st_size
