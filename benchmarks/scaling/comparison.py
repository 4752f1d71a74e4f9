"""Seconds of a meta-step with one process and with two, one thread each, beside what the machine allows and a model.

Two processes on a machine share its memory, caches and clock, so that even two independent ones are slower than one:
``machine_2`` is what is lost in this way, and the rest is the program's. Every measurement is a fresh start of
torchrun; kinds take turns, and the median of the ratios within a round is reported.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.processes import in_own_process
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.scaling.model import (
    FLOAT32,
    GPU_FLOPS,
    GPU_START,
    GPUS,
    Machines,
    Network,
    efficiency,
    fitted_link,
    gpu_network,
    limit_rows,
    paper_rows,
    step_parts,
)
from benchmarks.scaling.worker import ALONE, CONSTANTS, COUNT, PARTS, SIZES, TEAM, WATCHED, Job, measure_job
from metaprior.progress import progress_bar

ONE, THREADS, TWO, APART, SHARDED, LOOKED_AT = (
    "1 process",
    "1 process, 2 threads",
    "2 processes",
    "2 independent at once",
    "2 processes, sharded",
    "2 processes, with clocks",
)
KINDS: Mapping[str, tuple[int, Job]] = {
    ONE: (1, Job(WATCHED)),  # with one process the clocks cost nothing
    THREADS: (1, Job(TEAM, threads=2)),
    TWO: (2, Job(TEAM)),
    APART: (2, Job(ALONE)),
    SHARDED: (2, Job(TEAM, shard=1)),
    LOOKED_AT: (2, Job(WATCHED)),
}
"""Numbers of processes and what they do, in the order of every round."""
FOR_THE_MODEL = (ONE, TWO, APART)
"""The kinds that other widths are measured with."""
MEMORY = "memory"

Answers = Mapping[str, Sequence[tuple[int, Job, Row]]]
"""By label: the number of processes, their job, and its row."""


@dataclass(frozen=True)
class Settings:
    """Sizes and repeats."""

    width: int = 16
    other_widths: tuple[int, ...] = (8,)
    frame: int = 32
    k_shot: int = 5
    k_query: int = 10
    inner_steps: int = 5
    meta_batch: int = 8
    steps: int = 2
    rounds: int = 3
    other_rounds: int = 1
    exchange_ranks: tuple[int, ...] = (2, 3, 4)
    largest: int = SIZES[-1]
    wide: int = 64
    """Width of the network whose memory is measured, with the smallest possible tasks."""
    paper_widths: tuple[int, ...] = (16, 64)
    paper_frame: int = 64

    def job(self, job: Job, width: int) -> Job:
        """Return the job of a kind at these sizes."""
        names = ("frame", "k_shot", "k_query", "inner_steps", "meta_batch", "steps")
        return replace(job, width=width, **{name: getattr(self, name) for name in names})


SMALLEST = 16
"""Pixels along the smallest frame of four halvings. Operations are counted there: a convolution's are by the pixel."""


