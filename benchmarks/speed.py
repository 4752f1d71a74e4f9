"""Seconds a task beside ``higher``: a whole U-Net, its head alone, and many tasks of a small network at once.

Contenders take turns, because no machine is idle: each round runs every one of them once, and the median over rounds
is reported. Rounds run in a process whose threads wait without spinning, so that CPU seconds are work.
"""

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

import metaprior as mp
from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.budget import first_tasks
from benchmarks.common.peers import checkpointed_unroll, higher_unroll, peer_versions, torchopt_unroll
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.memory.comparison import measured
from benchmarks.memory.one_step import CHANNELS, CHECKPOINTED_MAML, ON_DISK, Step
from metaprior.metagrad.meta_batch import meta_gradient
from metaprior.tasks.waves import Sinusoids

STEPS = 5
HEAD = r"(decoder4|output)\..*"
UNET_LR = 1e-6  # the likelihood sums over thousands of pixels
MLP_LR = 1e-3

LARGE = "U-Net of width 64, everything"
LARGE_CONTENDERS = (ON_DISK, "twice_reverse", "higher", "torchopt", CHECKPOINTED_MAML)
PEER_NAMES = ("higher", "torchopt", CHECKPOINTED_MAML)
EVERYTHING, HEAD_LEARNED, HEAD_FROZEN = "U-Net, everything", "U-Net, head, trunk learned", "U-Net, head, trunk frozen"
MLP_TASKS = "MLP, many tasks"

Contender = Callable[[], float]
"""Does the work once, and returns the loss."""


@dataclass(frozen=True)
class Settings:
    """Sizes and repeats."""

    width: int = 16
    frame: int = 64
    k_shot: int = 5
    k_query: int = 10
    unet_rounds: int = 5
    large_width: int = 64
    large_frame: int = 64
    large_micro_batch: int = 2
    large_rounds: int = 3
    mlp_tasks: int = 25
    mlp_rounds: int = 15


class Seconds(NamedTuple):
    """The seconds of one turn, and its loss."""

    cpu: float
    wall: float
    loss: float


Name = tuple[str, str]
"""What is adapted, and by which engine or library."""
KEEPING = f"keeping({STEPS})"


def unet_contenders(settings: Settings) -> dict[Name, Contender]:
    """Return one task's meta-gradient by several engines and ``higher``, of the whole network and of its head."""
    task = Step("", STEPS, settings.width, settings.frame, settings.k_shot, settings.k_query).task(0)
    engines: dict[str, Callable[..., Any]] = {
        "twice_reverse": mp.metagrad.twice_reverse,
        "mixed": mp.metagrad.mixed,
        ON_DISK: mp.metagrad.on_disk(),
        KEEPING: mp.metagrad.keeping(STEPS),
        "higher": higher_unroll,
        "torchopt": torchopt_unroll,
        CHECKPOINTED_MAML: checkpointed_unroll,
    }
    problems = {
        EVERYTHING: (unet_problem(settings, ".*", frozen=False), tuple(engines)),
        HEAD_LEARNED: (unet_problem(settings, HEAD, frozen=False), ("twice_reverse", "higher", KEEPING)),
        HEAD_FROZEN: (unet_problem(settings, HEAD, frozen=True), ("twice_reverse", KEEPING)),
    }
    return {
        (what, name): one_task(engines[name], problem, task)
        for what, (problem, names) in problems.items()
        for name in names
    }


def unet_problem(settings: Settings, stochastic: str, *, frozen: bool) -> mp.Problem:
    """Return the problem whose trunk (what does not match ``stochastic``) is meta-learned, or frozen."""
    torch.manual_seed(0)
    module = mp.UNet(CHANNELS, CHANNELS, width=settings.width)
    if frozen:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(re.fullmatch(stochastic, name) is not None)
    inner = mp.Descent(steps=STEPS, lr=UNET_LR, adapt=None, damped=False)  # the peer takes plain steps
    return mp.Problem(mp.BayesianNetwork(module, stochastic), mp.Gaussian(noise=1.0), inner)


def one_task(engine: Callable[..., Any], problem: mp.Problem, task: mp.Task) -> Contender:
    """Return a contender that computes one task's meta-gradient with an engine or a peer."""
    theta = problem.initial(task.support.y)
    return lambda: _finite(engine(problem, theta, task, mp.Noise(0)))


