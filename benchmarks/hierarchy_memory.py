"""Hierarchical inference with many tasks in a process of its own, for ``benchmarks.hierarchy``.

``python -m benchmarks.hierarchy_memory --tasks 2000 ...`` prints one line of JSON: peak memory, the store's size,
seconds. A process of its own, because a peak never goes down again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.one_step import GIB, fail_alone, peak_gib
from benchmarks.result import Row
from metaprior.hierarchy.store import FILE
from metaprior.likelihoods import Gaussian
from metaprior.methods.hierarchical_vi import HierarchicalVI
from metaprior.models.mlp import MLP
from metaprior.tasks.task import Examples, Task

INPUTS = 10
BLOCK = 512
"""Bytes in the unit in which a file system says what a file takes."""


@dataclass(frozen=True)
class Job:
    """What to do in the process. Command-line options of the same names."""

    tasks: int
    hidden: int = 310
    """Of both hidden layers: 310 are 100,131 weights."""
    observations: int = 16
    epochs: int = 2
    """In the second one the posteriors of the first are read again."""
    local_steps: int = 1

    def arguments(self) -> list[str]:
        """The command line that ``parse`` reads back."""
        return [text for name, value in asdict(self).items() for text in (f"--{name.replace('_', '-')}", str(value))]


Runner = Callable[[Job], Row]
"""Does a job in a process of its own."""


@dataclass(frozen=True)
class LinearTasks:
    """Tasks that are made when they are asked for, so that their data are not what grows with their number."""

    count: int
    observations: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Task:
        """y = w x with w and x of the task's own."""
        if not 0 <= index < self.count:
            raise IndexError(f"there are {self.count} tasks, got index {index}")
        generator = torch.Generator().manual_seed(index)
        w = torch.randn(INPUTS, 1, generator=generator)
        x = torch.randn(self.observations, INPUTS, generator=generator)
        return Task(Examples(x, x @ w), Examples(x[:0], x[:0, :1]), f"task {index}")


def parse(arguments: list[str]) -> Job:
    """The job of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in asdict(Job(tasks=0)).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, required=name == "tasks", default=value)
    return Job(**vars(parser.parse_args(arguments)))


def measure(job: Job) -> Row:
    """Fit in a temporary folder, which is deleted afterwards."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = MLP(INPUTS, [job.hidden, job.hidden], 1)
    tasks = LinearTasks(job.tasks, job.observations)
    with tempfile.TemporaryDirectory(prefix="python--m-benchmarks-") as folder:
        learner = HierarchicalVI(module, Gaussian(noise=0.1), store=Path(folder) / "store")
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
    """Bytes that a file really takes: slots that were never written are holes."""
    status = file.stat()
    return status.st_blocks * BLOCK if hasattr(status, "st_blocks") else status.st_size


def in_own_process(job: Job) -> Row:
    """Measure a job in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.hierarchy_memory", *job.arguments()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    result: Row = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    fail_alone(None)
    sys.stdout.write(json.dumps(measure(parse(sys.argv[1:]))) + "\n")
