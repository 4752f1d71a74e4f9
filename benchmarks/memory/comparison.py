"""Peak memory of one meta-step of a U-Net by the number of inner steps, beside ``higher`` and ``torchopt``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.peers import peer_versions
from benchmarks.common.processes import ProcessFailed, in_own_process
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.common.worker import GIB
from benchmarks.memory.one_step import (
    CHECKPOINTED_MAML,
    ON_DISK,
    PLANNED,
    PREDICT,
    Step,
    measure_step,
    prediction_name,
)
from metaprior.metagrad.memory import available
from metaprior.progress import progress_bar

OURS, IN_MEMORY, PEER = ON_DISK, "twice_reverse", "higher"
SPARE_GIB = 1.0
SWEEPS = (OURS, IN_MEMORY, "mixed")
PREDICTED = (*SWEEPS, "checkpointed", "unrolled")
HEAD = r"(decoder4|output)\..*"
LEAK_TASKS = (10, 50)
LEAK_STEPS = 2
OUT_OF_MEMORY = ("Resource temporarily unavailable", "allocate memory", "bad_alloc", "MemoryError")
"""Messages of a process that cannot even start its threads."""
LARGE = Step(PLANNED, 5, width=64, frame=256, memory="2GiB")
"""Frames of 256 x 256 within a given memory: the problem that flat memory is for."""


@dataclass(frozen=True)
class Settings:
    """The size of the problem, and the numbers of inner steps of each engine and peer."""

    width: int = 64
    frame: int = 64
    k_shot: int = 5
    k_query: int = 10
    leak_width: int = 16
    leak_frame: int = 32
    micro_batch: int = 2
    on_disk: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    twice_reverse: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    mixed: tuple[int, ...] = (5,)
    checkpointed: tuple[int, ...] = (5,)
    unrolled: tuple[int, ...] = (1, 2)
    higher: tuple[int, ...] = (1, 2, 5, 10)
    torchopt: tuple[int, ...] = (1, 2, 5, 10)
    checkpointed_maml: tuple[int, ...] = (1, 2, 5, 10, 20)
    other_sizes: tuple[tuple[int, int], ...] = ((16, 64), (16, 128), (64, 128))
    """Further widths and frames, at ``other_steps`` inner steps."""
    other_steps: int = 5
    full: bool = False
    """Whether to measure frames of 256 x 256, too."""

    def jobs(self) -> list[Step]:
        """Return all steps, by rising number of inner steps, so that each row can be extrapolated from those before."""
        names = (*PREDICTED, PEER, "torchopt", CHECKPOINTED_MAML)
        main = [self.step(what, steps) for what in names for steps in getattr(self, what.lower().replace(" ", "_"))]
        others = [
            replace(self.step(what, self.other_steps), width=width, frame=frame)
            for width, frame in self.other_sizes
            for what in (OURS, IN_MEMORY, PEER, CHECKPOINTED_MAML)
        ]
        heads = [replace(self.step(what, self.other_steps), stochastic=HEAD) for what in (OURS, IN_MEMORY, PEER)]
        return [*main, *others, *heads]

    def step(self, what: str, steps: int) -> Step:
        """Return the step of one row: engines that need less memory with micro-batches have them."""
        micro_batch = self.micro_batch if what in SWEEPS else None
        return Step(what, steps, self.width, self.frame, self.k_shot, self.k_query, micro_batch)


def available_gib() -> float:
    """Return the memory that a new process could take."""
    return available() / GIB


def measured(step: Step, limit_gib: float | None) -> Row:
    """Return the row of a step in a fresh process, or a status where the system ended it for its memory."""
    # Threads wait without spinning, so that CPU seconds are work even on a machine that does other things.
    try:
        return in_own_process(measure_step, step, limit_gib=limit_gib, environment={"OMP_WAIT_POLICY": "PASSIVE"})
    except ProcessFailed as error:
        if error.returncode < 0:
            return {"status": f"killed by signal {-error.returncode}, probably for its memory"}
        if not any(complaint in error.stderr for complaint in OUT_OF_MEMORY):
            raise
        return {"status": f"out of memory: {error.stderr.strip().splitlines()[-1][:80]}"}


def extrapolate(known: Sequence[Row], steps: int) -> float | None:
    """Return the peak (GiB) at so many steps by a straight line through the last two measured rows."""
    points = [(row["inner_steps"], row["peak_gib"]) for row in known if row.get("peak_gib") is not None]
    if len(points) < 2:
        return None
    (x0, y0), (x1, y1) = points[-2:]
    return float(y1 + (y1 - y0) / (x1 - x0) * (steps - x1))


def measure_or_refuse(step: Step, known: Sequence[Row]) -> Row:
    """Return the row of one step; a step that is extrapolated not to fit is not started."""
    row: Row = {"what": step.what, "width": step.width, "frame": step.frame, "inner_steps": step.steps}
    row |= {"random": "all" if step.stochastic == ".*" else "head", "micro_batch": step.micro_batch, "peak_gib": None}
    expected, free = extrapolate(known, step.steps), available_gib()
    room = free - SPARE_GIB
    if expected is not None and expected > room:
        status = f"not started: extrapolated {expected:.1f} GiB, {free:.1f} GiB available"
        return {**row, "extrapolated_gib": expected, "status": status}
    found = measured(step, room if math.isfinite(room) else None)
    if "peak_gib" not in found:
        return {**row, "extrapolated_gib": expected, **found}
    measures = ("peak_gib", "predicted_gib", "written_gib", "cpu_seconds", "wall_seconds")
    keep = ("micro_batch", *measures, "weights", "status")
    return {**row, **{name: found[name] for name in keep if name in found}}


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Measure all steps, the planner's predictions, many tasks in one process, and (``--full``) large frames."""
    settings, peers, jobs = context.settings, peer_versions(), context.settings.jobs()
    rows: list[Row] = []
    problems = sorted({replace(job, what=PREDICT, micro_batch=None) for job in jobs if job.what in PREDICTED}, key=str)
    total = len(jobs) + len(problems) + 1 + settings.full
    with progress_bar("memory", total, unit="processes", show=True) as bar:
        for step in jobs:
            rows.append(measure_or_refuse(step, [row for row in rows if _is_of(row, step, step.what)]))
            bar.update(1, last=f"{step.what}, {step.steps} steps")
        for step in problems:
            _add_predictions(rows, measured(step, None), step)
            bar.update(1, last=f"predictions, {step.steps} steps")
        leak = _measure_leak(settings)
        bar.update(1, last=f"{LEAK_TASKS[-1]} tasks")
        headline = _headline(rows, leak, settings)
        if settings.full:
            large = measure_or_refuse(LARGE, [])
            headline["full_peak_gib"] = _or_unknown(large["peak_gib"])
            rows.append({**large, "what": f"{PLANNED}, {LARGE.memory}"})
            bar.update(1, last="256 x 256")
    headline |= _planner_errors(rows)
    rows.append(_leak_row(leak, settings))
    notes = _notes(rows, settings)
    shown = [{name: value for name, value in row.items() if name != "weights"} for row in rows]
    return BenchmarkResult(headline, shown, notes, {"peers": peers})