def mlp_contenders(settings: Settings) -> dict[Name, Contender]:
    """Return many tasks of a 1-40-40-1 network: in a loop, or stacked in one program."""
    torch.manual_seed(0)
    network = mp.BayesianNetwork(mp.MLP(1, [40, 40], 1))
    problem = mp.Problem(network, mp.Gaussian(noise=0.3), mp.Descent(steps=STEPS, lr=MLP_LR, damped=False))
    tasks = first_tasks(Sinusoids(k_shot=settings.k_shot, k_query=settings.k_query), settings.mlp_tasks)
    theta, engine = problem.initial(tasks[0].support.y), mp.metagrad.keeping(STEPS)

    def loop_of_higher() -> float:
        losses = (_finite(higher_unroll(problem, theta, t, mp.Noise(0, task=i))) for i, t in enumerate(tasks))
        return sum(losses) / len(tasks)

    def ours(*, stacked: bool) -> float:
        return _finite(meta_gradient(problem, theta, tasks, mp.Noise(0), engine=engine, stacked=stacked))

    return {
        (MLP_TASKS, "higher"): loop_of_higher,
        (MLP_TASKS, KEEPING): partial(ours, stacked=False),
        (MLP_TASKS, f"{KEEPING}, stacked"): partial(ours, stacked=True),
    }


def _finite(outcome: Any) -> float:
    """Return the loss; a problem of this benchmark that diverges is a mistake in its settings."""
    failures = [outcome] if isinstance(outcome, mp.NonFinite) else getattr(outcome, "failures", ())
    if failures:
        raise ValueError(str(failures[0]))
    return float(outcome.loss)


GROUPS: Mapping[str, Callable[[Settings], dict[Name, Contender]]] = {"unet": unet_contenders, "mlp": mlp_contenders}


def threads_of(group: str) -> int:
    """Return all cores for images, and one thread for tensors so small that threads would wait for each other."""
    return (os.cpu_count() or 1) if group == "unet" else 1


@cache
def _warm(group: str, settings: Settings) -> dict[Name, Contender]:
    """Return the contenders of a group after each has run once."""
    contenders = GROUPS[group](settings)
    for contender in contenders.values():
        contender()
    return contenders


def take_turns(context: Context[Settings], group: str) -> dict[Name, Seconds]:
    """Time every contender of the group once."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads_of(group))
    try:
        return {name: _time(contender) for name, contender in _warm(group, context.settings).items()}
    finally:
        torch.set_num_threads(before)


def large_turn(settings: Settings) -> dict[Name, Seconds]:
    """Time every contender on the large U-Net once, each in a fresh process: large graphs leave a heap behind."""
    turn = {}
    for what in LARGE_CONTENDERS:
        micro_batch = None if what in PEER_NAMES else settings.large_micro_batch
        sizes = (settings.large_width, settings.large_frame, settings.k_shot, settings.k_query)
        row = measured(Step(what, STEPS, *sizes, micro_batch), None)
        if row["status"] != "ok":
            raise ValueError(f"{what} on the large U-Net: {row['status']}")
        turn[LARGE, what] = Seconds(row["cpu_seconds"], row["wall_seconds"], row["loss"])
    return turn


def _time(contender: Contender) -> Seconds:
    cpu, wall = time.process_time(), time.perf_counter()
    loss = contender()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall, loss)


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Run all rounds in one process."""
    settings, peers = context.settings, peer_versions()
    jobs = [("unet",)] * settings.unet_rounds + [("mlp",)] * settings.mlp_rounds
    with patch.dict(os.environ, OMP_WAIT_POLICY="PASSIVE"):  # OpenMP reads it when the process starts
        rounds = replace(context, workers=0 if context.workers == 0 else 1).map(take_turns, jobs)
    times: dict[Name, list[Seconds]] = {}
    for turn in [*rounds, *(large_turn(settings) for _ in range(settings.large_rounds))]:
        for name, seconds in turn.items():
            times.setdefault(name, []).append(seconds)
    rows = [_row(name, taken, settings) for name, taken in times.items()]
    return BenchmarkResult(_headline(times), rows, _notes(settings), {"inner_steps": STEPS, "peers": peers})


