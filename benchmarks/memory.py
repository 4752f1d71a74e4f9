"""Peak memory of one meta-step of the seed's U-Net, by number of inner steps, beside ``higher`` and ``torchopt``."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tqdm import tqdm

from benchmarks.one_step import GIB, PLANNED, PREDICT, Step, prediction_name
from benchmarks.peers import peer_versions
from benchmarks.result import BenchResult, Row
from metaprior.metagrad.planner import available

OURS, PEER = "twice_reverse", "higher"
SPARE_GIB = 1.0
PREDICTED = ("twice_reverse", "mixed", "checkpointed", "unrolled")
LEAK_TASKS = (10, 50)
LEAK_STEPS = 2
OUT_OF_MEMORY = ("Resource temporarily unavailable", "allocate memory", "bad_alloc", "MemoryError")
"""What a process says that cannot even start its threads."""

Runner = Callable[[Step, float | None], Row]
"""Measures a step in a process of its own, with a limit in GiB."""


@dataclass(frozen=True)
class Settings:
    """The job, and for how many inner steps each does it."""

    width: int = 64
    frame: int = 64
    k_shot: int = 5
    k_query: int = 10
    leak_width: int = 16
    leak_frame: int = 32
    twice_reverse: tuple[int, ...] = (1, 2, 5, 10, 20)
    mixed: tuple[int, ...] = (5, 10)
    checkpointed: tuple[int, ...] = (5,)
    unrolled: tuple[int, ...] = (1, 2)
    higher: tuple[int, ...] = (1, 2, 5, 10)
    torchopt: tuple[int, ...] = (1, 2, 5)

    def jobs(self) -> list[Step]:
        """All rows; those of one kind by rising number of steps, so that each can be predicted from those before."""
        one_at_a_time = ("twice_reverse", "mixed")  # the engines that micro-batches help
        return [
            self.step(what, steps, micro_batch=1 if what in one_at_a_time else None)
            for what in ("twice_reverse", "mixed", "checkpointed", "unrolled", "higher", "torchopt")
            for steps in getattr(self, what)
        ]

    def step(self, what: str, steps: int, micro_batch: int | None) -> Step:
        """One of the rows."""
        return Step(what, steps, self.width, self.frame, self.k_shot, self.k_query, micro_batch)


QUICK = Settings(
    width=8,
    frame=32,
    leak_width=2,
    leak_frame=16,
    twice_reverse=(1, 5),
    mixed=(5,),
    checkpointed=(5,),
    unrolled=(5,),
    higher=(1, 5),
    torchopt=(5,),
)
SEED = Step(PLANNED, 5, width=64, frame=256, memory="4GiB")
"""The seed's real problem: frames of 256 x 256, in a memory that is given."""


def available_gib() -> float:
    """Memory that a new process could take."""
    return available() / GIB


def in_own_process(step: Step, limit_gib: float | None) -> Row:
    """Measure a step; a process that the system killed is a row that says so."""
    command = [sys.executable, "-m", "benchmarks.one_step", *step.arguments()]
    command += ["--limit-gib", str(limit_gib)] if limit_gib is not None else []
    # Threads that wait without spinning: CPU seconds are then work, also on a machine that does other things.
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode < 0:
        return {"status": f"killed by signal {-done.returncode}, probably for its memory"}
    if done.returncode and any(complaint in done.stderr for complaint in OUT_OF_MEMORY):
        return {"status": f"out of memory: {done.stderr.strip().splitlines()[-1][:80]}"}
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    result: Row = json.loads(done.stdout.splitlines()[-1])
    return result


def extrapolate(known: Sequence[Row], steps: int) -> float | None:
    """Peak (GiB) at so many steps by a straight line through the last two rows that were measured."""
    points = [(row["inner_steps"], row["peak_gib"]) for row in known if row.get("peak_gib") is not None]
    if len(points) < 2:
        return None
    (x0, y0), (x1, y1) = points[-2:]
    return float(y1 + (y1 - y0) / (x1 - x0) * (steps - x1))


def measure_or_refuse(step: Step, known: Sequence[Row], runner: Runner, available: float) -> Row:
    """The row of one step. What is predicted not to fit is not started: its row has the extrapolation instead."""
    row: Row = {"what": step.what, "inner_steps": step.steps, "micro_batch": step.micro_batch, "peak_gib": None}
    expected, room = extrapolate(known, step.steps), available - SPARE_GIB
    if expected is not None and expected > room:
        status = f"not started: extrapolated {expected:.1f} GiB, {available:.1f} GiB available"
        return {**row, "extrapolated_gib": expected, "status": status}
    measured = runner(step, room if math.isfinite(room) else None)
    if "peak_gib" not in measured:
        return {**row, "extrapolated_gib": expected, **measured}
    keep = ("micro_batch", "peak_gib", "predicted_gib", "cpu_seconds", "wall_seconds", "weights", "status")
    return {**row, **{name: measured[name] for name in keep if name in measured}}