def _is_of(row: Row, step: Step, what: str) -> bool:
    """Return whether a row is of the problem of a step, with any number of inner steps."""
    random = "all" if step.stochastic == ".*" else "head"
    return bool((row["what"], row["width"], row["frame"], row["random"]) == (what, step.width, step.frame, random))


def _add_predictions(rows: Sequence[Row], predicted: Row, step: Step) -> None:
    """Add the planner's predictions to the measured rows."""
    peaks = predicted.get("predicted_gib", {})
    for row in rows:
        if row["what"] in PREDICTED and row["inner_steps"] == step.steps and _is_of(row, step, row["what"]):
            row["predicted_gib"] = peaks.get(prediction_name(row["what"], row["micro_batch"]))


def _planner_errors(rows: Sequence[Row]) -> dict[str, float]:
    """Return the largest relative error of a predicted peak, of the sweeps and of all, and the largest shortfall."""
    pairs = [
        (row["what"] in SWEEPS, row["predicted_gib"] / row["peak_gib"] - 1)
        for row in rows
        if row.get("predicted_gib") and row["peak_gib"]
    ]
    return {
        "planner_error": max((abs(error) for of_sweep, error in pairs if of_sweep), default=math.nan),
        "planner_error_graphs": max((abs(error) for of_sweep, error in pairs if not of_sweep), default=math.nan),
        "planner_shortfall": max((max(0.0, -error) for _, error in pairs), default=math.nan),
    }


def _measure_leak(settings: Settings) -> Row:
    """Return the row of many tasks in one process, on a smaller network."""
    width, frame = settings.leak_width, settings.leak_frame
    return measured(
        Step(OURS, LEAK_STEPS, width, frame, k_shot=2, k_query=2, micro_batch=1, tasks=LEAK_TASKS[-1]), None
    )


