"""One meta-step (or many tasks, one after the other), measured in a process of its own."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import metaprior as mp
from benchmarks.common.peers import PEERS, checkpointed_unroll
from benchmarks.common.result import Row
from benchmarks.common.worker import GIB, peak_gib

ON_DISK, CHECKPOINTED_MAML = "on_disk", "checkpointed MAML"
ENGINES: dict[str, Callable[..., Any]] = {
    ON_DISK: mp.metagrad.on_disk(),
    "twice_reverse": mp.metagrad.twice_reverse,
    "mixed": mp.metagrad.mixed,
    "checkpointed": mp.metagrad.checkpointed,
    "unrolled": mp.metagrad.unrolled,
    **PEERS,
    CHECKPOINTED_MAML: checkpointed_unroll,
}
PLANNED, PREDICT = "planned", "predict"
CHANNELS = 4
SMALL = 2**14
"""Feature maps of at most so many numbers are computed by one thread: several would wait for each other."""
LR = 1e-7  # the likelihood sums over thousands of pixels


@dataclass(frozen=True)
class Step:
    """What the process does: an engine or peer (or ``PLANNED``, ``PREDICT``), and the size of the problem."""

    what: str
    steps: int
    width: int = 64
    frame: int = 64
    k_shot: int = 5
    k_query: int = 10
    micro_batch: int | None = None
    memory: str | None = None
    tasks: int = 1
    stochastic: str = ".*"

    def problem(self) -> mp.Problem:
        """Return the problem of a U-Net with all weights random."""
        torch.manual_seed(0)
        network = mp.BayesianNetwork(mp.UNet(CHANNELS, CHANNELS, width=self.width), self.stochastic)
        inner = mp.Descent(steps=self.steps, lr=LR, adapt=None, damped=False)  # peers take plain steps
        return mp.Problem(network, mp.Gaussian(noise=1.0), inner, mp.QueryLoss(), micro_batch=self.micro_batch)

    def task(self, number: int) -> mp.Task:
        """Return a task of random frames, other ones for every number."""
        generator = torch.Generator().manual_seed(number)

        def frames(count: int) -> torch.Tensor:
            return torch.randn(count, CHANNELS, self.frame, self.frame, generator=generator)

        support, query = (mp.Examples(frames(count), frames(count)) for count in (self.k_shot, self.k_query))
        return mp.Task(support, query, f"task {number}")


def planned(problem: mp.Problem, task: mp.Task, memory: str) -> tuple[mp.Problem, Callable[..., Any], Row]:
    """Return the problem and the engine that fit into ``memory``, and what the planner predicts."""
    from metaprior.metagrad.planner import plan

    chosen = plan(problem, problem.initial(task.support.y), task, memory)
    about = {"micro_batch": chosen.choice.micro_batch, "predicted_gib": chosen.choice.peak / GIB}
    return chosen.problem, chosen.engine, about


def predictions(step: Step) -> Row:
    """Return the peaks (GiB) that the planner predicts for every engine and micro-batch, without running them."""
    from metaprior.metagrad.memory import in_use
    from metaprior.metagrad.planner import is_large, predict

    problem, task = step.problem(), step.task(0)
    theta = problem.initial(task.support.y)
    before = in_use()
    choices = predict(problem, theta, task)
    # A process that only computes does not hold the modules that the planner has loaded.
    loaded = in_use() - before if is_large(problem, theta, task) else 0.0
    peaks = {prediction_name(c.engine.name, c.micro_batch): (c.peak - loaded) / GIB for c in choices}
    return {"predicted_gib": peaks, "status": "ok"}


def prediction_name(engine: str, micro_batch: int | None) -> str:
    """Return the key of a prediction."""
    return f"{engine.replace('twice_reverse, path on disk', ON_DISK)}/{micro_batch or 'all'}"


def written_bytes() -> float:
    """Return the bytes that this process has given to files; NaN where the system does not tell."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return math.nan
    return float(dict(line.split(": ") for line in counters.read_text().splitlines())["wchar"])


def run_step(step: Step) -> Row:
    """Compute the tasks, and return seconds and the peak after each task."""
    if step.width * step.frame**2 <= SMALL:
        torch.set_num_threads(1)
    problem, about = step.problem(), Row()
    if step.memory is not None:
        problem, engine, about = planned(problem, step.task(0), step.memory)
    else:
        engine = ENGINES[step.what]
    if step.what in PEERS:
        import_module(step.what)  # importing it is not part of the step
    theta = problem.initial(step.task(0).support.y)
    written = written_bytes()
    peaks, cpu, wall, status = [], time.process_time(), time.perf_counter(), "ok"
    for number in range(step.tasks):
        outcome = engine(problem, theta, step.task(number), mp.Noise(0, task=number))
        peaks.append(peak_gib())
        if isinstance(outcome, mp.NonFinite):
            status = str(outcome)
            break
        about["loss"] = float(outcome.loss)
        del outcome
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    about["written_gib"] = (written_bytes() - written) / GIB
    weights = problem.network.layout.dimension
    return {"peak_gib": peaks[-1], "peaks_gib": peaks, **seconds, "weights": weights, **about, "status": status}


def measure_step(step: Step) -> Row:
    """Return the row of a step, or only a status where the memory was not enough."""
    try:
        return predictions(step) if step.what == PREDICT else run_step(step)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch has no type for the CPU
            raise
        return {"status": f"out of memory at {peak_gib():.1f} GiB"}
