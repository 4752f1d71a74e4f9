"""A tiny run in a process of its own: ``python -m tests.runs.killed FOLDER CALL MOMENT [CHANGES]``.

It kills itself at the given call of ``checkpoint.write_file`` (-1: never), at one of the ``MOMENTS``.
"""

import os
import signal
import sys
from pathlib import Path

from metaprior import checkpoint
from metaprior.runs import finish
from tests.runs.tiny import run

MOMENTS = ("half written", "before it is moved", "after it was moved")


def kill_at(call: int, moment: str) -> None:
    real, calls = checkpoint.write_file, iter(range(10**9))

    def replace(path: Path, content: bytes) -> None:
        if next(calls) != call:
            return real(path, content)
        if moment == "after it was moved":
            real(path, content)
        else:
            part = content[: len(content) // 2] if moment == "half written" else content
            path.with_name(f"{path.name}.{os.getpid()}.tmp").write_bytes(part)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    checkpoint.write_file = replace


if __name__ == "__main__":
    finish.draw = lambda *_: []
    kill_at(int(sys.argv[2]), sys.argv[3])
    print("ready", flush=True)  # noqa: T201
    run(Path(sys.argv[1]), *sys.argv[4:], resume=True)
