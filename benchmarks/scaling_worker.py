"""What every process of ``benchmarks.scaling`` does; torchrun starts as many as are to be measured.

``torchrun --nproc-per-node 2 -m benchmarks.scaling_worker --what team ...``: rank 0 prints one line of JSON.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.one_step import fail_alone, peak_gib
from benchmarks.result import Row
from metaprior.likelihoods import Gaussian
from metaprior.metagrad import InnerLoop, keeping
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models.unet import UNet
from metaprior.noise import Noise
from metaprior.tasks.drifting_blobs import DriftingBlobs
from metaprior.team import Team, team_of_torchrun, use_team
from metaprior.team.launch import leave
from metaprior.training.settings import MetaTraining
from metaprior.training.trainer import Trainer

TEAM, WATCHED, ALONE, CONSTANTS, COUNT = "team", "watched", "alone", "constants", "count"
CHANNELS = 4
PARTS = ("work", "waiting", "exchange", "sum")
"""Of a step, as far as the team knows it; the rest is the optimiser's."""
LR = 1e-6  # the likelihood sums over thousands of pixels
WARM_UP = 1
"""Steps before the ones that are timed."""
EXCHANGES = 200
SIZES = (2**10, 2**18, 2**20, 2**22, 2**24)
"""Numbers in the tensors whose sums are timed."""

T = TypeVar("T")
Note = TypeVar("Note")


@dataclass(frozen=True)
class Job:
    """What the processes do. Command-line options of the same names.

    ``what``: "team", steps of a training that they share; "watched", the same with a look at where the time goes;
    "alone", each the whole training by itself at the same time; "constants", exchanges and sums by themselves; "count",
    one process and one task: its operations.
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
    """Of "constants": numbers in the largest sum."""

    def arguments(self) -> list[str]:
        """The command line that ``parse`` reads back."""
        return [text for name, value in asdict(self).items() for text in (f"--{name.replace('_', '-')}", str(value))]

    def learner(self) -> MetaLearner:
        """A U-Net with all weights random; graphs are kept, as the planner decides where memory is no question."""
        torch.manual_seed(0)
        return MetaLearner(
            UNet(CHANNELS, CHANNELS, width=self.width),
            Gaussian(noise=1.0),
            inner=InnerLoop(steps=self.inner_steps, lr=LR, learn_lr="per_tensor"),
            engine=keeping(self.inner_steps),
        )

    def tasks(self) -> DriftingBlobs:
        """Drifting blobs, as many frames to forecast as are given."""
        return DriftingBlobs(self.frame, CHANNELS, CHANNELS, self.k_shot, self.k_query)

    def trainer(self) -> Trainer:
        """In the phase in which everything is learned, from the first step on."""
        settings = MetaTraining(
            epochs=1,
            tasks_per_epoch=(WARM_UP + self.steps) * self.meta_batch,
            meta_batch=self.meta_batch,
            scales_first=0.0,
            search_step_size=False,
        )
        return self.learner().trainer(self.tasks(), settings, shard=bool(self.shard))


def parse(arguments: Sequence[str]) -> Job:
    """The job of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", required=True, choices=list(DO))
    for field in fields(Job)[1:]:
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    return Job(**vars(parser.parse_args(arguments)))


class Watched(Team):
    """A team with clocks: ``seconds`` has what the ranks' own work, waiting for others, and sending have taken.

    Before anything is sent all wait for each other, so that what is left is sending alone.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self.rank, self.size, self.on_this_machine = team.rank, team.size, team.on_this_machine
        self.reset()

    def reset(self) -> None:
        """Begin to count."""
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


def steps_of_a_team(job: Job, team: Team) -> Row:
    """Seconds of each step, by rank, and what the training holds."""
    return timed_steps(job, job.trainer(), team)


def watched_steps(job: Job, team: Team) -> Row:
    """The same, and the seconds of each part of all timed steps, by rank."""
    watched = Watched(team)
    with use_team(watched):
        row = timed_steps(job, job.trainer(), team, begin=watched.reset)
    _, by_rank = team.attempt(lambda: dict(watched.seconds), lambda seconds: seconds)
    return {**row, "parts": by_rank}


def steps_alone(job: Job, team: Team) -> Row:
    """Every rank all of the training by itself; they only begin each step at the same time."""
    with use_team(Team()):
        return timed_steps(job, job.trainer(), team)


def timed_steps(job: Job, trainer: Trainer, team: Team, begin: Callable[[], None] = lambda: None) -> Row:
    """Steps that all ranks begin together; ``begin`` is called before the first that counts."""
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
        "gradients": f"{trainer.engine.name}, {'stacked' if trainer.stacked else 'one by one'}",
    }


def held_bytes(trainer: Trainer) -> int:
    """Bytes of the optimiser's moments that this process holds."""
    states = trainer.optimizer._adam.state.values()
    return sum(tensor.numel() * tensor.element_size() for state in states for tensor in state.values())


def constants(job: Job, team: Team) -> Row:
    """Seconds of an exchange of notes such as a step's, and of sums of several sizes."""
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
    """Of one call, after a few that do not count."""
    taken = []
    for _ in range(repeats + max(1, repeats // 10)):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[-repeats:])


class Operations(TorchDispatchMode):
    """Counts what would be started on a GPU: every operation but views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every operation."""
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def count(job: Job, team: Team) -> Row:
    """Floating-point operations (convolutions: all that matter) and operations started, of one task's gradient."""
    learner, task = job.learner(), job.tasks()[0]
    problem = learner.problem(1)
    theta = problem.initial(task.support.y)
    engine = keeping(job.inner_steps)
    engine(problem, theta, task, Noise(0)).or_raise()
    with FlopCounterMode(display=False) as flops, Operations() as operations:
        engine(problem, theta, task, Noise(0))
    numbers = sum(tensor.numel() for tensor in theta.tensors())
    return {"flops": flops.get_total_flops(), "operations": operations.count, "numbers": numbers}


DO: dict[str, Callable[[Job, Team], Row]] = {
    TEAM: steps_of_a_team,
    WATCHED: watched_steps,
    ALONE: steps_alone,
    CONSTANTS: constants,
    COUNT: count,
}


ENDING = 30.0
"""Seconds that torchrun has to end its processes."""


def by_torchrun(processes: int, job: Job) -> Row:
    """Start the processes, and read what rank 0 says."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += ["-m", "benchmarks.scaling_worker", *job.arguments()]
    environment = {**os.environ, "OMP_NUM_THREADS": str(job.threads)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            out, err = started.communicate()
        except BaseException:
            started.send_signal(signal.SIGTERM)  # it ends its processes, which are no children of this one
            started.wait(ENDING)
            raise
    if started.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({started.returncode}):\n{err[-4000:]}")
    found: Row = json.loads(out.splitlines()[-1])
    return found


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(arguments: Sequence[str]) -> None:
    """Do the job; rank 0 tells."""
    fail_alone(None)
    job = parse(arguments)
    torch.set_num_threads(job.threads)
    with team_of_torchrun() as team:
        row = DO[job.what](job, team)
        if team.first:
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
    leave(0)