def _row(name: Name, taken: Sequence[Seconds], settings: Settings) -> Row:
    tasks = settings.mlp_tasks if name[0] == MLP_TASKS else 1
    return {
        "what": name[0],
        "by": name[1],
        "threads": threads_of("mlp" if name[0] == MLP_TASKS else "unet"),
        "rounds": len(taken),
        "cpu_seconds_a_task": statistics.median(turn.cpu for turn in taken) / tasks,
        "wall_seconds_a_task": statistics.median(turn.wall for turn in taken) / tasks,
        "loss": taken[0].loss,
    }


def _ratio(times: Mapping[Name, Sequence[Seconds]], slow: Name, fast: Name, clock: str = "wall") -> float:
    """Return how many times as long ``slow`` takes: the median of the ratios within a round."""
    pairs = zip(times[slow], times[fast], strict=True)
    return float(statistics.median(getattr(a, clock) / getattr(b, clock) for a, b in pairs))


def _headline(times: Mapping[Name, Sequence[Seconds]]) -> dict[str, float]:
    peers = [(LARGE, name) for name in PEER_NAMES]
    fastest = min(peers, key=lambda name: statistics.median(turn.cpu for turn in times[name]))
    whole, stacked = (EVERYTHING, "twice_reverse"), (MLP_TASKS, f"{KEEPING}, stacked")
    engines = {"twice_reverse": "twice_reverse", "mixed": "mixed", "on_disk": ON_DISK}
    return {
        "cpu_ratio_5": _ratio(times, (LARGE, ON_DISK), (LARGE, "higher"), "cpu"),
        "cpu_ratio_5_fastest": _ratio(times, (LARGE, ON_DISK), fastest, "cpu"),
        "cpu_ratio_small": _ratio(times, (EVERYTHING, KEEPING), (EVERYTHING, "higher"), "cpu"),
        "head_speedup": _ratio(times, whole, (HEAD_FROZEN, "twice_reverse")),
        "head_speedup_learned_trunk": _ratio(times, whole, (HEAD_LEARNED, "twice_reverse")),
        "mlp_speedup": _ratio(times, (MLP_TASKS, "higher"), stacked),
        "mlp_loop_speedup": _ratio(times, (MLP_TASKS, "higher"), (MLP_TASKS, KEEPING)),
        **{
            f"unet_cpu_over_higher_{short}": _ratio(times, (EVERYTHING, engine), (EVERYTHING, "higher"), "cpu")
            for short, engine in engines.items()
        },
    }


def _notes(settings: Settings) -> list[str]:
    return [
        f"U-Net of width {settings.width}, frames of {settings.frame} x {settings.frame}, k_shot {settings.k_shot}, "
        f"k_query {settings.k_query}, {STEPS} inner steps, float32, no micro-batches; MLP 1-40-40-1, "
        f"{settings.mlp_tasks} tasks of the same sizes",
        "head: decoder4 and output are random and adapted; the trunk before them runs once a task, and is meta-learned "
        "or frozen",
        f"{LARGE}: frames of {settings.large_frame} x {settings.large_frame}, each measurement in a fresh process, "
        f"micro-batches of {settings.large_micro_batch}",
        "cpu_ratio_5: CPU seconds of on_disk over higher on the large U-Net; cpu_ratio_5_fastest: the same over the "
        "fastest peer; "
        f"cpu_ratio_small: {KEEPING}, which is chosen where memory allows, over higher on the small one",
        "head_speedup (trunk frozen), head_speedup_learned_trunk: tasks a second (wall clock) over adapting everything "
        "by the same engine; mlp_speedup, mlp_loop_speedup: over a loop of higher; unet_cpu_over_higher_...: CPU "
        "seconds; medians over rounds",
    ]


BENCHMARK = Benchmark(
    "speed",
    "seconds a task, beside `higher`",
    measure,
    full=Settings(),
    quick=Settings(width=8, frame=32, unet_rounds=2, large_width=8, large_frame=32, large_rounds=1, mlp_rounds=3),
    quick_note="a smaller U-Net and few rounds",
    extras=("bench",),
)
