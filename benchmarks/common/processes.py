"""Work in other processes: many small fits on all cores, and single measurements in a fresh process."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.common.result import Row
from metaprior.progress import track

ROOT = Path(__file__).parent.parent.parent
"""The root of the clone, where ``python -m benchmarks`` can be run."""
SECONDS_TO_END = 30.0

Found = TypeVar("Found")


def run_all(
    function: Callable[..., Found], jobs: Sequence[tuple[Any, ...]], *, workers: int | None, label: str
) -> list[Found]:
    """Return ``function(*job)`` for every job in order; the first error stops all of them and is raised.

    Args:
        function: A function of a module, because other processes import it.
        jobs: The arguments of each call.
        workers: Processes, with one thread each (default: one for each core; 0: call the function here).
        label: What the progress bar says.
    """
    if workers == 0:
        return [function(*job) for job in jobs]
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    # The tensors are small: the OpenMP threads of two processes would mostly wait for each other.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )
    with pool:
        futures = [pool.submit(function, *job) for job in jobs]
        try:
            for future in track(as_completed(futures), label, unit="fits", show=True, total=len(futures)):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


class ProcessFailed(RuntimeError):
    """A process that was started for a measurement ended with an error."""

    def __init__(self, command: Sequence[str], returncode: int, stderr: str) -> None:
        super().__init__(f"{' '.join(command)} failed ({returncode}):\n{stderr[-4000:]}")
        self.returncode, self.stderr = returncode, stderr


def in_own_process(
    function: Callable[[Any], Row | None],
    job: Any,
    *,
    limit_gib: float | None = None,
    processes: int | None = None,
    environment: dict[str, str] | None = None,
) -> Row:
    """Return ``function(job)``, computed in a fresh process, because a peak of memory never goes down again.

    Args:
        function: A function of a module that takes a dataclass and returns a row (with ``processes``: on one rank).
        job: A dataclass of numbers and texts.
        limit_gib: The memory that the process may take.
        processes: Start so many with torchrun instead of one.
        environment: Environment variables in addition to those of this process.

    Raises:
        ProcessFailed: The process ended with an error.
    """
    command = [sys.executable, "-m"]
    if processes is not None:
        command += ["torch.distributed.run", "--nproc-per-node", str(processes), "--master-addr", "127.0.0.1"]
        command += ["--master-port", str(_free_port()), "-m"]
    command += ["benchmarks.common.worker", f"{function.__module__}:{function.__name__}", json.dumps(asdict(job))]
    command += ["--limit-gib", str(limit_gib)] if limit_gib is not None else []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    ) as started:
        try:
            out, err = started.communicate()
        except BaseException:
            started.send_signal(signal.SIGTERM)  # torchrun ends its processes, which are no children of this one
            started.wait(SECONDS_TO_END)
            raise
    if started.returncode:
        raise ProcessFailed(command, started.returncode, err)
    row: Row = json.loads(out.splitlines()[-1])
    return row


def _free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