@dataclass(frozen=True)
class Measured:
    """Rounds with a network of one width: the rows of each kind."""

    width: int
    rounds: dict[str, list[Row]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def seconds(self, kind: str) -> list[float]:
        """Return the seconds of a step by round: the median over steps of means over ranks."""
        return [statistics.median(map(statistics.mean, zip(*row["seconds"], strict=True))) for row in self.rounds[kind]]

    def ratios(self, slow: str, fast: str) -> list[float]:
        """Return how many times as long one kind takes by round."""
        return [a / b for a, b in zip(self.seconds(slow), self.seconds(fast), strict=True)]

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median of the ratios."""
        return statistics.median(self.ratios(slow, fast))

    def parts(self, kind: str) -> dict[str, float]:
        """Return the seconds of each part, of the rest and of the step: medians of means over steps and ranks."""
        by_round = [_parts_of(row) for row in self.rounds[kind]]
        return {name: statistics.median(found[name] for found in by_round) for name in by_round[0]}

    def network(self, meta_batch: int) -> Network:
        """Return what a step costs one process, for the model."""
        parts = self.parts(ONE)
        return Network(parts["work"] / meta_batch, parts["rest"], self.rounds[ONE][0]["numbers"])


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure all rounds, exchanges and sums, memory, and compare them with the model."""
    settings, jobs = context.settings, list(_jobs(context.settings))
    load, answers = os.getloadavg()[0], dict[str, list[tuple[int, Job, Row]]]()
    with progress_bar("scaling", len(jobs), unit="starts", show=True) as bar:
        for label, processes, job in jobs:
            answers.setdefault(label, []).append((processes, job, by_torchrun(processes, job)))
            bar.update(1, last=f"{label}, width {job.width}")
    measured = [_measured(width, answers) for width in (settings.width, *settings.other_widths)]
    constants = {processes: row for processes, _, row in answers[CONSTANTS]}
    rows = [*_step_rows(measured), *_round_rows(measured), *_part_rows(measured), *_constant_rows(constants)]
    predictions = [_prediction(found, settings.meta_batch, constants) for found in measured]
    rows += [*predictions, *_memory_rows(answers[MEMORY]), *_paper_rows(settings, [row for *_, row in answers[COUNT]])]
    headline = _headline(measured[0], predictions, constants)
    return BenchmarkResult(headline, rows, _notes(settings, load), {"load_before": load})


def by_torchrun(processes: int, job: Job) -> Row:
    """Return the row of a job that so many processes do together."""
    return in_own_process(measure_job, job, processes=processes, environment={"OMP_NUM_THREADS": str(job.threads)})


def _jobs(settings: Settings) -> Iterator[tuple[str, int, Job]]:
    """Yield (label, processes, job) in the order of the measurements."""
    for processes in settings.exchange_ranks:
        largest = settings.largest if processes == 2 else SIZES[0]
        yield CONSTANTS, processes, Job(CONSTANTS, meta_batch=settings.meta_batch, largest=largest)
    rounds = [(settings.width, tuple(KINDS))] * settings.rounds
    rounds += [(width, FOR_THE_MODEL) for width in settings.other_widths for _ in range(settings.other_rounds)]
    for width, kinds in rounds:
        for kind in kinds:
            processes, job = KINDS[kind]
            yield kind, processes, settings.job(job, width)
    smallest = Job(TEAM, settings.wide, SMALLEST, k_shot=1, k_query=1, inner_steps=1, meta_batch=2, steps=1)
    for processes, shard in ((1, 0), (2, 0), (2, 1)):
        yield MEMORY, processes, replace(smallest, shard=shard)
    for width in settings.paper_widths:
        yield COUNT, 1, replace(settings.job(Job(COUNT), width), frame=SMALLEST)


def _measured(width: int, answers: Answers) -> Measured:
    return Measured(width, {kind: [row for _, job, row in answers[kind] if job.width == width] for kind in KINDS})


def _parts_of(row: Row) -> dict[str, float]:
    """Return the parts of one round."""
    steps = len(row["seconds"][0])
    parts = {name: statistics.mean(rank[name] for rank in row["parts"]) / steps for name in PARTS}
    whole = statistics.mean(map(statistics.mean, row["seconds"]))
    return {**parts, "rest": whole - sum(parts.values()), "step": whole}


def _round_rows(measured: Sequence[Measured]) -> Iterator[Row]:
    for found in measured:
        by_kind = {kind: found.seconds(kind) for kind in KINDS if found.rounds[kind]}
        for number, seconds in enumerate(zip(*by_kind.values(), strict=True), start=1):
            yield {
                "part": "seconds of a step, by round",
                "width": found.width,
                "round": number,
                **dict(zip(by_kind, seconds, strict=True)),
            }


def _step_rows(measured: Sequence[Measured]) -> Iterator[Row]:
    for found in measured:
        for kind in (kind for kind in KINDS if kind != LOOKED_AT and found.rounds[kind]):
            row, by_round = found.rounds[kind][0], found.ratios(ONE, kind)
            cores = 1 if kind == APART else KINDS[kind][0] * KINDS[kind][1].threads
            yield {
                "part": "steps",
                "width": found.width,
                "weights": row["weights"],
                "what": kind,
                "rounds": len(by_round),
                "step_s": statistics.median(found.seconds(kind)),
                "speedup": statistics.median(by_round),
                "efficiency": statistics.median(by_round) / cores,
                "lowest": min(by_round) / cores,
                "highest": max(by_round) / cores,
                "on_cpu": statistics.median(row["on_cpu"] for row in found.rounds[kind]),
                "gradients": row["gradients"],
            }


def _part_rows(measured: Sequence[Measured]) -> Iterator[Row]:
    for found in measured:
        for kind in (kind for kind in (ONE, LOOKED_AT) if found.rounds[kind]):
            parts = found.parts(kind)
            yield {
                "part": "where the time of a step goes (ms, mean over ranks)",
                "width": found.width,
                "what": kind,
                **{name: 1e3 * parts[name] for name in (*PARTS, "rest", "step")},
                "waiting_share": parts["waiting"] / parts["step"],
                "sending_share": (parts["exchange"] + parts["sum"]) / parts["step"],
            }


def _constant_rows(constants: Mapping[int, Row]) -> Iterator[Row]:
    for ranks, row in constants.items():
        yield {"part": "small things", "what": "exchange of notes", "ranks": ranks, "ms": 1e3 * row["exchange"]}
    for size, seconds in constants[2]["sums"].items():
        volume = FLOAT32 * int(size)
        yield {
            "part": "small things",
            "what": "sum over ranks",
            "ranks": 2,
            "numbers": int(size),
            "ms": 1e3 * seconds,
            "gb_per_s": volume / seconds / 1e9,
        }


def machines_of(found: Measured, constants: Mapping[int, Row]) -> Machines:
    """Return this machine for the model, from exchanges and sums alone and from two independent processes."""
    more = [(row["exchange"] - constants[2]["exchange"]) / (ranks - 2) for ranks, row in constants.items() if ranks > 2]
    sums = [(int(size), seconds) for size, seconds in constants[2]["sums"].items()]
    link = fitted_link(sums, found.rounds[ONE][0]["numbers"])
    return Machines(link, constants[2]["exchange"], statistics.mean(more), crowding=found.ratio(APART, ONE))


def _prediction(found: Measured, meta_batch: int, constants: Mapping[int, Row]) -> Row:
    """Return the model's T(2), from one process, two independent ones, exchanges and sums, beside the measured one."""
    network, machines = found.network(meta_batch), machines_of(found, constants)
    parts, measured = step_parts(2, meta_batch, network, machines), statistics.median(found.seconds(TWO))
    return {
        "part": "the model's T(2), and what was measured",
        "width": found.width,
        "numbers": network.numbers,
        "task_ms": 1e3 * network.task_seconds,
        "rest_ms": 1e3 * network.rest_seconds,
        "crowding": machines.crowding,
        "exchange_ms": 1e3 * parts.exchange,
        "all_reduce_ms": 1e3 * parts.all_reduce,
        "predicted_ms": 1e3 * parts.total,
        "measured_ms": 1e3 * measured,
        "error": parts.total / measured - 1,
        "efficiency": efficiency(2, meta_batch, network, machines),
    }


def _memory_rows(answers: Sequence[tuple[int, Job, Row]]) -> Iterator[Row]:
    for processes, job, row in answers:
        yield {
            "part": "memory of a rank",
            "width": job.width,
            "numbers": row["numbers"],
            "processes": processes,
            "sharded": "yes" if job.shard else "no",
            "moments_mib": row["moments_bytes"] / 2**20,
            "peak_gib": row["peak_gib"],
        }


def _paper_rows(settings: Settings, counts: Sequence[Row]) -> Iterator[Row]:
    """Yield the model of GPUs. Operations were counted at small frames; arithmetic is proportional to the pixels."""
    pixels = (settings.paper_frame / SMALLEST) ** 2
    named = dict[str, Network]()
    for width, row in zip(settings.paper_widths, counts, strict=True):
        flops, operations, numbers = row["flops"] * pixels, row["operations"], row["numbers"]
        started, arithmetic = (gpu_network(flops, started, numbers) for started in (operations, 0))
        named |= {f"width {width}": started, f"width {width}, arithmetic alone": arithmetic}
        yield {
            "part": "counted: one task",
            "network": f"width {width}",
            "frame": settings.paper_frame,
            "gflop": flops / 1e9,
            "operations": operations,
            "numbers": numbers,
            "gpu_task_ms": 1e3 * started.task_seconds,
            "gpu_arithmetic_ms": 1e3 * arithmetic.task_seconds,
            "gpu_rest_ms": 1e3 * started.rest_seconds,
        }
    for name, network in named.items():
        yield from ({"part": "on paper: efficiency of N GPUs, 8 a node", **row} for row in paper_rows(name, network))
    for name, network in named.items():
        yield from ({"part": "on paper: a step of 128 GPUs, one task each", **row} for row in limit_rows(name, network))


def _headline(found: Measured, predictions: Sequence[Row], constants: Mapping[int, Row]) -> dict[str, float]:
    parts, link = found.parts(LOOKED_AT), machines_of(found, constants).inside
    together, apart = found.ratio(ONE, TWO) / 2, found.ratio(ONE, APART)
    return {
        "efficiency_2": together,
        "speedup_2": found.ratio(ONE, TWO),
        "machine_2": apart,
        "efficiency_over_machine_2": statistics.median(
            t / 2 / a for t, a in zip(found.ratios(ONE, TWO), found.ratios(ONE, APART), strict=True)
        ),
        "two_threads_over_two_processes": found.ratio(THREADS, TWO),
        "sharded_2": found.ratio(TWO, SHARDED),
        "waiting_share": parts["waiting"] / parts["step"],
        "sending_share": (parts["exchange"] + parts["sum"]) / parts["step"],
        "exchange_ms": 1e3 * constants[2]["exchange"],
        "bandwidth_gb_per_s": link.bandwidth / 1e9,
        "model_error": max((row["error"] for row in predictions), key=abs),
    }


def _notes(settings: Settings, load: float) -> list[str]:
    return [
        f"meta-steps of the trainer: U-Net with all weights random, {settings.meta_batch} tasks of drifting blobs in a "
        f"step, frames of {settings.frame} x {settings.frame}, k_shot {settings.k_shot}, k_query {settings.k_query}, "
        f"{settings.inner_steps} inner steps, float32, gloo over loopback, one thread a process unless it says 2; "
        f"headline: width {settings.width}",
        "efficiency_2 = T1 / (2 T2); machine_2 = T1 / T1 of two independent processes at once: what the machine "
        "allows; efficiency_over_machine_2: their ratio; two_threads_over_two_processes: a step of one process with "
        "two threads over T2; sharded_2 = T2 / T2 sharded; all are medians of ratios within a round, lowest and "
        "highest their range; on_cpu: CPU time over wall time of a process, less than 1 where others are at work or it "
        "waits",
        "waiting: until the slower rank has done its tasks; exchange and sum: sending after that; rest: division, "
        "clipping, AdamW",
        "predicted: T(2) from one process (task, rest), two independent ones (crowding) and the small things",
        f"on paper (nothing measured but the counts): {GPU_FLOPS / 1e12:g} TFLOP/s or {GPU_START * 1e6:g} us to start "
        "an operation, whichever takes longer (arithmetic alone: the first); NVLink "
        f"{GPUS.inside.bandwidth / 1e9:g} GB/s; of 100 and 400 Gbit/s four fifths; exchange of notes "
        f"{GPUS.exchange * 1e3:g} ms and {GPUS.exchange_more * 1e3:g} ms a further rank, {GPUS.exchanges} a step",
        f"load of the machine before it began: {load:.2f}",
    ]


BENCHMARK = Benchmark(
    "scaling",
    "a training shared by two processes, beside one and beside two independent ones; a model of more",
    measure,
    full=Settings(),
    quick=Settings(
        width=4,
        other_widths=(),
        frame=16,
        k_shot=2,
        k_query=2,
        inner_steps=2,
        meta_batch=4,
        rounds=1,
        other_rounds=1,
        exchange_ranks=(2, 3),
        largest=SIZES[1],
        wide=8,
        paper_widths=(4,),
    ),
    quick_note="so small that starting operations is all that is measured; the ratios say nothing",
    conditions=("a machine at rest",),
)
