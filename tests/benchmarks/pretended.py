"""Pretended measurements, for the benchmarks that measure in fresh processes."""

from collections.abc import Callable

from benchmarks.common.result import Row
from benchmarks.memory.one_step import Step
from benchmarks.scaling.model import Link, Machines, Network, step_parts
from benchmarks.scaling.worker import ALONE, CONSTANTS, COUNT, SIZES, WATCHED, Job

TASK, REST, NUMBERS, CROWDING = 0.5, 0.25, 2**22, 1.25
LINK = Link(0.001, 2e9)
EXCHANGE, MORE = 0.01, 0.003
SLOWNESS = (1.0, 3.0, 2.0)
"""How slow the machine is in each round; ratios within a round do not depend on it."""


def pretended_peaks(started: list[Step]) -> Callable[[Step, float | None], Row]:
    """Peaks on straight lines: ours 1 + 0.1 K, a full unroll 1 + 2 K; D such that 0.1 GiB is 4D bytes."""

    def measured(step: Step, limit_gib: float | None) -> Row:
        started.append(step)
        if step.what == "predict":
            line = 1 + 0.1 * step.steps
            return {"predicted_gib": {"twice_reverse/2": 1.2 * line, "checkpointed/all": 0.9 * line}, "status": "ok"}
        peak = 1 + step.steps * (2.0 if step.what in ("higher", "torchopt", "unrolled") else 0.1)
        row = {"peak_gib": peak, "peaks_gib": [peak] * step.tasks, "cpu_seconds": 2.0, "wall_seconds": 1.0, "loss": 1.0}
        return {**row, "weights": 0.1 * 2**30 / 4, "status": "ok"}

    return measured


class Machine:
    """Answers as the model of scaling says, on a machine that is slower in some rounds than in others."""

    def __init__(self, meta_batch: int) -> None:
        self.meta_batch, self.asked = meta_batch, list[tuple[int, Job]]()
        self.network = Network(TASK, REST, NUMBERS)
        self.machines = Machines(LINK, EXCHANGE, MORE, crowding=CROWDING)

    def __call__(self, processes: int, job: Job) -> Row:
        self.asked.append((processes, job))
        if job.what == CONSTANTS:
            sums = {str(size): LINK.all_reduce(2, 4 * size) for size in SIZES if size <= job.largest}
            sums["1"] = LINK.all_reduce(2, 0)
            return {"exchange": EXCHANGE + MORE * (processes - 2), "sums": sums}
        if job.what == COUNT:
            return {"flops": 1e9 * job.width, "operations": 100, "numbers": NUMBERS}
        return self._steps(processes, job)

    def _steps(self, processes: int, job: Job) -> Row:
        ranks, factor = (1, CROWDING) if job.what == ALONE else (processes, 1.0)
        seconds = factor * step_parts(ranks, self.meta_batch, self.network, self.machines).total
        slow = SLOWNESS[([(n, j.what) for n, j in self.asked].count((1, WATCHED)) - 1) % 3]
        parts = {"work": TASK * self.meta_batch / processes, "waiting": 0.1, "exchange": 0.02, "sum": 0.03}
        if processes == 1:
            parts |= {"waiting": 0.0, "exchange": 0.0, "sum": 0.0}
        return {
            "seconds": [[slow * seconds] * job.steps] * processes,
            "on_cpu": 0.9,
            "parts": [{name: job.steps * slow * value for name, value in parts.items()}] * processes,
            "weights": NUMBERS // 2,
            "numbers": NUMBERS,
            "moments_bytes": 2**21 // (processes if job.shard else 1),
            "peak_gib": 0.5,
            "gradients": "by hand",
        }
