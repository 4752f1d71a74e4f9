"""Seconds a task beside ``higher``: a whole U-Net, its head alone, and many tasks of a small network at once.

Contenders take turns, because no machine is idle: each round runs every one of them once, and the median over rounds
is reported. Rounds run in a process whose threads wait without spinning, so that CPU seconds are work.
"""

import math
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch

from benchmarks.common.benchmark import Benchmark, Context
from benchmarks.common.peers import higher_unroll, peer_versions
from benchmarks.common.processes import run_all
from benchmarks.common.result import BenchmarkResult, Row
from benchmarks.memory.one_step import CHANNELS, Step
from metaprior.likelihoods import Gaussian
from metaprior.metagrad import InnerLoop, NonFinite, Problem, keeping, mixed, twice_reverse
from metaprior.metagrad.meta_batch import meta_gradient
from metaprior.models.mlp import MLP
from metaprior.models.unet import UNet
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task

STEPS = 5
HEAD = r"(decoder4|output)\..*"
UNET_LR = 1e-6  # the likelihood sums over thousands of pixels
MLP_LR = 1e-3

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
    mlp_tasks: int = 25
    mlp_rounds: int = 15


class Round(NamedTuple):
    """One turn of every contender of a group ("unet" or "mlp")."""

    group: str
    settings: Settings


class Seconds(NamedTuple):
    """The seconds of one turn, and its loss."""

    cpu: float
    wall: float
    loss: float


Name = tuple[str, str]
"""What is adapted, and by which engine or library."""


def unet_contenders(settings: Settings) -> dict[Name, Contender]:
    """Return one task's meta-gradient by several engines and ``higher``, of the whole network and of its head."""
    whole, head, frozen = (
        unet_problem(settings, pattern, frozen=frozen)
        for pattern, frozen in ((".*", False), (HEAD, False), (HEAD, True))
    )
    task = Step("", STEPS, settings.width, settings.frame, settings.k_shot, settings.k_query).task(0)
    return {
        (EVERYTHING, "twice_reverse"): one_task(twice_reverse, whole, task),
        (EVERYTHING, "mixed"): one_task(mixed, whole, task),
        (EVERYTHING, f"keeping({STEPS})"): one_task(keeping(STEPS), whole, task),
        (EVERYTHING, "higher"): one_task(higher_unroll, whole, task),
        (HEAD_LEARNED, "twice_reverse"): one_task(twice_reverse, head, task),
        (HEAD_LEARNED, "higher"): one_task(higher_unroll, head, task),
        (HEAD_LEARNED, f"keeping({STEPS})"): one_task(keeping(STEPS), head, task),
        (HEAD_FROZEN, "twice_reverse"): one_task(twice_reverse, frozen, task),
        (HEAD_FROZEN, f"keeping({STEPS})"): one_task(keeping(STEPS), frozen, task),
    }


def unet_problem(settings: Settings, stochastic: str, *, frozen: bool) -> Problem:
    """Return the problem whose trunk (what does not match ``stochastic``) is meta-learned, or frozen."""
    torch.manual_seed(0)
    module = UNet(CHANNELS, CHANNELS, width=settings.width)
    if frozen:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(re.fullmatch(stochastic, name) is not None)
    inner = InnerLoop(steps=STEPS, lr=UNET_LR, adapt=None, damped=False)  # the peer takes plain steps
    return Problem(BayesianNetwork(module, stochastic), Gaussian(noise=1.0), inner)


def one_task(engine: Callable[..., Any], problem: Problem, task: Task) -> Contender:
    """Return a contender that computes one task's meta-gradient with an engine or a peer."""
    theta = problem.initial(task.support.y)
    return lambda: _finite(engine(problem, theta, task, Noise(0)))


