"""What every process of the benchmark does; torchrun starts as many as are to be measured."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import metaprior as mp
from benchmarks.common.result import Row
from benchmarks.common.worker import peak_gib
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.team import use_team
from metaprior.training.trainer import Trainer

TEAM, WATCHED, ALONE, CONSTANTS, COUNT = "team", "watched", "alone", "constants", "count"
CHANNELS = 4
PARTS = ("work", "waiting", "exchange", "sum")
"""The parts of a step that the team can time; the rest is the optimiser's."""
LR = 1e-6  # the likelihood sums over thousands of pixels
WARM_UP = 1
"""Steps before those that are timed."""
EXCHANGES = 200
SIZES = (2**10, 2**18, 2**20, 2**22, 2**24)
"""Numbers in the tensors whose sums are timed."""

T = TypeVar("T")
Note = TypeVar("Note")


@dataclass(frozen=True)
class Job:
    """What the processes do.

    ``what`` is "team" (steps of a training that they share), "watched" (the same, with clocks for the parts of a step),
    "alone" (each the whole training by itself, at the same time), "constants" (exchanges and sums alone) or "count"
    (the operations of one task in one process).
    """

    what: str
    width: int = 16
    frame: int = 32
    k_shot: int = 5
    k_query: int = 10
    inner_steps: int = 5
    meta_batch: int = 8
    steps: int = 2
    shard: int = 0
    threads: int = 1
    largest: int = SIZES[-1]
    """Numbers in the largest sum of "constants"."""

    def learner(self) -> mp.MetaLearner:
        """Return a U-Net with all weights random that keeps graphs, as the planner chooses with enough memory."""
        torch.manual_seed(0)
        return mp.MetaLearner(
            mp.UNet(CHANNELS, CHANNELS, width=self.width),
            mp.Gaussian(noise=1.0),
            adaptation=mp.Descent(steps=self.inner_steps, lr=LR, learn_lr="per_tensor"),
            engine=mp.metagrad.keeping(self.inner_steps),
            standardize=False,
        )

    def tasks(self) -> DriftingBlobs:
        """Return drifting blobs with as many frames to forecast as are given."""
        return DriftingBlobs(self.frame, CHANNELS, CHANNELS, self.k_shot, self.k_query)

    def trainer(self) -> Trainer:
        """Return a trainer that learns all of theta from the first step on."""
        settings = mp.MetaTraining(
            epochs=1,
            tasks_per_epoch=(WARM_UP + self.steps) * self.meta_batch,
            meta_batch=self.meta_batch,
            scales_first=0.0,
            search_step_size=False,
        )
        return self.learner().trainer(self.tasks(), settings, shard=bool(self.shard))


class Watched(mp.Team):
    """A team with clocks: ``seconds`` holds the seconds of the rank's own work, of waiting, and of sending.

    Before anything is sent all ranks wait for each other, so that the time after that is sending alone.
    """

    def __init__(self, team: mp.Team) -> None:
        self._team = team
        self.rank, self.size, self.on_this_machine = team.rank, team.size, team.on_this_machine
        self.reset()

    def reset(self) -> None:
        """Set all clocks to zero."""
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def attempt(self, work: Callable[[], T], note: Callable[[T], Note]) -> tuple[T, list[Note]]:
        """See ``Team``."""

        def timed() -> T:
            try:
                return self._timed("work", work)
            finally:
                self._wait()

        before = sum(self.seconds.values())
        began = time.perf_counter()
        found = self._team.attempt(timed, note)
        self.seconds["exchange"] += time.perf_counter() - began - (sum(self.seconds.values()) - before)
        return found

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """See ``Team``."""
        self._wait()
        self._timed("sum", lambda: self._team.sum_(tensors))

    def exchange_(self, parts: Sequence[Tensor]) -> None:
        """See ``Team``."""
        self._wait()
        self._timed("sum", lambda: self._team.exchange_(parts))

    def any(self, flag: bool) -> bool:
        """See ``Team``."""
        return self._team.any(flag)

    def on_first(self, work: Callable[[], T]) -> T:
        """See ``Team``."""
        return self._team.on_first(work)

    def _wait(self) -> None:
        if self.size > 1:
            self._timed("waiting", lambda: self._team.sum_([torch.zeros(1)]))

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[name] += time.perf_counter() - began


def steps_of_a_team(job: Job, team: mp.Team) -> Row:
    """Return the seconds of each step by rank, and what the training holds."""
    return timed_steps(job, job.trainer(), team)