def run(*, quick: bool = False, full: bool = False, runner: Runner = in_own_process) -> BenchResult:
    """All rows, then the leak; ``full``: also the seed's frames of 256 x 256 in 4 GiB, by the planner."""
    settings, peers = QUICK if quick else Settings(), peer_versions()
    jobs = settings.jobs()
    rows: list[Row] = []
    counts = sorted({job.steps for job in jobs if job.what in PREDICTED})[-1 if quick else 0 :]
    with tqdm(total=len(jobs) + len(counts) + 1 + full, desc="memory", unit="process") as bar:
        for step in jobs:
            bar.set_postfix_str(f"{step.what}, {step.steps} steps")
            known = [row for row in rows if row["what"] == step.what]
            rows.append(measure_or_refuse(step, known, runner, available_gib()))
            bar.update()
        for steps in counts:
            bar.set_postfix_str(f"predictions, {steps} steps")
            _add_predictions(rows, runner(settings.step(PREDICT, steps, None), None), steps)
            bar.update()
        bar.set_postfix_str(f"{LEAK_TASKS[-1]} tasks")
        leak = _measure_leak(settings, runner)
        bar.update()
        if full:
            bar.set_postfix_str("256 x 256")
            seed = measure_or_refuse(SEED, [], runner, available_gib())
            bar.update()
    headline = _headline(rows, leak)
    if full:
        headline["full_peak_gib"] = _or_unknown(seed["peak_gib"])
        rows.append({**seed, "what": f"{PLANNED}, 256 x 256, {SEED.memory}"})
    headline["planner_error"] = _planner_error(rows)
    rows.append(_leak_row(leak))
    about = {"bench": "memory", "quick": quick, "full": full, **asdict(settings), "peers": peers}
    return BenchResult(headline, [_without_weights(row) for row in rows], about, _notes(rows, settings, quick))


def _add_predictions(rows: Sequence[Row], predicted: Row, steps: int) -> None:
    """Put what the planner says beside what was measured."""
    peaks = predicted.get("predicted_gib", {})
    for row in rows:
        if row["inner_steps"] == steps and row["what"] in PREDICTED:
            row["predicted_gib"] = peaks.get(prediction_name(row["what"], row["micro_batch"]))


def _planner_error(rows: Sequence[Row]) -> float:
    """The largest relative error of a predicted peak."""
    pairs = [(row["predicted_gib"], row["peak_gib"]) for row in rows if row.get("predicted_gib") and row["peak_gib"]]
    return max((abs(predicted / peak - 1) for predicted, peak in pairs), default=math.nan)


def _measure_leak(settings: Settings, runner: Runner) -> Row:
    """Many tasks in one process, on a smaller network."""
    width, frame = settings.leak_width, settings.leak_frame
    return runner(Step(OURS, LEAK_STEPS, width, frame, k_shot=2, k_query=2, micro_batch=1, tasks=LEAK_TASKS[-1]), None)


def _leak_row(leak: Row) -> Row:
    row = {"what": f"{OURS}, {LEAK_TASKS[-1]} tasks, smaller", "inner_steps": LEAK_STEPS, "micro_batch": 1}
    return {**row, **{name: leak.get(name) for name in ("peak_gib", "cpu_seconds", "wall_seconds", "status")}}


def _headline(rows: Sequence[Row], leak: Row) -> dict[str, float]:
    return {
        "memory_ratio_5": _peak(rows, PEER, 5) / _peak(rows, OURS, 5),
        "memory_ratio_10": _peak(rows, PEER, 10) / _peak(rows, OURS, 10),
        "bytes_per_step_over_4D": _slope_over_weights(rows),
        "cpu_ratio_5": _value(rows, OURS, 5, "cpu_seconds") / _value(rows, PEER, 5, "cpu_seconds"),
        "leak_ratio": _leak_ratio(leak),
    }


def _value(rows: Sequence[Row], what: str, steps: int, name: str) -> float:
    """A number of one row; NaN where it is not known."""
    values = [row.get(name) for row in rows if (row["what"], row["inner_steps"]) == (what, steps)]
    return _or_unknown(values[0] if values else None)


def _or_unknown(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _peak(rows: Sequence[Row], what: str, steps: int) -> float:
    """Measured, or else extrapolated."""
    measured = _value(rows, what, steps, "peak_gib")
    return _value(rows, what, steps, "extrapolated_gib") if math.isnan(measured) else measured


def _slope_over_weights(rows: Sequence[Row]) -> float:
    """Bytes that a further inner step of ours costs, in units of one float32 for each weight: from 5 steps (or the
    fewest, if 5 are the most) to the most."""
    own = {row["inner_steps"]: row for row in rows if row["what"] == OURS and row["peak_gib"] is not None}
    most = max(own, default=0)
    start = 5 if most > 5 and 5 in own else min(own, default=0)
    if most == start:
        return math.nan
    rise = (own[most]["peak_gib"] - own[start]["peak_gib"]) * GIB
    return float(rise / (most - start) / (4 * own[most]["weights"]))


def _leak_ratio(leak: Row) -> float:
    """Peak after all tasks over peak after the first ten."""
    peaks = leak.get("peaks_gib", [])
    return peaks[-1] / peaks[LEAK_TASKS[0] - 1] if len(peaks) == LEAK_TASKS[-1] else math.nan


def _without_weights(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "weights"}


def _notes(rows: Sequence[Row], settings: Settings, quick: bool) -> list[str]:
    weights = next((row["weights"] for row in rows if row.get("weights")), None)
    extrapolated = [row for row in rows if row.get("extrapolated_gib") is not None]
    return [
        f"one task of a U-Net of width {settings.width} ({weights} weights, all random), frames of {settings.frame} x "
        f"{settings.frame}, k_shot {settings.k_shot}, k_query {settings.k_query}, float32; peak resident memory of a "
        "fresh process, importing torch included",
        "predicted_gib: what the planner says before anything runs; planner_error: the largest relative difference",
        "bytes_per_step_over_4D: what each further inner step of twice_reverse costs, in float32 vectors of all "
        f"weights; leak_ratio: peak after {LEAK_TASKS[1]} tasks over peak after {LEAK_TASKS[0]}, in one process",
        *(
            f"{row['what']} at {row['inner_steps']} steps: {row['extrapolated_gib']:.1f} GiB is EXTRAPOLATED by a "
            "straight line from fewer steps, not measured; ratios use it"
            for row in extrapolated
        ),
        *["--quick: so small that importing torch is most of every peak; the ratios say nothing"] * quick,
    ]
