"""One meta-step (or many tasks, one after the other) in a process of its own, for ``benchmarks.memory``.

``python -m benchmarks.one_step --what twice_reverse --steps 5 ...`` prints one line of JSON: peak memory, seconds,
status. A process of its own, because a peak never goes down again.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import PEERS, library
from benchmarks.result import Row
from metaprior.likelihoods import Gaussian
from metaprior.metagrad import (
    InnerLoop,
    NonFinite,
    Problem,
    QueryLoss,
    checkpointed,
    mixed,
    twice_reverse,
    unrolled,
)
from metaprior.models.unet import UNet
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task

GIB = 2**30
ENGINES: dict[str, Callable[..., Any]] = {
    "twice_reverse": twice_reverse,
    "mixed": mixed,
    "checkpointed": checkpointed,
    "unrolled": unrolled,
    **PEERS,
}
PLANNED, PREDICT = "planned", "predict"
CHANNELS = 4
SMALL = 2**14
"""Feature maps of so few numbers are worked on by one thread: several would only wait for each other."""
LR = 1e-7  # the likelihood sums over thousands of pixels


@dataclass(frozen=True)
class Step:
    """What to do in the process: who does it, and how big the problem is. Command-line options of the same names."""

    what: str
    steps: int
    width: int = 64
    frame: int = 64
    k_shot: int = 5
    k_query: int = 10
    micro_batch: int | None = None
    memory: str | None = None
    tasks: int = 1

    def arguments(self) -> list[str]:
        """The command line that ``parse`` reads back."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None)
        return [text for pair in pairs for text in pair]

    def problem(self) -> Problem:
        """All weights of a U-Net random."""
        torch.manual_seed(0)
        network = BayesianNetwork(UNet(CHANNELS, CHANNELS, width=self.width))
        inner = InnerLoop(steps=self.steps, lr=LR, damped=False)  # peers take plain steps
        return Problem(network, Gaussian(noise=1.0), inner, QueryLoss(), micro_batch=self.micro_batch)

    def task(self, number: int) -> Task:
        """Random frames, others for every number."""
        generator = torch.Generator().manual_seed(number)

        def frames(count: int) -> torch.Tensor:
            return torch.randn(count, CHANNELS, self.frame, self.frame, generator=generator)

        support, query = (Examples(frames(count), frames(count)) for count in (self.k_shot, self.k_query))
        return Task(support, query, f"task {number}")


def parse(arguments: list[str]) -> tuple[Step, float | None]:
    """The step, and the memory (GiB) that the process may take, if it is limited."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", required=True, choices=[*ENGINES, PLANNED, PREDICT])
    for name in ("steps", "width", "frame", "k-shot", "k-query", "micro-batch", "tasks"):
        parser.add_argument(f"--{name}", type=int, required=name == "steps", default=argparse.SUPPRESS)
    parser.add_argument("--memory", default=argparse.SUPPRESS)
    parser.add_argument("--limit-gib", type=float)
    options = vars(parser.parse_args(arguments))
    limit = options.pop("limit_gib")
    return Step(**options), limit


def peak_gib() -> float:
    """The most memory that this process has had, so far.

    From /proc where there is one: ``ru_maxrss`` starts at the parent's peak, which a child inherits through exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / GIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


def fail_alone(limit_gib: float | None) -> None:
    """If memory runs out, it is this process that fails, and no other on the machine."""
    score = Path("/proc/self/oom_score_adj")
    if score.exists():
        score.write_text("1000", encoding="utf-8")
    if limit_gib is not None:
        limit = int(limit_gib * GIB)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def planned(problem: Problem, task: Task, memory: str) -> tuple[Problem, Callable[..., Any], Row]:
    """PLANNER: the problem and the engine that fit in ``--memory``, and what the planner predicts."""
    from metaprior.metagrad.planner import plan

    chosen = plan(problem, problem.initial(task.support.y), task, memory)
    about = {"micro_batch": chosen.choice.micro_batch, "predicted_gib": chosen.choice.peak / GIB}
    return chosen.problem, chosen.engine, about


def predictions(step: Step) -> Row:
    """The planner's peaks (GiB) for every engine and micro-batch; nothing is run."""
    from metaprior.metagrad.planner import predict

    problem, task = step.problem(), step.task(0)
    choices = predict(problem, problem.initial(task.support.y), task)
    peaks = {prediction_name(c.engine.name, c.micro_batch): c.peak / GIB for c in choices}
    return {"predicted_gib": peaks, "status": "ok"}


def prediction_name(engine: str, micro_batch: int | None) -> str:
    """Key of a prediction."""
    return f"{engine}/{micro_batch or 'all'}"


def measure(step: Step) -> Row:
    """Do it. ``peaks_gib`` has the peak after each task."""
    if step.width * step.frame**2 <= SMALL:
        torch.set_num_threads(1)
    problem, about = step.problem(), Row()
    if step.memory is not None:
        problem, engine, about = planned(problem, step.task(0), step.memory)
    else:
        engine = ENGINES[step.what]
    if step.what in PEERS:
        library(step.what)  # importing it is not part of the step
    theta = problem.initial(step.task(0).support.y)
    peaks, cpu, wall, status = [], time.process_time(), time.perf_counter(), "ok"
    for number in range(step.tasks):
        outcome = engine(problem, theta, step.task(number), Noise(0, task=number))
        peaks.append(peak_gib())
        if isinstance(outcome, NonFinite):
            status = str(outcome)
            break
        del outcome
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    weights = problem.network.layout.dimension
    return {"peak_gib": peaks[-1], "peaks_gib": peaks, **seconds, "weights": weights, **about, "status": status}


def out_of_memory(error: BaseException) -> bool:
    """torch has no type of its own for it on the CPU."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def main(arguments: list[str]) -> Row:
    """Measure, or say that the memory was not enough."""
    step, limit = parse(arguments)
    fail_alone(limit)
    try:
        return predictions(step) if step.what == PREDICT else measure(step)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return {"status": f"out of memory at {peak_gib():.1f} GiB"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