def watched_steps(job: Job, team: mp.Team) -> Row:
    """Return the same, and the seconds of each part of all timed steps by rank."""
    watched = Watched(team)
    with use_team(watched):
        row = timed_steps(job, job.trainer(), team, begin=watched.reset)
    _, by_rank = team.attempt(lambda: dict(watched.seconds), lambda seconds: seconds)
    return {**row, "parts": by_rank}


def steps_alone(job: Job, team: mp.Team) -> Row:
    """Let every rank do the whole training by itself; only the beginning of each step is shared."""
    with use_team(mp.Team()):
        return timed_steps(job, job.trainer(), team)


def timed_steps(job: Job, trainer: Trainer, team: mp.Team, begin: Callable[[], None] = lambda: None) -> Row:
    """Time steps that all ranks begin together; ``begin`` is called before the first timed one."""
    own, cpu = list[float](), list[float]()
    for number in range(WARM_UP + job.steps):
        team.any(False)
        if number == WARM_UP:
            begin()
        began, worked = time.perf_counter(), time.process_time()
        report = trainer.step()
        own.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        if report.failures:  # it would have cost less than a good one
            raise ValueError(str(report.failures[0]))
    _, seconds = team.attempt(lambda: own[WARM_UP:], lambda found: found)
    _, busy = team.attempt(lambda: sum(cpu[WARM_UP:]) / sum(own[WARM_UP:]), lambda share: share)
    _, peaks = team.attempt(peak_gib, lambda peak: peak)
    return {
        "seconds": seconds,
        "on_cpu": statistics.mean(busy),
        "weights": len(trainer.theta.mu),
        "numbers": sum(tensor.numel() for tensor in trainer.theta.tensors()),
        "moments_bytes": held_bytes(trainer),
        "peak_gib": max(peaks),
        "gradients": f"{trainer.model.how.engine}, {'stacked' if trainer.model.how.stacked else 'one by one'}",
    }


def held_bytes(trainer: Trainer) -> int:
    """Return the bytes of the optimiser's moments in this process."""
    states = trainer.optimizer._adam.state.values()
    return sum(tensor.numel() * tensor.element_size() for state in states for tensor in state.values())


def constants(job: Job, team: mp.Team) -> Row:
    """Return the seconds of an exchange of notes such as a step's, and of sums of several sizes."""
    names = tuple(f"drifting blobs {index}" for index in team.share(job.meta_batch))

    def exchange() -> None:
        team.attempt(lambda: None, lambda _: (names, float(len(names)), ()))

    sums = {}
    for size in (size for size in SIZES if size <= job.largest):
        tensor = torch.ones(size)
        repeats = 200 if size <= 2**18 else 20
        sums[size] = median_seconds(lambda tensor=tensor: team.sum_([tensor]), repeats)  # type: ignore[misc]
    return {"exchange": median_seconds(exchange, EXCHANGES), "sums": sums}


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of a call, after a few that are not counted."""
    taken = []
    for _ in range(repeats + max(1, repeats // 10)):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[-repeats:])


class Operations(TorchDispatchMode):
    """Counts the operations that would be started on a GPU: all except views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation; called by torch for every one."""
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def count(job: Job, team: mp.Team) -> Row:
    """Return the floating-point operations (of convolutions) and the operations started for one task's gradient."""
    learner, task = job.learner(), job.tasks()[0]
    problem = learner.problem(1)
    theta = problem.initial(task.support.y)
    engine = mp.metagrad.keeping(job.inner_steps)
    engine(problem, theta, task, mp.Noise(0)).or_raise()
    with FlopCounterMode(display=False) as flops, Operations() as operations:
        engine(problem, theta, task, mp.Noise(0))
    numbers = sum(tensor.numel() for tensor in theta.tensors())
    return {"flops": flops.get_total_flops(), "operations": operations.count, "numbers": numbers}


DO: dict[str, Callable[[Job, mp.Team], Row]] = {
    TEAM: steps_of_a_team,
    WATCHED: watched_steps,
    ALONE: steps_alone,
    CONSTANTS: constants,
    COUNT: count,
}


def measure_job(job: Job) -> Row | None:
    """Do the job in every process; rank 0 returns the row."""
    torch.set_num_threads(job.threads)
    with mp.team_of_torchrun() as team:
        row = DO[job.what](job, team)
        return row if team.first else None
