"""Real processes by torchrun on this machine, and none of them left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which something hangs that should not: many times what anything here takes."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Ended:
    """What became of a start. torchrun's own log is in ``err``, too."""

    code: int
    out: str
    err: str
    seconds: float

    def said(self) -> str:
        """Everything, for the message of an assertion."""
        return f"exit code {self.code} after {self.seconds:.0f} s\n{self.out}\n{self.err}"

    def messages(self) -> list[str]:
        """First lines of what the program complains of."""
        return [line for line in self.err.splitlines() if line.startswith("metaprior: ")]


def torchrun(module: str, *arguments: object, processes: int = 2, restarts: int = 0) -> Ended:
    """Start ``-m module`` and wait for the end."""
    meeting = ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    (ended,) = _ended(
        [[f"--nproc-per-node={processes}", f"--max-restarts={restarts}", *meeting, "-m", module]], arguments
    )
    return ended


def two_machines(module: str, *arguments: object, restarts: int = 0) -> list[Ended]:
    """The same with a torchrun for each rank, as on two machines."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--local-addr=127.0.0.1"]
    launcher = ["--nnodes=2", "--nproc-per-node=1", f"--max-restarts={restarts}", *meeting, "-m", module]
    return _ended([launcher, launcher], arguments)


def _ended(launchers: Sequence[Sequence[str]], arguments: Sequence[object]) -> list[Ended]:
    began, python = time.monotonic(), [sys.executable, "-m", "torch.distributed.run"]
    with ExitStack() as stack:
        started = [stack.enter_context(_started([*python, *launcher, *map(str, arguments)])) for launcher in launchers]
        found = []
        for process in started:
            out, err = process.communicate(timeout=PATIENCE)
            found.append(Ended(process.returncode, out, err, time.monotonic() - began))
    return found


@contextmanager
def _started(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:  # ranks are in sessions of their own: nobody but their parent knows them
            for pid in [*_children(process.pid), process.pid]:
                _kill(pid)
        process.communicate()


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
