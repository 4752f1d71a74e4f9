"""Two processes by torchrun that share the tasks of a step, with divided moments."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.golden.cases_runs import SINUSOID
from tests.golden.digest import Entries
from tests.golden.registry import FLOAT32, case
from tests.golden.run_files import REPOSITORY, run_entries, shipped_config

PATIENCE = 300
"""Seconds after which something hangs."""


def torchrun(*arguments: object, processes: int = 2) -> None:
    """Run ``metaprior ...`` in several processes of this machine; raise if it fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = [f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", f"--master-port={port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *meeting, "-m", "metaprior", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@case("ranks/sinusoid, two processes", FLOAT32)
def two_ranks(folder: Path) -> Entries:
    sets = [part for change in SINUSOID for part in ("--set", change)]
    torchrun("train", shipped_config("sinusoid"), "--run-dir", folder / "run", "--quiet", "--shard", *sets)
    return run_entries(folder / "run")
