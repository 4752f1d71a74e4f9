"""Real processes by torchrun on this machine, and none of them left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which something hangs that should not: many times what anything here takes."""


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


def torchrun(
    module: str, *arguments: object, processes: int = 2, restarts: int = 0, environment: Mapping[str, str] | None = None
) -> Ended:
    """Start ``-m module`` and wait for the end."""
    began = time.monotonic()
    launcher = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}", "--master-addr=127.0.0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, f"--master-port={free_port()}", "-m", module]
    with _started([*command, *map(str, arguments)], environment or {}) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, out, err, time.monotonic() - began)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    whole = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