def mlp_contenders(settings: Settings) -> dict[Name, Contender]:
    """Return many tasks of a 1-40-40-1 network: in a loop, or stacked in one program."""
    torch.manual_seed(0)
    network = BayesianNetwork(MLP(1, [40, 40], 1))
    problem = Problem(network, Gaussian(noise=0.3), InnerLoop(steps=STEPS, lr=MLP_LR, damped=False))
    tasks = [_sine(settings, number) for number in range(settings.mlp_tasks)]
    theta, engine = problem.initial(tasks[0].support.y), keeping(STEPS)

    def loop_of_higher() -> float:
        losses = (_finite(higher_unroll(problem, theta, t, Noise(0, task=i))) for i, t in enumerate(tasks))
        return sum(losses) / len(tasks)

    def loop() -> float:
        return _finite(meta_gradient(problem, theta, tasks, Noise(0), engine=engine))

    def stacked() -> float:
        return _finite(meta_gradient(problem, theta, tasks, Noise(0), engine=engine, stacked=True))

    return {
        (MLP_TASKS, "higher"): loop_of_higher,
        (MLP_TASKS, f"keeping({STEPS})"): loop,
        (MLP_TASKS, f"keeping({STEPS}), stacked"): stacked,
    }


def _sine(settings: Settings, number: int) -> Task:
    """Return a sine wave with a random amplitude and phase (Finn et al. 2017, section 5.1)."""
    generator = torch.Generator().manual_seed(number)
    amplitude, phase = torch.rand(2, generator=generator) * torch.tensor([4.9, math.pi]) + torch.tensor([0.1, 0.0])

    def examples(count: int) -> Examples:
        x = torch.rand(count, 1, generator=generator) * 10 - 5
        return Examples(x, amplitude * torch.sin(x + phase))

    return Task(examples(settings.k_shot), examples(settings.k_query), f"sine {number}")


def _finite(outcome: Any) -> float:
    """Return the loss; a problem of this benchmark that diverges is a mistake in its settings."""
    failures = [outcome] if isinstance(outcome, NonFinite) else getattr(outcome, "failures", ())
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


def take_turns(job: Round) -> dict[Name, Seconds]:
    """Time every contender of the group once."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads_of(job.group))
    try:
        return {name: _time(contender) for name, contender in _warm(*job).items()}
    finally:
        torch.set_num_threads(before)


def _time(contender: Contender) -> Seconds:
    cpu, wall = time.process_time(), time.perf_counter()
    loss = contender()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall, loss)


@contextmanager
def waiting_without_spinning() -> Iterator[None]:
    """Let the OpenMP threads of processes that are started inside the block wait without spinning."""
    before = os.environ.get("OMP_WAIT_POLICY")
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_WAIT_POLICY"]
        else:
            os.environ["OMP_WAIT_POLICY"] = before


def measure(context: Context[Settings]) -> BenchmarkResult:
    """Run all rounds in one process."""
    settings, peers = context.settings, peer_versions()
    jobs = [Round("unet", settings)] * settings.unet_rounds + [Round("mlp", settings)] * settings.mlp_rounds
    with waiting_without_spinning():
        rounds = run_all(take_turns, jobs, workers=0 if context.workers == 0 else 1, label="speed")
    times: dict[Name, list[Seconds]] = {}
    for turn in rounds:
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
    whole, stacked = (EVERYTHING, "twice_reverse"), (MLP_TASKS, f"keeping({STEPS}), stacked")
    engines = {"twice_reverse": "twice_reverse", "mixed": "mixed", "keeping": f"keeping({STEPS})"}
    return {
        "head_speedup": _ratio(times, whole, (HEAD_FROZEN, "twice_reverse")),
        "head_speedup_learned_trunk": _ratio(times, whole, (HEAD_LEARNED, "twice_reverse")),
        "mlp_speedup": _ratio(times, (MLP_TASKS, "higher"), stacked),
        "mlp_loop_speedup": _ratio(times, (MLP_TASKS, "higher"), (MLP_TASKS, f"keeping({STEPS})")),
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
        "head_speedup (trunk frozen), head_speedup_learned_trunk: tasks a second (wall clock) over adapting everything "
        "by the same engine; mlp_speedup, mlp_loop_speedup: over a loop of higher; unet_cpu_over_higher_...: CPU "
        "seconds; medians over rounds",
    ]


BENCHMARK = Benchmark(
    "speed",
    "seconds a task, beside `higher`",
    measure,
    full=Settings(),
    quick=Settings(width=8, frame=32, unet_rounds=2, mlp_rounds=3),
    quick_note="a smaller U-Net and few rounds",
    extras=("bench",),
)