def _leak_row(leak: Row, settings: Settings) -> Row:
    row = {"what": f"{OURS}, {LEAK_TASKS[-1]} tasks", "width": settings.leak_width, "frame": settings.leak_frame}
    row |= {"random": "all", "inner_steps": LEAK_STEPS, "micro_batch": 1}
    return {**row, **{name: leak.get(name) for name in ("peak_gib", "cpu_seconds", "wall_seconds", "status")}}


def _headline(rows: Sequence[Row], leak: Row, settings: Settings) -> dict[str, float]:
    whole = settings.step(OURS, 5)
    rows = [row for row in rows if _is_of(row, whole, row["what"])]
    return {
        "memory_ratio_5": _peak(rows, OURS, 5) / _peak(rows, PEER, 5),
        "memory_ratio_10": _peak(rows, OURS, 10) / _peak(rows, PEER, 10),
        "bytes_per_step_over_4D": _slope_over_weights(rows),
        "leak_ratio": _leak_ratio(leak),
    }


def _value(rows: Sequence[Row], what: str, steps: int, name: str) -> float:
    """Return a number of one row; NaN where it is not known."""
    values = [row.get(name) for row in rows if (row["what"], row["inner_steps"]) == (what, steps)]
    return _or_unknown(values[0] if values else None)


def _or_unknown(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _peak(rows: Sequence[Row], what: str, steps: int) -> float:
    """Return the measured peak, or else the extrapolated one."""
    measured = _value(rows, what, steps, "peak_gib")
    return _value(rows, what, steps, "extrapolated_gib") if math.isnan(measured) else measured


def _slope_over_weights(rows: Sequence[Row]) -> float:
    """Return the bytes that a further inner step of ours costs, in units of one float32 for each weight.

    It is the slope from 5 steps (or from the fewest, if 5 are the most) to the most.
    """
    own = {row["inner_steps"]: row for row in rows if row["what"] == OURS and row["peak_gib"] is not None}
    most = max(own, default=0)
    start = 5 if most > 5 and 5 in own else min(own, default=0)
    if most == start:
        return math.nan
    rise = (own[most]["peak_gib"] - own[start]["peak_gib"]) * GIB
    return float(rise / (most - start) / (4 * own[most]["weights"]))


def _leak_ratio(leak: Row) -> float:
    """Return the peak after all tasks over the peak after the first ten."""
    peaks = leak.get("peaks_gib", [])
    return peaks[-1] / peaks[LEAK_TASKS[0] - 1] if len(peaks) == LEAK_TASKS[-1] else math.nan


def _notes(rows: Sequence[Row], settings: Settings) -> list[str]:
    weights = next((row["weights"] for row in rows if row.get("weights")), None)
    extrapolated = [row for row in rows if row.get("extrapolated_gib") is not None]
    return [
        f"one task of a U-Net ({weights} weights at width {settings.width}), k_shot {settings.k_shot}, k_query "
        f"{settings.k_query}, float32; peak resident memory of a fresh process, importing torch included",
        "on_disk: twice_reverse with its path in a file; written_gib: what was given to files; random = head: the last "
        "decoder block and the output layer are random and adapted, the trunk is learned",
        "predicted_gib: what the planner predicts before anything runs, without the modules that predicting loads; "
        "planner_error: the largest relative difference, of engines that sweep (planner_error_graphs: of the others); "
        "planner_shortfall: by how much a prediction was too low at most",
        f"memory_ratio_...: {OURS} over {PEER}; bytes_per_step_over_4D: what each further inner step of {OURS} costs, "
        f"in float32 vectors of all weights; leak_ratio: peak after {LEAK_TASKS[1]} tasks over peak after "
        f"{LEAK_TASKS[0]}, in one process",
        *(
            f"{row['what']} at {row['inner_steps']} steps: {row['extrapolated_gib']:.1f} GiB is EXTRAPOLATED by a "
            "straight line from fewer steps, not measured; ratios use it"
            for row in extrapolated
        ),
    ]


BENCHMARK = Benchmark(
    "memory",
    "peak memory by inner steps, beside `higher` and `torchopt`",
    measure,
    full=Settings(),
    quick=Settings(
        width=8,
        frame=32,
        leak_width=2,
        leak_frame=16,
        on_disk=(1, 5),
        twice_reverse=(5,),
        mixed=(5,),
        checkpointed=(5,),
        unrolled=(5,),
        higher=(1, 5),
        torchopt=(5,),
        checkpointed_maml=(5,),
        other_sizes=(),
    ),
    quick_note="so small that importing torch is most of every peak; the ratios say nothing",
    larger=Settings(full=True),
    extras=("bench",),
)
